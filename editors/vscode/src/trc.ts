/** Running `trc`: how it is started, and what it says. Knows nothing of the editor. */

import { execFile, type ExecFileException } from "node:child_process";

/** What a run of `trc` said. */
export interface Said {
  ok: boolean;
  out: string;
  err: string;
}

/** One policy of a file, drawn. */
export interface Drawn {
  policy: string;
  svg: string;
}

/** `trc` could not be started, or said what no `trc` says; the message tells how to mend it. */
export class TrcError extends Error {}

const MOST_OUTPUT = 64 * 1024 * 1024;
const MOST_SECONDS = 120;

/** Return a command as the settings hold it, with the folder of the window in its place. */
export function command(setting: unknown, folder: string | undefined): string[] {
  const words: string[] = [];
  if (Array.isArray(setting)) {
    words.push(...setting.filter((word): word is string => typeof word === "string" && word !== ""));
  }
  const made = words.length > 0 ? words : ["trc"];
  return made.map((word) => word.replaceAll("${workspaceFolder}", folder ?? "."));
}

/** Run a verb to its end. */
export function run(trc: readonly string[], args: readonly string[], cwd: string): Promise<Said> {
  const [program = "trc", ...first] = trc;
  const options = { cwd, maxBuffer: MOST_OUTPUT, timeout: MOST_SECONDS * 1000 };
  return new Promise((resolve, reject) => {
    execFile(program, [...first, ...args], options, (error, out, err) => {
      if (error === null) {
        resolve({ ok: true, out, err });
      } else if (typeof error.code === "number") {
        resolve({ ok: false, out, err });
      } else {
        reject(new TrcError(unstarted(program, error)));
      }
    });
  });
}

function unstarted(program: string, error: ExecFileException): string {
  if (error.killed === true) {
    return `\`${program}\` was still not done after ${MOST_SECONDS} s`;
  }
  const why = error.code === "ENOENT" ? "there is no such program" : error.message;
  return `\`${program}\` could not be started: ${why}. Install it (\`pip install 'tokenrouter[lsp]'\`), or say in the setting \`tokenrouter.command\` where it is.`;
}

/** Return every policy of a file that lies on the disk, drawn. Mistakes in it are told as `trc check` tells them. */
export async function graphs(trc: readonly string[], file: string, cwd: string): Promise<Drawn[] | string> {
  const said = await run(trc, ["graph", "--format", "json", file], cwd);
  if (!said.ok) {
    return said.err.trim();
  }
  let found: unknown;
  try {
    found = JSON.parse(said.out);
  } catch {
    throw new TrcError("`trc graph` did not answer with graphs: is this `trc` older than the extension?");
  }
  return (found as Drawn[]).map(({ policy, svg }) => ({ policy, svg }));
}
