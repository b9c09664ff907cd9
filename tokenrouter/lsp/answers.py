"""Which request is answered by which function: all that the server says it can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from lsprotocol import types as t

from tokenrouter.lsp import change, colour, complete, navigate, outline, tell, verbs
from tokenrouter.lsp.book import Document, path_of
from tokenrouter.lsp.navigate import RenameError
from tokenrouter.lsp.server import Server

R = TypeVar("R")


class _Whole(Protocol):
    """The parameters of a request about a file."""

    text_document: t.TextDocumentIdentifier


class _Placed(Protocol):
    """The parameters of a request about a place."""

    text_document: t.TextDocumentIdentifier
    position: t.Position


def _at(ls: Server, params: _Placed, ask: Callable[[Document, int], R]) -> R | None:
    """Return the answer for a place in a `.route` document; None where there is no such document."""
    document = ls.route(params.text_document.uri)
    return None if document is None else ask(document, document.places.offset(params.position))


def _of(ls: Server, params: _Whole, ask: Callable[[Document], list[R]]) -> list[R]:
    """Return the answer for a `.route` document; nothing where there is no such document."""
    document = ls.route(params.text_document.uri)
    return [] if document is None else ask(document)


# Documents


def initialize(ls: Server, params: t.InitializeParams) -> None:
    """Take over the settings and the folders of the workspace."""
    given = params.initialization_options
    options: dict[str, Any] = given if isinstance(given, dict) else {}
    ls.quiet = options.get("quiet") is True
    sets = options.get("set")
    if isinstance(sets, dict):
        ls.book.sets = {str(name): _setting(value) for name, value in sets.items()}
    folders = [folder.uri for folder in params.workspace_folders or ()]
    if not folders and params.root_uri:
        folders = [params.root_uri]
    ls.book.folders = [path_of(uri) for uri in folders]


def _setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def initialized(ls: Server, params: t.InitializedParams) -> None:
    """Note the encoding that was agreed on."""
    encoding = ls.server_capabilities.position_encoding
    ls.book.encoding = str(getattr(encoding, "value", encoding) or "utf-16")


def opened(ls: Server, params: t.DidOpenTextDocumentParams) -> None:
    """Take over a text and check it."""
    document = params.text_document
    ls.book.put(document.uri, document.text, document.version)
    ls.later(at_once=True)
    ls.solve()


def changed(ls: Server, params: t.DidChangeTextDocumentParams) -> None:
    """Take over a text, and check it once it rests."""
    if params.content_changes:
        document = params.text_document
        ls.book.put(document.uri, params.content_changes[-1].text, document.version)
    ls.later()


def saved(ls: Server, params: t.DidSaveTextDocumentParams) -> None:
    """Look at every text again: files of heads may be others now."""
    ls.book.forget()
    ls.later()
    ls.solve()


def watched(ls: Server, params: t.DidChangeWatchedFilesParams) -> None:
    """Look at every text again: a file behind one is another now."""
    ls.book.forget()
    ls.later()
    ls.solve()


def closed(ls: Server, params: t.DidCloseTextDocumentParams) -> None:
    """Give a text back to the disk, and take its diagnostics away."""
    uri = params.text_document.uri
    ls.drop(path_of(uri))
    ls.memory.drop(path_of(uri))
    ls.book.close(uri)
    ls.coloured.pop(uri, None)
    ls.solver.drop(path_of(uri))
    ls.text_document_publish_diagnostics(t.PublishDiagnosticsParams(uri, []))
    ls.later()


# Reading


def hover(ls: Server, params: t.HoverParams) -> t.Hover | None:
    """Tell of a place."""
    return _at(ls, params, lambda d, o: tell.hover(d, ls.found(d), o))


def completion(ls: Server, params: t.CompletionParams) -> list[t.CompletionItem]:
    """Offer what can stand here."""
    return _at(ls, params, complete.complete) or []


def signature(ls: Server, params: t.SignatureHelpParams) -> t.SignatureHelp | None:
    """Tell how a call is written."""
    return _at(ls, params, tell.signature)


def definition(ls: Server, params: t.DefinitionParams) -> t.Location | None:
    """Find a declaration."""
    return _at(ls, params, lambda d, o: navigate.definition(ls.book, d, o))


def references(ls: Server, params: t.ReferenceParams) -> list[t.Location]:
    """Find the uses of a name."""
    declaration = params.context.include_declaration

    def ask(document: Document, offset: int) -> list[t.Location]:
        return navigate.references(ls.book, document, offset, declaration=declaration)

    return _at(ls, params, ask) or []


def highlight(ls: Server, params: t.DocumentHighlightParams) -> list[t.DocumentHighlight]:
    """Find the uses of a name in one file."""
    return _at(ls, params, navigate.highlights) or []


def symbols(ls: Server, params: t.DocumentSymbolParams) -> list[t.DocumentSymbol]:
    """Outline a file."""
    return _of(ls, params, outline.symbols)


def workspace_symbols(ls: Server, params: t.WorkspaceSymbolParams) -> list[t.WorkspaceSymbol]:
    """Find declarations by name."""
    return outline.workspace_symbols(ls.book, params.query)


def tokens(ls: Server, params: t.SemanticTokensParams) -> t.SemanticTokens:
    """Colour a file."""
    data = _of(ls, params, colour.tokens)
    return t.SemanticTokens(data, result_id=_keep(ls, params.text_document.uri, data))


def tokens_changed(
    ls: Server, params: t.SemanticTokensDeltaParams
) -> t.SemanticTokens | t.SemanticTokensDelta:
    """Tell which colours of a file are others now."""
    uri = params.text_document.uri
    name, before = ls.coloured.get(uri, ("", []))
    data = _of(ls, params, colour.tokens)
    now = _keep(ls, uri, data)
    if name != params.previous_result_id:
        return t.SemanticTokens(data, result_id=now)
    return t.SemanticTokensDelta(colour.changed(before, data), result_id=now)


def _keep(ls: Server, uri: str, data: list[int]) -> str:
    """Keep the tokens that an editor has of an open file, and return their name."""
    name = str(int(ls.coloured.get(uri, ("0", []))[0]) + 1)
    if path_of(uri) in ls.book.opened:
        ls.coloured[uri] = (name, data)
    return name


def tokens_of(ls: Server, params: t.SemanticTokensRangeParams) -> t.SemanticTokens:
    """Colour some lines."""
    first, last = params.range.start.line, params.range.end.line
    return t.SemanticTokens(_of(ls, params, lambda d: colour.tokens(d, first, last)))


def folds(ls: Server, params: t.FoldingRangeParams) -> list[t.FoldingRange]:
    """Tell what can be folded."""
    return _of(ls, params, outline.folds)


def links(ls: Server, params: t.DocumentLinkParams) -> list[t.DocumentLink]:
    """Tell which strings are files."""
    return _of(ls, params, outline.links)


def hints(ls: Server, params: t.InlayHintParams) -> list[t.InlayHint]:
    """Tell units, settings and windows."""

    def ask(document: Document) -> list[t.InlayHint]:
        solved = ls.solver.hints(document.path, document.resolved.policies)
        return tell.hints(document, ls.book.sets, params.range, solved)

    return _of(ls, params, ask)


def lenses(ls: Server, params: t.CodeLensParams) -> list[t.CodeLens]:
    """Offer to run tests and to explain policies."""
    return _of(ls, params, outline.lenses)


# Writing


def formatting(ls: Server, params: t.DocumentFormattingParams) -> list[t.TextEdit]:
    """Lay a file out."""
    return _of(ls, params, change.laid_out)


def formatting_of(ls: Server, params: t.DocumentRangeFormattingParams) -> list[t.TextEdit]:
    """Lay some lines out."""
    return _of(ls, params, lambda d: change.laid_out(d, params.range))


def actions(ls: Server, params: t.CodeActionParams) -> list[t.CodeAction]:
    """Offer fixes and rewrites."""
    document = ls.book.document(params.text_document.uri)
    if document is None:
        return []
    return change.actions(ls.book, document, ls.found(document), params)


def prepare(ls: Server, params: t.PrepareRenameParams) -> t.PrepareRenamePlaceholder | None:
    """Tell whether a name can be given another."""

    def ask(document: Document, offset: int) -> t.PrepareRenamePlaceholder | None:
        use = navigate.renamable(document, offset)
        if use is None:
            return None
        place = document.places.range(use.token.start, use.token.end)
        return t.PrepareRenamePlaceholder(place, use.token.text)

    return _at(ls, params, ask)


def rename(ls: Server, params: t.RenameParams) -> t.WorkspaceEdit | None:
    """Give a name another; where that cannot be, say why."""

    def ask(document: Document, offset: int) -> t.WorkspaceEdit:
        return navigate.rename(ls.book, document, offset, params.new_name)

    try:
        return _at(ls, params, ask)
    except RenameError as error:
        ls.say(str(error), ok=False)
        return None


# Commands


def run_test(ls: Server, uri: str = "", name: str = "") -> str:
    """Run a test."""
    return _verb(ls, uri, name, verbs.run_test)


def explain(ls: Server, uri: str = "", name: str = "") -> str:
    """Tell what the compiler makes of a policy."""
    return _verb(ls, uri, name, verbs.explain)


def _verb(
    ls: Server, uri: str, name: str, verb: Callable[[Document, str], tuple[bool, str]]
) -> str:
    document = ls.route(uri) if uri else None
    missing = (
        f"cannot read {uri}" if uri else "this takes the URI of a policy file and a name in it"
    )
    ok, text = (False, missing) if document is None else verb(document, name)
    if not ls.quiet:
        ls.say(text, ok=ok)
    return text


_KINDS = [
    t.CodeActionKind.QuickFix,
    t.CodeActionKind.RefactorRewrite,
    t.CodeActionKind.SourceFixAll,
]
ANSWERS: list[tuple[str, Any, Any]] = [
    (t.INITIALIZE, None, initialize),
    (t.INITIALIZED, None, initialized),
    (t.TEXT_DOCUMENT_DID_OPEN, None, opened),
    (t.TEXT_DOCUMENT_DID_CHANGE, None, changed),
    (t.TEXT_DOCUMENT_DID_SAVE, None, saved),
    (t.TEXT_DOCUMENT_DID_CLOSE, None, closed),
    (t.WORKSPACE_DID_CHANGE_WATCHED_FILES, None, watched),
    (t.TEXT_DOCUMENT_HOVER, None, hover),
    (
        t.TEXT_DOCUMENT_COMPLETION,
        t.CompletionOptions(trigger_characters=list(' {(."/:')),
        completion,
    ),
    (
        t.TEXT_DOCUMENT_SIGNATURE_HELP,
        t.SignatureHelpOptions(trigger_characters=["(", ","]),
        signature,
    ),
    (t.TEXT_DOCUMENT_DEFINITION, None, definition),
    (t.TEXT_DOCUMENT_REFERENCES, None, references),
    (t.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT, None, highlight),
    (t.TEXT_DOCUMENT_DOCUMENT_SYMBOL, None, symbols),
    (t.WORKSPACE_SYMBOL, None, workspace_symbols),
    (t.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, colour.LEGEND, tokens),
    (t.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL_DELTA, colour.LEGEND, tokens_changed),
    (t.TEXT_DOCUMENT_SEMANTIC_TOKENS_RANGE, colour.LEGEND, tokens_of),
    (t.TEXT_DOCUMENT_FOLDING_RANGE, None, folds),
    (t.TEXT_DOCUMENT_DOCUMENT_LINK, None, links),
    (t.TEXT_DOCUMENT_INLAY_HINT, None, hints),
    (t.TEXT_DOCUMENT_CODE_LENS, None, lenses),
    (t.TEXT_DOCUMENT_FORMATTING, None, formatting),
    (t.TEXT_DOCUMENT_RANGE_FORMATTING, None, formatting_of),
    (t.TEXT_DOCUMENT_CODE_ACTION, t.CodeActionOptions(code_action_kinds=_KINDS), actions),
    (t.TEXT_DOCUMENT_PREPARE_RENAME, None, prepare),
    (t.TEXT_DOCUMENT_RENAME, t.RenameOptions(prepare_provider=True), rename),
]


def make() -> Server:
    """Return a server that answers everything."""
    server = Server()
    for method, options, answer in ANSWERS:
        server.feature(method, options)(answer)
    server.command(outline.RUN_TEST)(run_test)
    server.command(outline.EXPLAIN)(explain)
    return server
