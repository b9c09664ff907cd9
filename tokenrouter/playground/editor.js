// The editor: a text area, and behind it the same text in colours. Text from anywhere becomes text nodes only, never markup.

const LINE = 20; // pixels; the style sheet's line height

export class Editor {
  constructor(root, words) {
    this.area = root.querySelector("textarea");
    this.mirror = root.querySelector(".mirror");
    this.numbers = root.querySelector(".numbers");
    this.words = words;
    this.lines = []; // {key, node} by line
    this.tokens = new Map(); // of a line by its text, for lines that are typed again
    this.marks = new Map(); // problems by line
    this.lit = null; // the line whose rule fires
    this.legend = [];
    this.limit = Infinity;
    this.onText = () => {};
    this.onComplete = async () => [];
    this.offered = [];
    this.at = 0;
    this.area.addEventListener("input", () => this.changed());
    this.area.addEventListener("scroll", () => this.scrolled());
    this.area.addEventListener("keydown", (event) => this.key(event));
    this.area.addEventListener("blur", () => this.close());
    this.area.addEventListener("click", () => this.close());
    this.words.addEventListener("mousedown", (event) => {
      event.preventDefault();
      const item = event.target.closest("li");
      if (item) this.accept(Number(item.dataset.at));
    });
  }

  get text() {
    return this.area.value;
  }

  // Puts a text in place of a range; undo takes it back.
  replace(start, end, text) {
    this.area.focus();
    this.area.setSelectionRange(start, end);
    const done = text ? document.execCommand("insertText", false, text) : document.execCommand("delete");
    if (!done) {
      this.area.setRangeText(text, start, end, "end");
      this.changed();
    }
  }

  begin(text) {
    this.area.value = text;
    this.area.setSelectionRange(0, 0);
    this.changed();
  }

  changed() {
    this.marks = new Map(); // of another text now
    this.lit = null;
    this.draw();
    this.onText(this.text);
    if (!this.words.hidden) this.complete();
  }

  // Takes over what the server says of the text.
  know(packed, problems) {
    const byLine = new Map();
    let line = 0, column = 0;
    for (let i = 0; i < packed.length; i += 5) {
      line += packed[i];
      column = packed[i] ? packed[i + 1] : column + packed[i + 1];
      if (!byLine.has(line)) byLine.set(line, []);
      byLine.get(line).push([column, column + packed[i + 2], this.legend[packed[i + 3]]]);
    }
    const lines = this.text.split("\n");
    this.tokens = new Map(lines.map((text, at) => [text, byLine.get(at) ?? []]));
    this.marks = new Map();
    for (const problem of [...problems].reverse()) {
      const [first, from, last, to] = problem.range;
      for (let at = first; at <= last && at < lines.length; at++) {
        const start = at === first ? from : 0;
        const end = Math.max(at === last ? to : lines[at].length, start + 1);
        if (!this.marks.has(at)) this.marks.set(at, []);
        this.marks.get(at).push([start, end, problem.severity]);
      }
    }
    this.draw();
  }

  light(line) {
    this.lit = line;
    this.draw();
  }

  draw() {
    const plain = this.text.length > this.limit;
    this.area.classList.toggle("plain", plain);
    const lines = plain ? [] : this.text.split("\n");
    const shown = lines.length;
    while (this.lines.length > shown) this.lines.pop().node.remove();
    lines.forEach((text, at) => {
      const marks = this.marks.get(at) ?? [], tokens = this.tokens.get(text) ?? [];
      const key = JSON.stringify([text, tokens, marks, at === this.lit]);
      const known = this.lines[at];
      if (known?.key === key) return;
      const node = drawn(text, tokens, marks);
      if (at === this.lit) node.classList.add("lit");
      if (known) known.node.replaceWith(node);
      else this.mirror.append(node);
      this.lines[at] = { key, node };
    });
    const numbers = this.numbers;
    while (numbers.childElementCount > shown) numbers.lastElementChild.remove();
    while (numbers.childElementCount < shown) {
      const number = document.createElement("div");
      number.textContent = numbers.childElementCount + 1;
      numbers.append(number);
    }
    [...numbers.children].forEach((number, at) => {
      const worst = (this.marks.get(at) ?? []).map((mark) => mark[2]).sort()[0] ?? "";
      if (number.className !== worst) number.className = worst;
    });
    this.scrolled();
  }

  scrolled() {
    this.mirror.style.transform = `translate(${-this.area.scrollLeft}px, ${-this.area.scrollTop}px)`;
    this.numbers.style.transform = `translateY(${-this.area.scrollTop}px)`;
    if (!this.words.hidden) this.placeWords();
  }

  // Line and character of an offset.
  spot(offset) {
    const before = this.text.slice(0, offset);
    const line = before.split("\n").length - 1;
    return [line, offset - (before.lastIndexOf("\n") + 1)];
  }

