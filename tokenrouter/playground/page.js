// The page around the editor: it sends the text as it is typed, and shows what comes back. One question of a kind is under way at
// a time; what was asked meanwhile is asked once, when its answer is there.

import { Editor } from "./editor.js";

const $ = (id) => document.getElementById(id);
const REST = 80; // milliseconds without a key before the text is sent

const editor = new Editor($("editor"), $("words"));
let state = { problems: [], places: [], policies: [], policy: null };
let given = {}; // values by name, kept from place to place
let file = null, saved = "", limit = Infinity, lost = false;

async function ask(what, body) {
  let answer;
  try {
    answer = await fetch(`/ask/${what}`, {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
    });
  } catch {
    lost = true;
    say("trc playground does not answer; start it again", "error");
    throw new Error("no server");
  }
  lost = false;
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(found.error?.message ?? `the server answered ${answer.status}`);
  return found;
}

// A question that is asked again while it is under way is asked once more afterwards.
function latest(work) {
  let busy = false, again = false, timer = 0;
  const run = async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      await work();
    } catch (error) {
      if (!lost) say(error.message, "error");
    }
    busy = false;
    if (again) {
      again = false;
      run();
    }
  };
  return (rest = 0) => {
    clearTimeout(timer);
    timer = setTimeout(run, rest);
  };
}

const look = latest(async () => {
  const text = editor.text;
  if (text.length > limit) {
    say(`not looked at: the text has ${text.length.toLocaleString("en")} characters, and ${limit.toLocaleString("en")} are the most`, "warning");
    $("problems").replaceChildren();
    stale(true);
    return;
  }
  const found = await ask("look", { text, policy: $("policies").value || null });
  if (text !== editor.text) return;
  state = found;
  editor.know(found.tokens, found.problems);
  showProblems(found.problems);
  fill($("policies"), found.policies, found.policy);
  const sound = found.graph !== "";
  stale(!sound && $("graph").childElementCount > 0);
  if (sound) showGraph(found.graph, found.graph_words);
  if (sound) showPlaces();
  else $("fired").textContent = found.policies.length ? "mend the mistakes to try values" : "";
  if (!$("plan").hidden) plan();
});

const plan = latest(async () => {
  const text = editor.text;
  if (text.length > limit) return;
  const found = await ask("plan", { text, policy: state.policy });
  if (text !== editor.text) return;
  $("why").textContent = found.note;
  if (found.text) $("explained").textContent = found.text;
  $("plan").classList.toggle("stale", !found.text);
});

const fire = latest(async () => {
  const text = editor.text, place = $("place").value;
  if (!place || text.length > limit) return;
  const found = await ask("fire", { text, policy: state.policy, place, given });
  if (text !== editor.text || place !== $("place").value) return;
  const line = $("fired");
  line.className = `fired ${found.rule === null ? "none" : "some"}`;
  line.textContent = found.rule === null ? found.got : `rule ${found.rule} fires: ${found.got}`;
  [...$("rules").children].forEach((item, at) => {
    item.className = found.rule === null ? "" : at === found.rule ? "fires" : at < found.rule ? "not" : "behind";
  });
  for (const input of $("fields").querySelectorAll("input, select")) {
    const wrong = found.wrong[input.name] ?? "";
    input.setAttribute("aria-invalid", wrong !== "");
    const hint = input.parentElement.querySelector("small");
    hint.textContent = wrong || hint.dataset.hint;
    hint.classList.toggle("wrong", wrong !== "");
  }
  editor.light(found.line);
});

const save = latest(async () => {
  if (!file || editor.text.length > limit) return;
  const text = editor.text;
  await ask("save", { text });
  saved = text;
  dirty();
});

function say(text, kind) {
  $("summary").textContent = text;
  $("summary").className = kind;
}

function showProblems(problems) {
  const count = (kind) => problems.filter((p) => p.severity === kind).length;
  const some = (n, word) => (n ? [`${n} ${word}${n === 1 ? "" : "s"}`] : []);
  const told = [...some(count("error"), "error"), ...some(count("warning"), "warning"), ...some(count("info"), "note")];
  say(told.join(", ") || "no problems", count("error") ? "error" : count("warning") ? "warning" : "fine");
  $("problems").replaceChildren(...problems.slice(0, 200).map(problemItem));
}

function problemItem(problem) {
  const item = document.createElement("li");
  item.className = problem.severity;
  const go = document.createElement("button");
  go.className = "go";
  const place = document.createElement("b");
  place.textContent = `${problem.range[0] + 1}:${problem.range[1] + 1}`;
  go.append(place, " ", problem.message);
  go.addEventListener("click", () => editor.go(problem.range[0], problem.range[1]));
  const code = document.createElement("a");
  code.href = `/codes/${encodeURIComponent(problem.code)}`;
  code.target = "_blank";
  code.rel = "noopener";
  code.textContent = problem.code;
  item.append(go, code);
  if (problem.fix) {
    const fix = document.createElement("button");
    fix.className = "fix";
    fix.textContent = problem.fix.title;
    fix.addEventListener("click", () => mend(problem.fix));
    item.append(fix);
  }
  if (problem.help) {
    const help = document.createElement("p");
    help.textContent = problem.help;
    item.append(help);
  }
  return item;
}

