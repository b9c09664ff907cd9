/** The language server's clients: one for `.route` files, and one for policies in Python, which other servers look after too. */

import * as vscode from "vscode";
import {
  CloseAction,
  ErrorAction,
  LanguageClient,
  TransportKind,
  type DocumentSelector,
  type ErrorHandler,
  type LanguageClientOptions,
  type Middleware,
  type ServerCapabilities,
  type StaticFeature,
} from "vscode-languageclient/node";

import { command } from "./trc";

/** The commands that the server's lenses name, and ours that show what it answers. */
const LENSES: Readonly<Record<string, string>> = {
  "trc.runTest": "tokenrouter.runTest",
  "trc.explain": "tokenrouter.explain",
};

/** Return how `trc` is started in this window. */
export function trc(): string[] {
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
  return command(vscode.workspace.getConfiguration("tokenrouter").get("command"), folder);
}

const middleware: Middleware = {
  async provideCodeLenses(document, token, next) {
    const lenses = await next(document, token);
    for (const lens of lenses ?? []) {
      const ours = LENSES[lens.command?.command ?? ""];
      if (lens.command !== undefined && ours !== undefined) {
        lens.command = { ...lens.command, command: ours };
      }
    }
    return lenses;
  },
};

/** A server that ends again and again is left alone, with one message on how to go on. */
class Patience implements ErrorHandler {
  private ends = 0;

  error(): { action: ErrorAction } {
    return { action: ErrorAction.Continue };
  }

  closed(): { action: CloseAction; message?: string } {
    this.ends += 1;
    if (this.ends < 4) {
      return { action: CloseAction.Restart };
    }
    const message = "`trc lsp` ended four times; its output is in the panel `tokenrouter`. Then: «tokenrouter: Restart the Language Server».";
    return { action: CloseAction.DoNotRestart, message };
  }
}

/** Leaves of what the server can do only mistakes and fixes, so that the Python server stays the one for all else. */
class OnlyMistakes implements StaticFeature {
  preInitialize(capabilities: ServerCapabilities): void {
    // `resolvedTextDocumentSync` is what the client made of `textDocumentSync`; without it no text is sent.
    const kept = new Set(["textDocumentSync", "resolvedTextDocumentSync", "codeActionProvider", "positionEncoding"]);
    for (const name of Object.keys(capabilities)) {
      if (!kept.has(name)) {
        // eslint-disable-next-line @typescript-eslint/no-dynamic-delete -- what is left decides which providers are registered
        delete (capabilities as Record<string, unknown>)[name];
      }
    }
  }

  fillClientCapabilities(): void {
    // nothing to say
  }

  initialize(): void {
    // nothing to register
  }

  getState(): { kind: "static" } {
    return { kind: "static" };
  }

  clear(): void {
    // nothing is held
  }
}

function client(id: string, selector: DocumentSelector, output: vscode.OutputChannel): LanguageClient {
  const [program = "trc", ...first] = trc();
  const settings = vscode.workspace.getConfiguration("tokenrouter");
  const options: LanguageClientOptions = {
    documentSelector: selector,
    outputChannel: output,
    middleware,
    errorHandler: new Patience(),
    initializationOptions: { set: settings.get("set") ?? {}, quiet: true },
    synchronize: { fileEvents: vscode.workspace.createFileSystemWatcher("**/*.{route,safetensors}") },
  };
  const server = { command: program, args: [...first, "lsp"], transport: TransportKind.stdio };
  return new LanguageClient(id, "tokenrouter", server, options);
}

/** Return the client for `.route` files. */
export function routeClient(output: vscode.OutputChannel): LanguageClient {
  return client("tokenrouter", [{ language: "route" }], output);
}

/** Return the client for policies in Python. */
export function pythonClient(output: vscode.OutputChannel): LanguageClient {
  const made = client("tokenrouter.python", [{ language: "python", scheme: "file" }], output);
  made.registerFeature(new OnlyMistakes());
  return made;
}

/** Whether a text is a policy in Python. */
export function isPythonPolicy(document: vscode.TextDocument): boolean {
  return document.languageId === "python" && document.getText().includes("tokenrouter.lang");
}
