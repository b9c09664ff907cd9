/** Where the extension's files and `trc` are. Tests are bundled into out/, one level below the extension. */

import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("..", import.meta.url));
export const EXAMPLES = fileURLToPath(new URL("../../../examples", import.meta.url));

/** Return how `trc` is started: the words in $TRC, as JSON, or the repository's own environment, or what is on the PATH. */
export function trc(): string[] {
  const given = process.env.TRC;
  if (given !== undefined) {
    return JSON.parse(given) as string[];
  }
  const ours = fileURLToPath(new URL("../../../.venv/bin/trc", import.meta.url));
  return [existsSync(ours) ? ours : "trc"];
}
