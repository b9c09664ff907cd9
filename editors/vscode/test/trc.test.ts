/** The extension asks a real `trc`. */

import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "node:test";

import { command, graphs, run, TrcError } from "../src/trc";
import { EXAMPLES, trc } from "./where";

const folder = mkdtempSync(path.join(tmpdir(), "tokenrouter-"));

test("the setting says how trc is started, with the window's folder in its place", () => {
  assert.deepEqual(command(undefined, undefined), ["trc"]);
  assert.deepEqual(command([], "/w"), ["trc"]);
  assert.deepEqual(command(["", 3, "x"], "/w"), ["x"]);
  assert.deepEqual(command(["${workspaceFolder}/.venv/bin/trc"], "/w"), ["/w/.venv/bin/trc"]);
});

test("the policies of a file are drawn", async () => {
  const drawn = await graphs(trc(), path.join(EXAMPLES, "r_stitch.route"), EXAMPLES);
  assert.ok(Array.isArray(drawn));
  assert.deepEqual(drawn.map(({ policy }) => policy), ["r_stitch"]);
  assert.match(drawn[0]?.svg ?? "", /^<svg [\s\S]*rule 0: entropy_norm &gt; tau[\s\S]*<\/svg>\n$/);
});

test("mistakes of a policy are told as trc check tells them", async () => {
  const file = path.join(folder, "broken.route");
  writeFileSync(file, 'route 1\nmodel small { use "s" }\npolicy p { start smal }\n');
  const told = await graphs(trc(), file, folder);
  assert.ok(typeof told === "string");
  assert.match(told, /did you mean `small`/);
});

test("a check of a sound file says nothing and of a broken one where the mistake is", async () => {
  const sound = await run(trc(), ["check", "demo.route"], EXAMPLES);
  assert.deepEqual(sound, { ok: true, out: "", err: "" });
  const broken = await run(trc(), ["check", "broken.route"], folder);
  assert.equal(broken.ok, false);
  assert.match(broken.err + broken.out, /broken\.route:3:/);
});

test("a trc that is not there is told in one line with the setting to change", async () => {
  await assert.rejects(run(["no-such-trc"], [], folder), (error: Error) => {
    assert.ok(error instanceof TrcError);
    assert.match(error.message, /^`no-such-trc` could not be started: there is no such program.*tokenrouter\.command/);
    return true;
  });
});

test("a program that is no trc, or an old one, is told", async () => {
  await assert.rejects(graphs([process.execPath, "-e", "console.log(1, 2)", "--"], "x.route", folder), /older than the extension/);
});
