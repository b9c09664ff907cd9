/** The page of the graph view: HTML made of what `trc graph` drew. No script runs in it, and nothing is fetched. */

import type { Drawn } from "./trc";

/** What the view shows: the newest graphs that could be drawn, and why there are no newer ones. */
export interface Shown {
  file: string;
  drawn: readonly Drawn[];
  problem?: string;
}

const STYLE = `
body { margin: 0; padding: 12px 16px; color: var(--vscode-foreground); font: var(--vscode-font-size, 13px) var(--vscode-font-family, sans-serif); }
h1 { font-size: 1.1em; font-weight: 600; margin: 0 0 8px; }
pre { margin: 0 0 12px; padding: 8px 10px; white-space: pre-wrap; font: var(--vscode-editor-font-size, 12px) var(--vscode-editor-font-family, monospace);
  border-left: 3px solid var(--vscode-editorWarning-foreground, #b80); background: var(--vscode-textCodeBlock-background, transparent); }
figure { margin: 0 0 20px; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; }
figure svg .p { fill: transparent; }
figure svg text { fill: var(--vscode-foreground); }
figure svg rect { fill: var(--vscode-editorWidget-background, transparent); stroke: var(--vscode-charts-blue, #48c); }
figure svg path { stroke: var(--vscode-charts-foreground, currentColor); }
figure svg .h { fill: var(--vscode-charts-foreground, currentColor); stroke: none; }
figure svg circle { fill: var(--vscode-editor-background, #fff); stroke: var(--vscode-charts-foreground, currentColor); }
.old figure { opacity: 0.45; }
.none { opacity: 0.75; }
`;

/** Return the page. */
export function page(shown: Shown): string {
  const old = shown.problem !== undefined && shown.drawn.length > 0;
  const parts = [`<h1>${escaped(shown.file)}</h1>`];
  if (shown.problem !== undefined) {
    const head = old ? "The graph is that of the last text without mistakes.\n\n" : "";
    parts.push(`<pre role="status">${escaped(head + shown.problem)}</pre>`);
  } else if (shown.drawn.length === 0) {
    parts.push(`<p class="none">There is no policy in this file.</p>`);
  }
  for (const { policy, svg } of shown.drawn) {
    parts.push(`<figure role="img" aria-label="transition graph of the policy ${escaped(policy)}">${bare(svg)}</figure>`);
  }
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Transition graph</title>
<style>${STYLE}</style>
</head>
<body${old ? ' class="old"' : ""}>
${parts.join("\n")}
</body>
</html>
`;
}

/** Return a picture whose own colours are not those of the window's theme without them; shape and letters stay. */
function bare(svg: string): string {
  return svg.replace(/@media\(prefers-color-scheme:dark\)\{(?:[^{}]*\{[^{}]*\})*\}/, "");
}

/** Return text as HTML shows it. */
export function escaped(text: string): string {
  const signs: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  return text.replace(/[&<>"']/g, (sign) => signs[sign] ?? sign);
}
