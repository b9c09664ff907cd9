/** What package.json promises is there. */

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import test from "node:test";

import { ROOT } from "./where";

interface Manifest {
  main: string;
  icon: string;
  contributes: {
    languages: { configuration: string }[];
    grammars: { path: string }[];
    snippets: { path: string }[];
    commands: { command: string }[];
    configuration: { properties: Record<string, unknown> };
    menus: Record<string, { command: string }[]>;
    semanticTokenScopes: { language: string; scopes: Record<string, string[]> }[];
  };
}

const read = (name: string) => readFileSync(path.join(ROOT, name), "utf8");
const manifest = JSON.parse(read("package.json")) as Manifest;
const { contributes } = manifest;

test("every file that the manifest names is there", () => {
  const named = [
    manifest.main,
    manifest.icon,
    ...contributes.languages.map((language) => language.configuration),
    ...contributes.grammars.map((grammar) => grammar.path),
    ...contributes.snippets.map((snippets) => snippets.path),
  ];
  assert.deepEqual(named.filter((name) => !existsSync(path.join(ROOT, name))), []);
});

test("menus name commands that there are, and the code reads no setting that there is not", () => {
  const commands = new Set(contributes.commands.map(({ command }) => command));
  const listed = Object.values(contributes.menus).flat().map(({ command }) => command);
  assert.deepEqual(listed.filter((command) => !commands.has(command)), []);
  const code = ["client", "extension", "graph"].map((name) => read(`src/${name}.ts`)).join("\n");
  const asked = [...code.matchAll(/(?:settings|getConfiguration\("tokenrouter"\))\.get\("(\w+)"\)/g)].map(([, name]) => `tokenrouter.${name ?? ""}`);
  assert.ok(asked.length >= 3);
  assert.deepEqual(asked.filter((name) => !(name in contributes.configuration.properties)), []);
});

test("every pattern of the language configuration is one", () => {
  const configuration = JSON.parse(read("language-configuration.json")) as {
    wordPattern: string;
    indentationRules: { increaseIndentPattern: string; decreaseIndentPattern: string };
  };
  const { increaseIndentPattern, decreaseIndentPattern } = configuration.indentationRules;
  assert.match("  at small {", new RegExp(increaseIndentPattern));
  assert.match("policy p {  # why", new RegExp(increaseIndentPattern));
  assert.doesNotMatch("model a { use \"b\" }", new RegExp(increaseIndentPattern));
  assert.match("  }", new RegExp(decreaseIndentPattern));
  assert.deepEqual("at small_1 {".match(new RegExp(configuration.wordPattern, "g")), ["at", "small_1"]);
});
