import type { IGrammar } from "vscode-textmate";

/** Start, end and the scopes, parted by spaces. */
export type Token = [number, number, string];
export function load(path: string): Promise<IGrammar>;
export function tokens(grammar: IGrammar, text: string): Token[][];
