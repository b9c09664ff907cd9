"""The text on the page: what the language server says of it, what the compiler makes of it, and the file that it is saved to.

The front end reads what a text names (imports, heads, models). A text from a browser names what it likes, so nothing is read
here but what the file named on the command line named when it was opened, and the models of the package's own examples.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path

from lsprotocol import types as t

from tokenrouter.compiler import draw
from tokenrouter.compiler.analyse import analysed
from tokenrouter.compiler.ir import Automaton
from tokenrouter.diagnostics import Diagnostic, PolicyError
from tokenrouter.dsl import hir
from tokenrouter.dsl.source import SourceError, read_text
from tokenrouter.errors import TokenRouterError, UsageError
from tokenrouter.lsp import colour, problems, verbs
from tokenrouter.lsp.book import Book, Document, uri_of
from tokenrouter.lsp.complete import complete
from tokenrouter.lsp.memory import Memory
from tokenrouter.plan.svg import svg
from tokenrouter.playground import replies as r
from tokenrouter.playground.trying import fire, places

NAME = "policy.route"  # of a text without a file
MOST_CHARS = 200_000  # of a text that is looked at
_WORDS = 60  # completions that a page can show


@dataclass(eq=False, slots=True)
class _Book(Book):
    """A book that reads named files only."""

    readable: frozenset[str] = frozenset()  # real paths

    def read(self, path: str) -> str:
        """Return the text of a file that may be read; raises SourceError."""
        if os.path.realpath(path) not in self.readable:
            name = os.path.basename(path)
            raise SourceError(
                f"the playground does not read `{name}`: its file did not name it when it was opened"
            )
        return Book.read(self, path)


@dataclass(frozen=True, slots=True)
class _Named:
    """What texts may name: files by real path, models as they are written."""

    imports: frozenset[str] = frozenset()
    heads: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()

    @classmethod
    def by(cls, path: str, text: str) -> _Named:
        """Return what a text names."""
        book = Book()
        book.put(uri_of(path), text, 0)
        document = book.document(uri_of(path))
        assert document is not None
        policies, base = document.study.resolved.policies, os.path.dirname(path)
        return cls(
            frozenset(document.seen),
            frozenset(
                os.path.realpath(os.path.join(base, head.file))
                for policy in policies
                for head in policy.heads
            ),
            frozenset(model.use for policy in policies for model in policy.models),
        )


@lru_cache(maxsize=1)
def examples() -> list[r.Example]:
    """Return the policies of the package, the demo first."""
    found = sorted(
        files("tokenrouter.examples").iterdir(), key=lambda f: (f.name != "demo.route", f.name)
    )
    return [_example(f.name, f.read_text("utf-8")) for f in found if f.name.endswith(".route")]


def _example(name: str, text: str) -> r.Example:
    comments = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
    return r.Example(name.removesuffix(".route"), comments[0] if comments else "", text)


@dataclass(eq=False)
class _Sheet:
    """One version of the text, and what was made of it."""

    document: Document
    found: tuple[Diagnostic, ...]
    made: dict[str, Automaton] = field(default_factory=dict)

    @cached_property
    def sound(self) -> bool:
        """Whether nothing that was found is an error."""
        return not any(d.severity == "error" for d in self.found)

    def policy(self, name: str | None) -> hir.Policy | None:
        """Return the policy of a name, or else the first."""
        policies = self.document.study.resolved.policies
        return next((p for p in policies if p.name == name), policies[0] if policies else None)

    def alone(self, policy: hir.Policy) -> hir.Resolved:
        """Return the file with one policy."""
        return replace(self.document.study.resolved, policies=(policy,))

    def auto(self, policy: hir.Policy) -> Automaton:
        """Return a sound policy as the passes leave it."""
        if policy.name not in self.made:
            self.made[policy.name] = analysed(self.alone(policy))[0]
        return self.made[policy.name]


class Desk:
    """What the page works on. Not safe for threads: one question at a time."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self.path = NAME if file is None else str(file)
        self.text = examples()[0].text
        self._crlf = False
        named = _Named()
        if file is not None:
            if file.suffix != ".route":
                raise UsageError(f"`{file}` is no `.route` file")
            written = read_text(self.path) if file.exists() else "route 1\n\n"
            self._crlf = "\r\n" in written
            self.text = written.replace("\r\n", "\n").replace("\r", "\n")
            if len(self.text) > MOST_CHARS:
                raise UsageError(
                    f"`{file}` has more than the {MOST_CHARS} characters that the page looks at"
                )
            named = _Named.by(self.path, self.text)
        uses = {use for example in examples() for use in _Named.by(NAME, example.text).models}
        self._named = replace(named, models=named.models | uses)
        self._book = _Book(readable=named.imports - {os.path.realpath(self.path)})
        self._memory = Memory()
        self._sheet: _Sheet | None = None

    def _on(self, text: str) -> _Sheet:
        """Return what is known of a text; of the last one, what is known already."""
        sheet = self._sheet
        if sheet is None or sheet.document.text != text:
            uri = uri_of(self.path)
            self._book.put(uri, text, 0)
            document = self._book.document(uri)
            assert document is not None
            heads = {h.file for p in document.study.resolved.policies for h in p.heads}
            known = all(self._may_read(file) for file in heads)
            sheet = _Sheet(document, problems.find(document, self._memory, heads=known))
            self._sheet = sheet
        return sheet

    def _may_read(self, head: str) -> bool:
        return os.path.realpath(os.path.join(os.path.dirname(self.path), head)) in self._named.heads

    def begin(self) -> r.Begin:
        """Return what the page starts with."""
        name = None if self.file is None else self.file.name
        return r.Begin(self.text, name, list(colour.TYPES), MOST_CHARS, examples())

    def look(self, text: str, policy: str | None) -> r.Look:
        """Return what there is to show of a text."""
        sheet = self._on(text)
        document, chosen = sheet.document, sheet.policy(policy)
        graph = words = ""
        asked: list[r.Place] = []
        if chosen is not None and sheet.sound:
            auto = sheet.auto(chosen)
            drawn = draw.transitions(auto)
            graph = svg(drawn)
            names = {node.id: node.text for node in drawn.nodes}
            words = "; ".join(
                f"{names[a.source]} to {names[a.target]} {a.text}".strip() for a in drawn.arrows
            )
            asked = places(auto)
        return r.Look(
            colour.tokens(document),
            list(_problems(self._book, sheet)),
            [p.name for p in document.study.resolved.policies],
            None if chosen is None else chosen.name,
            graph,
            words,
            asked,
        )

    def plan(self, text: str, policy: str | None) -> r.Plan:
        """Return the plan of a policy explained; where its models are not here, the policy as the passes leave it."""
        sheet = self._on(text)
        chosen = sheet.policy(policy)
        if chosen is None or not sheet.sound:
            return r.Plan("", "mend the mistakes first")
        try:
            return r.Plan(self._compiled(sheet, chosen), "")
        except PolicyError as error:
            worst = next(d for d in error.diagnostics if d.severity == "error")
            why = f"{worst.code}: {worst.message}"
        except TokenRouterError as error:
            why = str(error)
        _, told = verbs.explain(sheet.document, chosen.name)
        return r.Plan(told, f"without its models, since {why}")

    def _compiled(self, sheet: _Sheet, policy: hir.Policy) -> str:
        from tokenrouter.compiler.compile import compile_resolved  # noqa: PLC0415 scipy takes long to import
        from tokenrouter.plan.show import show  # noqa: PLC0415

        for model in policy.models:
            if model.use not in self._named.models:
                raise UsageError(
                    f"the playground looks up only models that its file named when it was opened, not `{model.use}`"
                )
        for head in policy.heads:
            if not self._may_read(head.file):
                raise UsageError(
                    f"the playground reads only heads that its file named when it was opened, not `{head.file}`"
                )
        return show(compile_resolved(sheet.alone(policy)).plan)

    def fire(self, text: str, policy: str | None, place: str, given: dict[str, str]) -> r.Fired:
        """Return which rule fires at a place under some values."""
        sheet = self._on(text)
        chosen = sheet.policy(policy)
        if chosen is None or not sheet.sound:
            return r.Fired(None, None, "", "mend the mistakes first", {})
        return fire(sheet.document, self._book, sheet.auto(chosen), place, given)

    def complete(self, text: str, line: int, character: int) -> list[r.Word]:
        """Return what can stand at a place, by what is typed of it."""
        document = self._on(text).document
        offset = document.places.offset(t.Position(line, character))
        if _in_string(document, offset):  # where the server would list the files of a folder
            return []
        start = offset
        while start and (text[start - 1].isalnum() or text[start - 1] == "_"):
            start -= 1
        typed = text[start:offset].lower()
        found = [
            item for item in complete(document, offset) if item.label.lower().startswith(typed)
        ]
        found.sort(key=lambda item: item.sort_text or item.label)
        return [_word(item) for item in found[:_WORDS]]

    def save(self, text: str) -> r.Saved:
        """Write the text to the file; raises UsageError where there is none."""
        if self.file is None:
            raise UsageError(
                "the playground was started without a file; name one: `trc playground FILE`"
            )
        if len(text) > MOST_CHARS:
            raise UsageError(f"a text of more than {MOST_CHARS} characters is not saved here")
        written = text.replace("\n", "\r\n") if self._crlf else text
        beside = self.file.with_name(f".{self.file.name}.new")
        beside.write_text(written, encoding="utf-8", newline="")
        if self.file.exists():
            beside.chmod(self.file.stat().st_mode)
        os.replace(beside, self.file)
        return r.Saved(self.file.name)


