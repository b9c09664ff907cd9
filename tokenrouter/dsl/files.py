"""A file and those that it imports, each read and parsed once.

Reports: TR1201 a file that cannot be read, TR1202 files that import each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from tokenrouter.dsl import ast
from tokenrouter.dsl.findings import Findings
from tokenrouter.dsl.parse import Tree, parse
from tokenrouter.dsl.source import Source, SourceError, read_text


@dataclass(eq=False, slots=True)
class Files:
    """The trees of a file and of what it imports, each once, imported ones first."""

    found: Findings
    read: Callable[[str], str] = read_text
    parse: Callable[[Source], Tree] | None = None  # what knows trees from before
    trees: list[tuple[Tree, bool]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)

    def add(self, name: str, text: str, imported: bool) -> Tree:
        """Parse a file, after those that it imports."""
        tree = (self.parse or parse_any)(Source.of(name, text))
        self.texts[name] = text
        self.found.extend(tree.problems)
        self.found.lost_names |= tree.lost_names
        self.open.append(real_path(name))
        for item in tree.file.items:
            if isinstance(item, ast.Import):
                self.take(tree, item)
        self.open.pop()
        self.trees.append((tree, imported))
        return tree

    def take(self, tree: Tree, node: ast.Import) -> None:
        """Read what one `import` names."""
        span = tree.source.span(node.path.start, node.path.end)
        written = node.path.text.strip('"')
        path = os.path.join(os.path.dirname(tree.source.name), written)
        real = real_path(path)
        if real in self.open:
            way = " -> ".join(
                f"`{os.path.basename(p)}`" for p in [*self.open[self.open.index(real) :], real]
            )
            message = f"files import each other: {way}"
            help_ = "put what both need into a third file, which both import"
            self.found.add("TR1202", message, span, help=help_)
            return
        if any(real_path(known) == real for known in self.texts):
            return
        try:
            text = self.read(path)
        except SourceError as error:
            self.found.adrift = True
            self.found.add(
                "TR1201", str(error), span, help="a path is relative to the importing file"
            )
            return
        self.add(path, text, True)


def real_path(path: str) -> str:
    """Return the file that a path leads to; a path that can lead nowhere as it is."""
    try:
        return os.path.realpath(path)
    except ValueError:  # a null byte
        return path


def parse_any(source: Source) -> Tree:
    """Return the tree of a `.route` file, or, going by its name, of a Python source."""
    if not source.name.endswith(".py"):
        return parse(source)
    from tokenrouter.dsl.python import parse_python  # noqa: PLC0415 most files need none of it

    return parse_python(source)
