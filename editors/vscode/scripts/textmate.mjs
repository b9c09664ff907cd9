/** The grammar as VS Code runs it: vscode-textmate over oniguruma. As a program: the tokens of some files, as JSON.
 *
 *     node scripts/textmate.mjs FILE...    {FILE: [[[start, end, "scope scope ..."], ...] for each line]}
 */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const require = createRequire(import.meta.url);
const oniguruma = require("vscode-oniguruma");
const textmate = require("vscode-textmate");

/** Return the grammar in a file. */
export async function load(path) {
  await oniguruma.loadWASM(readFileSync(require.resolve("vscode-oniguruma/release/onig.wasm")).buffer);
  const registry = new textmate.Registry({
    onigLib: Promise.resolve({
      createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
      createOnigString: (text) => new oniguruma.OnigString(text),
    }),
    loadGrammar: () => Promise.resolve(textmate.parseRawGrammar(readFileSync(path, "utf8"), path)),
  });
  return registry.loadGrammar("source.route");
}

/** Return the tokens of a text, line by line, without the scope of the whole file. */
export function tokens(grammar, text) {
  let state = textmate.INITIAL;
  return text.split(/\r?\n/).map((line) => {
    const found = grammar.tokenizeLine(line, state);
    state = found.ruleStack;
    return found.tokens
      .filter((token) => token.startIndex < line.length)
      .map((token) => [token.startIndex, Math.min(token.endIndex, line.length), token.scopes.slice(1).join(" ")]);
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const grammar = await load(fileURLToPath(new URL("../syntaxes/route.tmLanguage.json", import.meta.url)));
  const files = process.argv.slice(2);
  const found = Object.fromEntries(files.map((file) => [file, tokens(grammar, readFileSync(file, "utf8"))]));
  process.stdout.write(JSON.stringify(found));
}