  offset(line, character) {
    const lines = this.text.split("\n");
    const before = lines.slice(0, line).reduce((sum, text) => sum + text.length + 1, 0);
    return before + Math.min(character, lines[line]?.length ?? 0);
  }

  go(line, character) {
    const at = this.offset(line, character);
    this.area.focus();
    this.area.setSelectionRange(at, at);
    const high = this.area.clientHeight, top = line * LINE;
    if (top < this.area.scrollTop || top > this.area.scrollTop + high - 3 * LINE) this.area.scrollTop = top - high / 2;
  }

  key(event) {
    if (event.isComposing) return;
    if (!this.words.hidden) {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) this.choose((this.at + step + this.offered.length) % this.offered.length);
      else if (event.key === "Enter" || event.key === "Tab") this.accept(this.at);
      else if (event.key === "Escape") this.close();
      else {
        if (event.key.startsWith("Arrow")) this.close();
        return;
      }
      event.preventDefault();
      return;
    }
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      this.complete();
    } else if (event.key === "Enter" && !event.ctrlKey && !event.shiftKey && !event.altKey && !event.metaKey) {
      event.preventDefault();
      const { selectionStart: start, selectionEnd: end } = this.area;
      const line = this.text.slice(this.text.lastIndexOf("\n", start - 1) + 1, start);
      const inner = /\{\s*$/.test(line) ? "  " : "";
      this.replace(start, end, "\n" + /^[ \t]*/.exec(line)[0] + inner);
    }
  }

  async complete() {
    const at = this.area.selectionStart, text = this.text;
    const found = await this.onComplete(...this.spot(at));
    if (text !== this.text || at !== this.area.selectionStart || document.activeElement !== this.area) return;
    const typed = /[A-Za-z0-9_]*$/.exec(text.slice(0, at))[0];
    if (!found.length || (found.length === 1 && found[0].label === typed)) {
      this.close();
      return;
    }
    this.offered = found;
    this.typed = typed;
    this.words.replaceChildren(...found.map((word, i) => {
      const item = document.createElement("li");
      item.id = `word-${i}`;
      item.role = "option";
      item.dataset.at = i;
      const kind = document.createElement("small");
      kind.textContent = word.kind.toLowerCase();
      item.append(word.label, kind);
      return item;
    }));
    this.words.hidden = false;
    this.choose(0);
    this.placeWords();
  }

  choose(at) {
    this.at = at;
    [...this.words.children].forEach((item, i) => item.setAttribute("aria-selected", i === at));
    this.words.children[at].scrollIntoView({ block: "nearest" });
    this.area.setAttribute("aria-activedescendant", `word-${at}`);
  }

  placeWords() {
    const [line, character] = this.spot(this.area.selectionStart - this.typed.length);
    this.width ??= measured(this.mirror);
    const top = (line + 1) * LINE + 8 - this.area.scrollTop;
    const left = 8 + character * this.width - this.area.scrollLeft;
    const below = top + this.words.offsetHeight < this.area.clientHeight;
    this.words.style.top = `${below ? top : Math.max(0, top - LINE - this.words.offsetHeight)}px`;
    this.words.style.left = `${Math.max(0, Math.min(left, this.area.clientWidth - this.words.offsetWidth))}px`;
  }

  accept(at) {
    const end = this.area.selectionStart, word = this.offered[at].label;
    this.close();
    this.replace(end - this.typed.length, end, word);
  }

  close() {
    this.words.hidden = true;
    this.area.removeAttribute("aria-activedescendant");
  }
}

// One line of the mirror: spans of tokens, and in them of problems.
function drawn(text, tokens, marks) {
  const node = document.createElement("div");
  const padded = marks.some((mark) => mark[1] > text.length) ? text + " " : text;
  const cuts = new Set([0, padded.length]);
  for (const [start, end] of [...tokens, ...marks]) cuts.add(Math.min(start, padded.length)).add(Math.min(end, padded.length));
  const sorted = [...cuts].sort((a, b) => a - b);
  for (let i = 0; i + 1 < sorted.length; i++) {
    const [start, end] = [sorted[i], sorted[i + 1]];
    const kinds = tokens.filter((t) => t[0] <= start && end <= t[1]).map((t) => `t-${t[2]}`);
    kinds.push(...marks.filter((m) => m[0] <= start && end <= m[1]).map((m) => `d-${m[2]}`));
    const piece = padded.slice(start, end);
    if (!kinds.length) {
      node.append(piece);
      continue;
    }
    const span = document.createElement("span");
    span.className = kinds.join(" ");
    span.textContent = piece;
    node.append(span);
  }
  if (!padded) node.append("\u200b");
  return node;
}

function measured(pre) {
  const probe = document.createElement("span");
  probe.textContent = "x".repeat(100);
  pre.append(probe);
  const width = probe.getBoundingClientRect().width / 100;
  probe.remove();
  return width;
}
