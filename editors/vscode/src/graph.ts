/** The graph view: a panel beside the text, drawn again whenever a policy file is saved. */

import * as path from "node:path";
import * as vscode from "vscode";

import { trc } from "./client";
import { page, type Shown } from "./page";
import { graphs } from "./trc";

/** The view; there is one, and it follows the file that it was last asked to show. */
export class GraphView implements vscode.Disposable {
  private panel: vscode.WebviewPanel | undefined;
  private shown: (Shown & { uri: vscode.Uri }) | undefined;
  private turn = 0; // of drawing: an answer that comes after a later question is thrown away

  /** Show a file's graphs beside it. */
  async show(document: vscode.TextDocument): Promise<void> {
    if (this.panel === undefined) {
      const place = { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true };
      this.panel = vscode.window.createWebviewPanel("tokenrouter.graph", "Transition graph", place, {
        enableScripts: false,
        localResourceRoots: [],
      });
      this.panel.onDidDispose(() => {
        this.panel = this.shown = undefined;
      });
    } else {
      this.panel.reveal(undefined, true);
    }
    if (this.shown?.uri.toString() !== document.uri.toString()) {
      this.shown = { uri: document.uri, file: path.basename(document.uri.fsPath), drawn: [] };
    }
    await this.draw();
  }

  /** Draw again where the view shows this file, or one that may import it. */
  async saved(document: vscode.TextDocument): Promise<void> {
    if (this.panel !== undefined && (document.languageId === "route" || this.shows(document))) {
      await this.draw();
    }
  }

  /** Close the view. */
  dispose(): void {
    this.panel?.dispose();
  }

  private shows(document: vscode.TextDocument): boolean {
    return this.shown?.uri.toString() === document.uri.toString();
  }

  private async draw(): Promise<void> {
    const { panel, shown } = this;
    if (panel === undefined || shown === undefined) {
      return;
    }
    const turn = ++this.turn;
    const file = shown.uri.fsPath;
    let next: Shown;
    try {
      const found = await graphs(trc(), path.basename(file), path.dirname(file));
      next = typeof found === "string" ? { ...shown, problem: found } : { file: shown.file, drawn: found };
    } catch (error) {
      next = { ...shown, problem: error instanceof Error ? error.message : String(error) };
    }
    if (turn !== this.turn || this.panel !== panel) {
      return;
    }
    this.shown = { ...next, uri: shown.uri };
    panel.title = `Graph: ${shown.file}`;
    panel.webview.html = page(next);
  }
}