function mend(fix) {
  const changes = fix.changes.map(({ range: [a, b, c, d], text }) => [editor.offset(a, b), editor.offset(c, d), text]);
  for (const [start, end, text] of changes.sort((x, y) => y[0] - x[0])) editor.replace(start, end, text);
}

function showGraph(svg, words) {
  const image = $("graph").querySelector("img") ?? $("graph").appendChild(document.createElement("img"));
  // As an image it is drawn and never run.
  const source = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  if (image.src !== source) image.src = source;
  image.alt = words;
}

function stale(yes) {
  $("graph").classList.toggle("stale", yes);
  $("stale").hidden = !yes;
}

function fill(select, names, chosen) {
  const known = [...select.options].map((option) => option.value);
  if (JSON.stringify(known) !== JSON.stringify(names)) select.replaceChildren(...names.map((name) => new Option(name, name)));
  if (chosen !== null) select.value = chosen;
  select.disabled = names.length < 2;
}

function showPlaces() {
  const names = state.places.map((place) => place.name);
  const before = $("place").value;
  fill($("place"), names, names.includes(before) ? before : names.find((name) => name !== "start") ?? null);
  showPlace();
}

function showPlace() {
  const place = state.places.find(({ name }) => name === $("place").value);
  const fields = place?.fields ?? [];
  const key = JSON.stringify(fields);
  if ($("fields").dataset.key !== key) {
    $("fields").dataset.key = key;
    $("fields").replaceChildren(...fields.map(fieldRow));
  }
  $("rules").replaceChildren(...(place?.rules ?? []).map((rule) => {
    const item = document.createElement("li");
    item.textContent = rule.text;
    return item;
  }));
  fire();
}

function fieldRow(field) {
  const row = document.createElement("label");
  const name = document.createElement("span");
  name.textContent = field.name;
  const input = document.createElement("input");
  input.name = field.name;
  input.value = given[field.name] ?? "";
  input.placeholder = field.value;
  input.spellcheck = false;
  input.addEventListener("input", () => {
    given[field.name] = input.value;
    fire(REST);
  });
  const hint = document.createElement("small");
  hint.textContent = hint.dataset.hint = field.hint;
  row.append(name, input, hint);
  return row;
}

function dirty() {
  const yes = file !== null && editor.text !== saved;
  $("file").textContent = file === null ? "" : `${file}${yes ? " (changed)" : ""}`;
  $("save").disabled = !yes;
}

function nextProblem(step) {
  const places = state.problems.map((p) => editor.offset(p.range[0], p.range[1])).sort((a, b) => a - b);
  if (!places.length) return;
  const at = editor.area.selectionStart;
  const next = step > 0 ? places.find((p) => p > at) ?? places[0] : places.findLast((p) => p < at) ?? places.at(-1);
  editor.go(...editor.spot(next));
}

function select(tab) {
  for (const other of document.querySelectorAll("[role=tab]")) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", chosen);
    other.tabIndex = chosen ? 0 : -1;
    $(other.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (tab.id === "tab-plan") plan();
}

function listen(examples) {
  editor.onText = () => {
    dirty();
    look(REST);
  };
  editor.onComplete = async (line, character) =>
    editor.text.length > limit ? [] : (await ask("complete", { text: editor.text, line, character })).words;
  $("examples").addEventListener("change", () => {
    const example = examples.find(({ name }) => name === $("examples").value);
    if (example) editor.replace(0, editor.text.length, example.text);
    editor.go(0, 0);
  });
  $("policies").addEventListener("change", () => look());
  $("place").addEventListener("change", showPlace);
  $("fields").addEventListener("submit", (event) => event.preventDefault());
  $("save").addEventListener("click", () => save());
  const tabs = [...document.querySelectorAll("[role=tab]")];
  for (const tab of tabs) {
    tab.addEventListener("click", () => select(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
      select(next);
      next.focus();
    });
  }
  document.addEventListener("keydown", (event) => {
    if (event.key === "F8") nextProblem(event.shiftKey ? -1 : 1);
    else if (event.key.toLowerCase() === "s" && (event.ctrlKey || event.metaKey)) save();
    else return;
    event.preventDefault();
  });
  window.addEventListener("beforeunload", (event) => {
    if (file !== null && editor.text !== saved) event.preventDefault();
  });
}

async function begin() {
  const found = await ask("begin", { text: "" });
  file = found.file;
  saved = found.text;
  limit = editor.limit = found.limit;
  editor.legend = found.legend;
  const none = new Option(file ?? "choose one", "");
  $("examples").replaceChildren(none, ...found.examples.map(({ name, title }) => {
    const option = new Option(name, name);
    option.title = title;
    return option;
  }));
  if (file === null) $("examples").value = found.examples[0].name;
  $("save").hidden = file === null;
  listen(found.examples);
  editor.begin(found.text);
  editor.area.focus();
}

begin().catch(() => {});
