/** Bundle the extension and its tests. `vscode` is the editor's own, and nothing else is left outside. */

import { copyFileSync, readdirSync, rmSync } from "node:fs";
import { build } from "esbuild";

const root = new URL("..", import.meta.url).pathname;
const common = { absWorkingDir: root, bundle: true, platform: "node", target: "node18", logLevel: "warning" };

rmSync(`${root}/dist`, { recursive: true, force: true });
rmSync(`${root}/out`, { recursive: true, force: true });
await build({
  ...common,
  entryPoints: ["src/extension.ts"],
  outfile: "dist/extension.js",
  format: "cjs",
  external: ["vscode"],
  minify: true,
  legalComments: "eof",
});
await build({
  ...common,
  entryPoints: readdirSync(`${root}/test`)
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => `test/${name}`),
  outdir: "out",
  outExtension: { ".js": ".mjs" },
  format: "esm",
  packages: "external",
});
copyFileSync(`${root}/../../LICENSE`, `${root}/LICENSE`);
