/** The grammar's tokens of some policies, sound and broken, are those that were looked at and kept. */

import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import test from "node:test";

import { load, tokens, type Token } from "../scripts/textmate.mjs";
import { ROOT } from "./where";

const FOLDER = path.join(ROOT, "test/grammar");
const grammar = await load(path.join(ROOT, "syntaxes/route.tmLanguage.json"));

/** Return lines, and under each its tokens with their scopes; white space and bare signs are left out. */
function told(text: string): string {
  const lines = text.split("\n");
  const shown = tokens(grammar, text).map((found: Token[], number: number) => {
    const line = lines[number] ?? "";
    const below = found
      .filter(([start, end, scopes]) => scopes !== "" && line.slice(start, end).trim() !== "")
      .map(([start, end, scopes]) => `    ${line.slice(start, end).trim()}  ${scopes.replaceAll(".route", "")}`);
    return [`>${line}`, ...below].join("\n");
  });
  return shown.join("\n") + "\n";
}

for (const name of readdirSync(FOLDER).filter((file) => file.endsWith(".route"))) {
  test(`${name} is coloured as it was`, () => {
    const snapshot = path.join(FOLDER, name.replace(".route", ".snap"));
    const now = told(readFileSync(path.join(FOLDER, name), "utf8"));
    if (process.env.UPDATE_SNAPSHOTS === "1") {
      writeFileSync(snapshot, now);
    }
    assert.ok(existsSync(snapshot), "no snapshot: `npm run snapshots` writes it");
    assert.equal(now, readFileSync(snapshot, "utf8"));
  });
}

test("a string that is not closed ends with its line", () => {
  const [, second] = tokens(grammar, 'model a { use "x\nmodel b { use "y" }');
  assert.deepEqual(second?.[0], [0, 5, "keyword.control.declaration.route"]);
});

test("a block that is not closed ends where the next declaration begins", () => {
  const [, second] = tokens(grammar, "model a\npolicy p {");
  assert.deepEqual(second?.[0], [0, 6, "keyword.control.declaration.route"]);
});