def _word(item: t.CompletionItem) -> r.Word:
    about = item.documentation.value if isinstance(item.documentation, t.MarkupContent) else ""
    kind = t.CompletionItemKind(item.kind).name if item.kind else ""
    return r.Word(item.label, kind, about)


def _in_string(document: Document, offset: int) -> bool:
    tokens = document.tree.tokens
    for token in tokens.real:
        if tokens.starts[token] < offset <= tokens.end(token):
            text = tokens.text(token)
            closed = len(text) > 1 and text.endswith('"') and offset == tokens.end(token)
            return tokens.kinds[token] == "STRING" and not closed
    return False


def _problems(book: Book, sheet: _Sheet) -> Iterator[r.Problem]:
    document = sheet.document
    for diagnostic, shown in zip(
        sheet.found, problems.shown(book, document, sheet.found), strict=True
    ):
        message, _, help_ = shown.message.partition("\n")
        fix = None
        if diagnostic.fix is not None and all(
            e.span.file == document.path for e in diagnostic.fix.edits
        ):
            changes = [
                r.Change(_range(document.places.of(e.span)), e.text) for e in diagnostic.fix.edits
            ]
            fix = r.Fix(diagnostic.fix.title, changes)
        yield r.Problem(
            diagnostic.code, diagnostic.severity, message, help_, _range(shown.range), fix
        )


def _range(found: t.Range) -> r.Range:
    return (found.start.line, found.start.character, found.end.line, found.end.character)
