"""What an editor does, in a few words: open a text with a `|` where the cursor is, type, ask."""

import asyncio
import itertools

from lsprotocol import types as t

FILES = itertools.count()


class Editor:
    """Open files of one client."""

    def __init__(self, client, folder):
        self.client = client
        self.folder = folder
        self.versions = {}
        self.published = {}  # by file and version, until asked for: two may come in one read, and waiting sees one of them
        features = client.protocol.fm.features
        known = features[t.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS]

        def keep(params):
            self.published[params.uri, params.version] = params.diagnostics
            return known(params)

        features[t.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS] = keep

    async def open(self, text, name=None, *, wait=True):
        """Open a text, wait for its diagnostics, and return its place and the cursor's."""
        path = self.folder / (name or f"p{next(FILES)}.route")
        uri = path.as_uri()
        text, position = cursor(text)
        self.versions[uri] = 1
        self.published.pop((uri, 1), None)
        item = t.TextDocumentItem(uri, "route", 1, text)
        self.client.text_document_did_open(t.DidOpenTextDocumentParams(item))
        if wait:
            await self.told(uri)
        return Place(uri, position)

    async def type(self, uri, text, *, wait=True):
        """Give an open file another text."""
        self.versions[uri] += 1
        item = t.VersionedTextDocumentIdentifier(self.versions[uri], uri)
        change = t.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(t.DidChangeTextDocumentParams(item, [change]))
        if wait:
            return await self.told(uri)
        return None

    async def told(self, uri, version=None):
        """Wait for the diagnostics of the newest version, and return them."""
        version = version or self.versions[uri]
        while (uri, version) not in self.published:
            await asyncio.sleep(0.005)
        return self.published.pop((uri, version))


class Place:
    """A file and a position, as most requests want them."""

    def __init__(self, uri, position):
        self.uri = uri
        self.document = t.TextDocumentIdentifier(uri)
        self.position = position

    @property
    def range(self):
        return t.Range(self.position, self.position)


def cursor(text):
    """Return a text without its `|`, and where that was."""
    before, _, after = text.partition("|")
    lines = before.split("\n")
    return before + after, t.Position(len(lines) - 1, len(lines[-1]))


def edited(text, edits):
    """Return a text with edits applied; its lines end with line feeds."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)

    def at(position):
        return min(starts[min(position.line, len(starts) - 1)] + position.character, len(text))

    for edit in sorted(edits, key=lambda e: at(e.range.start), reverse=True):
        text = text[: at(edit.range.start)] + edit.new_text + text[at(edit.range.end) :]
    return text


def spans(text, ranges):
    """Return what some ranges of a text hold; each on one line."""
    lines = text.split("\n")
    return [lines[r.start.line][r.start.character : r.end.character] for r in ranges]
