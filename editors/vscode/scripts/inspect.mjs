/** Look into a packaged extension: it must hold these files and no others, and its program must need nothing but `vscode`. */

import { builtinModules } from "node:module";
import { readFileSync, statSync } from "node:fs";
import { inflateRawSync } from "node:zlib";

const WANTED = [
  "[Content_Types].xml",
  "extension.vsixmanifest",
  "extension/LICENSE.txt",
  "extension/dist/extension.js",
  "extension/icon.png",
  "extension/language-configuration.json",
  "extension/package.json",
  "extension/readme.md",
  "extension/snippets/route.json",
  "extension/syntaxes/route.tmLanguage.json",
];
const MOST_BYTES = 1_000_000;

/** Return the files of a zip archive by name. */
function unzip(data) {
  const end = data.lastIndexOf(Buffer.from("PK\x05\x06", "latin1"));
  const files = new Map();
  let at = data.readUInt32LE(end + 16);
  for (let left = data.readUInt16LE(end + 10); left > 0; left -= 1) {
    const [method, packed] = [data.readUInt16LE(at + 10), data.readUInt32LE(at + 20)];
    const [name, extra, comment] = [28, 30, 32].map((offset) => data.readUInt16LE(at + offset));
    const local = data.readUInt32LE(at + 42);
    const start = local + 30 + data.readUInt16LE(local + 26) + data.readUInt16LE(local + 28);
    const raw = data.subarray(start, start + packed);
    files.set(data.toString("utf8", at + 46, at + 46 + name), method === 0 ? raw : inflateRawSync(raw));
    at += 46 + name + extra + comment;
  }
  return files;
}

/** Return what is wrong with a package. */
function wrong(path) {
  const files = unzip(readFileSync(path));
  const names = [...files.keys()].sort();
  const found = [
    ...WANTED.filter((name) => !files.has(name)).map((name) => `${name} is missing`),
    ...names.filter((name) => !WANTED.includes(name)).map((name) => `${name} is too much`),
  ];
  const program = files.get("extension/dist/extension.js")?.toString("utf8") ?? "";
  const needed = new Set([...program.matchAll(/\brequire\("([^"]+)"\)/g)].map(([, name]) => name.replace(/^node:/, "")));
  found.push(
    ...[...needed].filter((name) => name !== "vscode" && !builtinModules.includes(name)).map((name) => `the program needs ${name}`),
  );
  if (!needed.has("vscode")) {
    found.push("the program does not ask for vscode");
  }
  if (statSync(path).size > MOST_BYTES) {
    found.push(`${statSync(path).size} bytes are more than ${MOST_BYTES}`);
  }
  return found;
}

const [path] = process.argv.slice(2);
const found = wrong(path);
console.log(found.length === 0 ? `${path}: ${WANTED.length} files, ${statSync(path).size} bytes` : found.join("\n"));
process.exitCode = found.length === 0 ? 0 : 1;
