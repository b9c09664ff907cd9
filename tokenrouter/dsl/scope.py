"""The declared names of a file and of what it imports."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tokenrouter.diagnostics import Span
from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.expr import Size
from tokenrouter.dsl.findings import Findings
from tokenrouter.dsl.parse import Tree

Declared = ast.Model | ast.Head | ast.Param | ast.Var | ast.Signal
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
KINDS: dict[type, str] = {
    ast.Model: "model",
    ast.Head: "head",
    ast.Param: "param",
    ast.Var: "var",
    ast.Signal: "signal",
}


def snake(name: str) -> str:
    """Return a name in snake_case, by which it is known: `RStitch` and `r_stitch` are one."""
    return _WORDS.sub("_", name).lower()


@dataclass(eq=False, slots=True)
class Entry:
    """One declaration; `used` is told by whoever resolves a use of it."""

    kind: str
    tree: Tree
    node: Declared
    imported: bool
    hir: hir.Model | hir.Param | hir.Var | hir.Head | hir.DerivedSignal | None = None
    broken: bool = False  # its own mistakes are told; uses of it say nothing more
    used: bool = False

    def span(self) -> Span:
        """Return the place of the name."""
        return self.tree.source.span(self.node.name.start, self.node.name.end)


@dataclass(eq=False, slots=True)
class Scope:
    """Names of models, params, vars, heads and signals: one name space, in the order of declaration."""

    found: Findings
    entries: dict[str, Entry] = field(default_factory=dict)
    twice: set[str] = field(default_factory=set)  # names that are told to be two things
    sizes: dict[str, Size] = field(default_factory=dict)  # of derived signals, written out
    deep: bool = False  # one that is too deep was told, and those that lead to it need not be

    def get(self, name: str, kind: str | None = None) -> Entry | None:
        """Return what a name stands for, where it is of that kind."""
        entry = self.entries.get(snake(name))
        return entry if entry is not None and kind in (None, entry.kind) else None

    def doubled(self, name: str) -> bool:
        """Return whether a name is told to be two things, so that nothing is said of its uses."""
        return snake(name) in self.twice

    def names(self, *kinds: str) -> list[str]:
        """Return the names of some kinds, as written."""
        return [entry.node.name.text for entry in self.entries.values() if entry.kind in kinds]

    def of(self, kind: str) -> list[Entry]:
        """Return the declarations of a kind."""
        return [entry for entry in self.entries.values() if entry.kind == kind]

    def model(self, tree: Tree, token: ast.Tok) -> str | None:
        """Return the model that a token names, and report where there is none."""
        entry = self.get(token.text, "model")
        if entry is not None:
            entry.used = True
            return snake(token.text)
        span = tree.source.span(token.start, token.end)
        other = self.get(token.text)
        if other is not None and self.doubled(token.text):
            other.used = True
        elif other is not None:
            message = f"`{token.text}` is a {other.kind}, and a model must stand here"
            known = ", ".join(f"`{name}`" for name in self.names("model"))
            help_ = f"there are {known}" if known else "declare a model, and name it here"
            self.found.add("TR1001", message, span, help=help_)
        else:
            self.found.unknown("TR1001", "model", token.text, span, self.names("model"))
        return None
