"""Comments and what they belong to: the declaration, rule or block that a reader takes them to speak of.

A comment behind something on its line belongs to that; one on a line of its own belongs to what follows it in the same
block, or to the end of the block where nothing does. A docstring of Python is comments above what it stands in.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.parse import Tree
from tokenrouter.dsl.scope import snake


class Anchor(NamedTuple):
    """Something that a comment may belong to, by its range; `owner` is the policy that it is a part of."""

    start: int
    end: int
    name: str
    owner: str = ""


def comments(tree: Tree) -> dict[str, tuple[hir.Comment, ...]]:
    """Return the comments of a file by the policy that they concern; those under "" concern all."""
    if "COMMENT" not in tree.tokens.kinds and not tree.docstrings:
        return {}
    book = _Anchors(tree.file)
    said: list[tuple[int, Anchor, hir.Place, str]] = []
    for token, kind in enumerate(tree.tokens.kinds):
        if kind == "COMMENT":
            text = tree.tokens.text(token).rstrip()
            said.append((tree.tokens.starts[token], *book.of(tree, token), text))
    for start, doc in tree.docstrings:
        holder = book.holding(start)
        said += [(start, holder, "above", f"# {line}".rstrip()) for line in doc.splitlines()]
    found: dict[str, list[hir.Comment]] = {}
    for _, anchor, place, text in sorted(said, key=lambda one: one[0]):
        found.setdefault(anchor.owner, []).append(hir.Comment(anchor.name, place, text))
    return {owner: tuple(all_) for owner, all_ in found.items()}


class _Anchors:
    """The anchors of a file, nested."""

    def __init__(self, file: ast.File) -> None:
        self.all = sorted(_anchors(file), key=lambda anchor: (anchor.start, -anchor.end))
        self.starts = [anchor.start for anchor in self.all]
        self.ending = {anchor.end: anchor for anchor in self.all}  # the innermost, which comes last
        self.holder: list[int] = []  # by anchor: the one that it is in, or -1
        open_: list[int] = []
        for at, anchor in enumerate(self.all):
            while open_ and self.all[open_[-1]].end <= anchor.start:
                open_.pop()
            self.holder.append(open_[-1] if open_ else -1)
            open_.append(at)

    def of(self, tree: Tree, token: int) -> tuple[Anchor, hir.Place]:
        """Return what a comment belongs to, and where it stands."""
        place = tree.tokens.starts[token]
        after = bisect_right(self.starts, place)
        holder = self.holding(place)
        before = _on_its_line(tree, token)
        if before is not None:
            return self.ending.get(tree.tokens.end(before), holder), "end"
        if after < len(self.all) and (holder.end <= place or self.starts[after] < holder.end):
            return self.all[after], "above"
        return holder, "end"

    def holding(self, place: int) -> Anchor:
        """Return the innermost anchor that a place lies in, or the file, as an anchor that ends there."""
        at = bisect_right(self.starts, place) - 1
        while at >= 0 and self.all[at].end <= place:
            at = self.holder[at]
        return self.all[at] if at >= 0 else Anchor(0, place, "file")


def _on_its_line(tree: Tree, token: int) -> int | None:
    """Return the token before a comment, where it stands on the same line."""
    before = token - 1
    while before >= 0 and tree.tokens.kinds[before] == "SPACE":  # a byte-order mark is one too
        if "\n" in tree.tokens.text(before) or "\r" in tree.tokens.text(before):
            return None
        before -= 1
    return before if before >= 0 and tree.tokens.kinds[before] != "COMMENT" else None


def _anchors(file: ast.File) -> Iterator[Anchor]:
    if file.header is not None:
        yield Anchor(file.header.start, file.header.end, "file")
    imports = 0
    tests: dict[str, int] = {}
    for item in file.items:
        match item:
            case ast.Import():
                yield Anchor(item.start, item.end, f"import {imports}")
                imports += 1
            case ast.Policy():
                yield from _members(item)
            case ast.Test():
                policy = snake(item.policy.text)
                number = tests.get(policy, 0)
                tests[policy] = number + 1
                yield Anchor(item.start, item.end, f"test {number}", policy)
                for i, case in enumerate(item.cases):
                    yield Anchor(case.start, case.end, f"case {number} {i}", policy)
            case _:
                kind = type(item).__name__.lower()
                yield Anchor(item.start, item.end, f"{kind} {snake(item.name.text)}")


def _members(policy: ast.Policy) -> Iterator[Anchor]:
    owner = snake(policy.name.text)
    yield Anchor(policy.start, policy.end, "policy", owner)
    claims = 0
    for member in policy.members:
        name = type(member).__name__.lower()
        match member:
            case ast.At():
                model = snake(member.model.text)
                name = f"at {model}"
                for i, rule in enumerate(member.rules):
                    yield Anchor(rule.start, rule.end, f"rule {model} {i}", owner)
            case ast.Start(go=ast.StartRules() as rules):
                for i, start in enumerate(rules.rules):
                    yield Anchor(start.start, start.end, f"start rule {i}", owner)
            case ast.Claim():
                name = f"claim {claims}"
                claims += 1
            case _:
                pass
        yield Anchor(member.start, member.end, name, owner)
