"""The server: its open documents, and when diagnostics are sent.

One check runs at a time, in a thread, so that requests are answered meanwhile. A change starts it again after a moment of
rest; what was found in a text that has changed since is thrown away, so diagnostics always carry the version that they are of.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from functools import partial

from lsprotocol import types as t
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from tokenrouter.diagnostics import Diagnostic
from tokenrouter.lsp import problems
from tokenrouter.lsp.book import Book, Document
from tokenrouter.lsp.memory import Memory
from tokenrouter.lsp.windows import Solver, near
from tokenrouter.lsp.wire import Protocol
from tokenrouter.version import __version__

REST = 0.12  # seconds without a change before a check begins
SWEEP = (
    300  # changes after which what refers to itself is looked for, once there is nothing else to do
)


class Server(LanguageServer):
    """The language server and its open documents."""

    def __init__(self) -> None:
        sync = t.TextDocumentSyncKind.Full
        super().__init__("trc", __version__, text_document_sync_kind=sync, protocol_cls=Protocol)
        self.book = Book()
        self.memory = Memory()
        self.rest = REST
        self.quiet = False  # whether verbs only answer, and the editor shows what they say
        self.waiting: dict[str, asyncio.Task[None]] = {}  # by path: checks that have not begun
        self.checks: set[asyncio.Task[None]] = set()
        self.checking = asyncio.Lock()
        self.changes = 0  # since the last sweep
        self.solver = Solver()
        self.coloured: dict[
            str, tuple[str, list[int]]
        ] = {}  # by URI: the last tokens, and their name

    def later(self, *, at_once: bool = False) -> None:
        """Check every open text whose diagnostics are not told, after a moment of rest."""
        self.changes += 1
        for path, entry in self.book.opened.items():
            if entry.told:
                continue
            self.drop(path)
            wait = 0.0 if at_once else self.rest
            task = asyncio.get_running_loop().create_task(self._check(path, wait))
            self.waiting[path] = task
            self.checks.add(task)
            task.add_done_callback(self.checks.discard)

    async def _check(self, path: str, wait: float) -> None:
        await asyncio.sleep(wait)
        self.waiting.pop(
            path, None
        )  # a check that has begun goes on to its end, so that threads do not pile up
        async with self.checking:
            entry = self.book.opened.get(path)
            document = None if entry is None else self.book.document(entry.uri)
            if entry is None or document is None or entry.told:
                return
            if entry.found is None:

                def overtaken() -> bool:
                    return entry.document is not document or self.book.opened.get(path) is not entry

                soon = problems.at_once(document, self.memory)
                if soon is not None:  # of this version too; long passes' is told with it later
                    self._tell(document, soon)
                look = partial(problems.find, document, self.memory, overtaken=overtaken)
                try:
                    found = await asyncio.to_thread(look)
                except problems.OvertakenError:
                    return
                if overtaken():
                    return  # the text, or one that it imports, is another now; a later check is on its way
                entry.found = found
            entry.told = True
            self._tell(document, entry.found)
        if self.changes >= SWEEP and not self.waiting:
            self.sweep()

    def solve(self) -> None:
        """Have the windows of open policies solved, where a profile is near that is not known yet."""
        for path in self.book.opened:
            if near(path) is not None or path in self.solver.solved:
                task = asyncio.get_running_loop().create_task(self._solve(path))
                self.checks.add(task)
                task.add_done_callback(self.checks.discard)

    async def _solve(self, path: str) -> None:
        entry = self.book.opened.get(path)
        document = None if entry is None else self.book.document(entry.uri)
        if document is None:
            return
        sets = {n: v for n, v in self.book.sets.items() if document.scope.get(n, "param")}
        workspace = self.client_capabilities.workspace
        refresh = workspace.inlay_hint if workspace is not None else None
        if await self.solver.look(path, sets) and refresh is not None and refresh.refresh_support:
            with suppress(JsonRpcException):  # an editor that cannot after all
                await self.workspace_inlay_hint_refresh_async(None)

    def _tell(self, document: Document, found: tuple[Diagnostic, ...]) -> None:
        shown = problems.shown(self.book, document, found)
        params = t.PublishDiagnosticsParams(document.uri, shown, document.version)
        self.text_document_publish_diagnostics(params)

    def sweep(self) -> None:
        """Drop what changes leave behind."""
        self.changes = 0
        # pygls keeps the future of each notification that it handles itself, and so one a change, for ever.
        kept = self.protocol._request_futures
        for id_ in [id_ for id_, future in kept.items() if future.done()]:
            kept.pop(id_, None)
        gc.collect()  # tasks that were called off hold themselves; `trc lsp` leaves them to this

    def found(self, document: Document) -> tuple[Diagnostic, ...]:
        """Return what is found in a document as it is now."""
        entry = self.book.opened.get(document.path)
        if entry is None or entry.document is not document:
            return problems.find(document, self.memory)
        if entry.found is None:
            entry.found = problems.find(document, self.memory)
        return entry.found

    def drop(self, path: str) -> None:
        """Do not begin a check that is on its way."""
        task = self.waiting.pop(path, None)
        if task is not None:
            task.cancel()

    def route(self, uri: str) -> Document | None:
        """Return a `.route` document; Python has a server of its own for all but diagnostics and actions."""
        document = self.book.document(uri)
        return None if document is None or document.python else document

    def say(self, text: str, *, ok: bool) -> None:
        """Show a message."""
        kind = t.MessageType.Info if ok else t.MessageType.Error
        self.window_show_message(t.ShowMessageParams(kind, text))
