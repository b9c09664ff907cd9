/** What VS Code starts: the clients, the commands, the graph view. All knowledge of policies is in `trc`. */

import * as path from "node:path";
import * as vscode from "vscode";
import { ExecuteCommandRequest, type LanguageClient } from "vscode-languageclient/node";

import { isPythonPolicy, pythonClient, routeClient, trc } from "./client";
import { GraphView } from "./graph";
import { run } from "./trc";

/** What the extension holds while it is on. */
class Session implements vscode.Disposable {
  readonly output = vscode.window.createOutputChannel("tokenrouter");
  readonly graph = new GraphView();
  private route: LanguageClient | undefined;
  private python: LanguageClient | undefined;

  /** Start the servers that the open files need. */
  async serve(): Promise<void> {
    if (!vscode.workspace.isTrusted) {
      return;
    }
    for (const document of vscode.workspace.textDocuments) {
      await this.opened(document);
    }
  }

  /** Start the server that a file needs, where it is not running. */
  async opened(document: vscode.TextDocument): Promise<void> {
    if (!vscode.workspace.isTrusted) {
      return;
    }
    if (document.languageId === "route" && this.route === undefined) {
      this.route = routeClient(this.output);
      await this.begin(this.route);
    }
    const wanted = vscode.workspace.getConfiguration("tokenrouter").get("python") !== false;
    if (wanted && this.python === undefined && isPythonPolicy(document)) {
      this.python = pythonClient(this.output);
      await this.begin(this.python);
    }
  }

  /** Stop the servers, and start those that are needed anew, with the settings as they are now. */
  async restart(): Promise<void> {
    const running = [this.route, this.python];
    this.route = this.python = undefined;
    await Promise.all(running.map((client) => stopped(client)));
    await this.serve();
  }

  /** Ask the server to carry out a verb, and show what it says. */
  async ask(verb: string, uri: string, name: string): Promise<void> {
    if (this.route === undefined) {
      await this.serve();
    }
    if (this.route?.isRunning() !== true) {
      this.refuse("`trc lsp` is not running");
      return;
    }
    const told: unknown = await this.route.sendRequest(ExecuteCommandRequest.type, { command: verb, arguments: [uri, name] });
    this.tell(String(told));
  }

  /** Show a text in the output panel. */
  tell(text: string): void {
    this.output.appendLine(text.trimEnd() + "\n");
    this.output.show(true);
  }

  /** Say why something was not done. */
  refuse(text: string): void {
    void vscode.window.showErrorMessage(text);
  }

  /** Stop everything. */
  async end(): Promise<void> {
    await Promise.all([stopped(this.route), stopped(this.python)]);
  }

  dispose(): void {
    this.graph.dispose();
    this.output.dispose();
  }

  private async begin(client: LanguageClient): Promise<void> {
    try {
      await client.start();
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      this.refuse(
        `\`${trc().join(" ")} lsp\` could not be started (${why}). Install it (\`pip install 'tokenrouter[lsp]'\`), or say in the setting \`tokenrouter.command\` where it is.`,
      );
    }
  }
}

async function stopped(client: LanguageClient | undefined): Promise<void> {
  if (client?.isRunning() === true) {
    await client.stop();
  }
}

/** Return the policy file that the user is in, saved; undefined, with a message, where there is none. */
async function current(session: Session): Promise<vscode.TextDocument | undefined> {
  const document = vscode.window.activeTextEditor?.document;
  if (document === undefined || !(document.languageId === "route" || isPythonPolicy(document))) {
    session.refuse("open a policy first: a `.route` file, or a Python file that mentions `tokenrouter.lang`");
    return undefined;
  }
  if (document.uri.scheme !== "file" || (document.isDirty && !(await document.save()))) {
    session.refuse("save the file first: `trc` reads it from the disk");
    return undefined;
  }
  return document;
}

/** Say all that `trc check` says of the file at hand. */
async function check(session: Session): Promise<void> {
  const document = await current(session);
  if (document === undefined) {
    return;
  }
  const file = document.uri.fsPath;
  const said = await run(trc(), ["check", path.basename(file)], path.dirname(file));
  const text = (said.err + said.out).trim();
  session.tell(text === "" ? `${path.basename(file)}: no mistakes` : text);
}

/** Let the user pick a test or a policy of the file at hand, as its lenses name them, and ask the server. */
async function pick(session: Session, verb: string, ours: string, place: string): Promise<void> {
  const document = vscode.window.activeTextEditor?.document;
  if (document?.languageId !== "route") {
    session.refuse("open a `.route` file first");
    return;
  }
  await session.opened(document);
  const lenses = await vscode.commands.executeCommand<vscode.CodeLens[]>("vscode.executeCodeLensProvider", document.uri);
  const names = lenses.flatMap((lens) => (lens.command?.command === ours ? [String(lens.command.arguments?.[1])] : []));
  if (names.length === 0) {
    session.refuse(`there is no ${place} in this file`);
    return;
  }
  const name = names.length === 1 ? names[0] : await vscode.window.showQuickPick(names, { placeHolder: `which ${place}?` });
  if (name !== undefined) {
    await session.ask(verb, document.uri.toString(), name);
  }
}

let session: Session | undefined;

/** Start. */
export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const made = new Session();
  session = made;
  const told = (action: () => Promise<void>) => async () => {
    try {
      await action();
    } catch (error) {
      made.refuse(error instanceof Error ? error.message : String(error));
    }
  };
  const asked = (verb: string, ours: string, place: string) => (uri?: unknown, name?: unknown) => {
    const named = typeof uri === "string" && typeof name === "string";
    return told(() => (named ? made.ask(verb, uri, name) : pick(made, verb, ours, place)))();
  };
  const graph = async () => {
    const document = await current(made);
    if (document !== undefined) {
      await made.graph.show(document);
    }
  };
  const command = (name: string, action: (...args: unknown[]) => Promise<void>) =>
    vscode.commands.registerCommand(`tokenrouter.${name}`, action);
  context.subscriptions.push(
    made,
    command("check", told(() => check(made))),
    command("graph", told(graph)),
    command("restart", told(() => made.restart())),
    command("runTest", asked("trc.runTest", "tokenrouter.runTest", "test")),
    command("explain", asked("trc.explain", "tokenrouter.explain", "policy")),
    vscode.workspace.onDidOpenTextDocument((document) => void made.opened(document)),
    vscode.workspace.onDidSaveTextDocument((document) => {
      void made.opened(document);
      void made.graph.saved(document);
    }),
    vscode.workspace.onDidGrantWorkspaceTrust(() => void made.serve()),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration("tokenrouter")) {
        void told(() => made.restart())();
      }
    }),
  );
  await made.serve();
}

/** Stop. */
export async function deactivate(): Promise<void> {
  await session?.end();
  session = undefined;
}
