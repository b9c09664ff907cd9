"""What the checks of one run have found: collected, each unknown name once, in source order at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tokenrouter.diagnostics import CODES, Diagnostic, Edit, Fix, Label, Span
from tokenrouter.dsl.nearest import did_you_mean, nearest

DECLARE = {  # how a name comes to be, where none is near it
    "TR1001": 'declare it: `model {0} {{ use "..." }}`',
    "TR1002": "declare it as a `param`, `var` or `signal`, or take a signal of the language",
    "TR1003": "declare it: `policy {0} {{ ... }}`",
    "TR1012": "declare it: `var {0}: count = 0`",
}

_READ, _SET = "signal, param or var", "request variable"  # kinds of an unknown name
BEHIND = "is not written behind a number"  # of a unit that goes without saying; where it is none of its place, that is told
_WORDS = frozenset(
    {"TR1004", "TR1005", "TR1009", "TR1010"}
)  # their place is the word that is unknown
_PLACE = frozenset({"TR1101", "TR1104", "TR1107", "TR1114"})


@dataclass(eq=False, slots=True)
class _Unknown:
    """A name that nothing declares, and every place that uses it."""

    code: str
    kind: str
    name: str
    known: tuple[str, ...]
    spans: list[Span]


@dataclass(eq=False, slots=True)
class Findings:
    """A growing list of diagnostics."""

    lost_names: set[str] = field(
        default_factory=set
    )  # names whose declaration a mistake may have cost
    adrift: bool = False  # an import could not be read, so that any name may be one of its
    _found: list[Diagnostic] = field(default_factory=list)
    _unknown: dict[tuple[str, str], _Unknown] = field(default_factory=dict)

    def add(
        self,
        code: str,
        message: str,
        span: Span,
        *,
        labels: tuple[Label, ...] = (),
        help: str = "",
        fix: Fix | None = None,
    ) -> None:
        """Report one mistake."""
        severity = CODES[code].severity
        if code in _WORDS and fix is None and help.startswith("did you mean `"):
            word = help.split("`")[1]
            fix = Fix(f"write `{word}`", (Edit(span, word),), safe=False)
        self._found.append(Diagnostic(code, severity, message, span, labels, help, fix))

    def has(self, code: str) -> bool:
        """Return whether a mistake of a kind is told."""
        return any(d.code == code for d in self._found)

    def extend(self, found: Iterable[Diagnostic]) -> None:
        """Take over what others have found."""
        self._found.extend(found)

    def unknown(self, code: str, kind: str, name: str, span: Span, known: Iterable[str]) -> None:
        """Report a name that nothing declares; where it is used more than once, all places make one diagnostic."""
        if name in self.lost_names or self.adrift:
            return
        entry = self._unknown.setdefault((kind, name), _Unknown(code, kind, name, (), []))
        entry.known = entry.known or tuple(known)
        entry.spans.append(span)

    def _help(self, entry: _Unknown) -> str:
        """Return the nearest name, be it of a declaration that a mistake cost; else what there is, or how to declare it."""
        if nearest(entry.name, entry.known) is None:
            lost = nearest(entry.name, self.lost_names)
            if lost is not None:
                return f"did you mean `{lost}`?"
        return did_you_mean(entry.name, entry.known) or DECLARE.get(entry.code, "").format(
            entry.name
        )

    def placed(
        self, place: Callable[[Span], Span], placed: Callable[[Diagnostic], Diagnostic]
    ) -> Findings:
        """Return the same with every place moved."""
        unknown = {
            key: _Unknown(e.code, e.kind, e.name, e.known, list(map(place, e.spans)))
            for key, e in self._unknown.items()
        }
        return Findings(self.lost_names, self.adrift, list(map(placed, self._found)), unknown)

    def _merged(self) -> list[_Unknown]:
        """Return the unknown names, one that is both read and set as what is set: a request variable."""
        found = dict(self._unknown)
        for (kind, name), entry in self._unknown.items():
            read = found.get((_READ, name))
            if kind == _SET and read is not None:
                del found[_READ, name]
                found[kind, name] = replace(entry, spans=[*read.spans, *entry.spans])
        return list(found.values())

    def finish(self) -> list[Diagnostic]:
        """Return everything, in source order, each once."""
        found = list(self._found)
        for entry in self._merged():
            first, *rest = sorted(entry.spans)
            found.append(
                Diagnostic(
                    entry.code,
                    CODES[entry.code].severity,
                    f"there is no {entry.kind} `{entry.name}`",
                    first,
                    tuple(Label(span, "and here") for span in rest),
                    self._help(entry),
                    _respell(entry, [first, *rest]),
                )
            )
        units = [d.span for d in found if d.code in _PLACE]
        once = {(d.code, d.span, d.message): d for d in found if not _follows(d, units)}
        return sorted(once.values(), key=lambda d: (d.span.file, d.span.start, d.code))


def _follows(diagnostic: Diagnostic, units: list[Span]) -> bool:
    """Return whether a unit is told to be none of its place, so that it need not be told how it is written."""
    at = diagnostic.span
    return diagnostic.message.endswith(BEHIND) and any(
        span.file == at.file and span.start <= at.start and at.end <= span.end for span in units
    )


def _respell(entry: _Unknown, spans: list[Span]) -> Fix | None:
    near = nearest(entry.name, entry.known)
    if near is None:
        return None
    edits = tuple(Edit(span, near) for span in spans)
    return Fix(f"write `{near}`", edits, safe=False)


class _Call(NamedTuple):
    """What was said of a name that nothing declares."""

    code: str
    kind: str
    name: str
    span: Span
    known: tuple[str, ...]


@dataclass(eq=False, slots=True)
class Recorded(Findings):
    """What one part of a file says, to be said again as long as that part stays."""

    _calls: list[_Call] = field(default_factory=list)

    def unknown(self, code: str, kind: str, name: str, span: Span, known: Iterable[str]) -> None:
        """Keep it: whether it is told depends on what is lost elsewhere."""
        self._calls.append(_Call(code, kind, name, span, tuple(known)))

    def say(self, found: Findings) -> None:
        """Say it all."""
        found.extend(self._found)
        for call in self._calls:
            found.unknown(*call)
