"""Comments and what they belong to: the declaration, rule or block that a reader takes them to speak of.

A comment behind something on its line belongs to that; one on a line of its own belongs to what follows it in the same
block, or to the end of the block where nothing does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.parse import Tree
from tokenrouter.dsl.scope import snake


class Anchor(NamedTuple):
    """Something that a comment may belong to, by its range."""

    start: int
    end: int
    name: str
    opens: bool = False  # whether it holds others


def comments(tree: Tree, policy: ast.Policy, tests: list[ast.Test]) -> tuple[hir.Comment, ...]:
    """Return the comments of a file as far as they concern one policy."""
    anchors = sorted(_anchors(tree.file, policy, tests))
    starts = [anchor.start for anchor in anchors]
    found = []
    for token, kind in enumerate(tree.tokens.kinds):
        if kind == "COMMENT":
            at = tree.tokens.starts[token]
            name, place = _belongs(tree, anchors, starts, token, at)
            if name:
                found.append(hir.Comment(name, place, tree.tokens.text(token).rstrip()))
    return tuple(found)


def _belongs(
    tree: Tree, anchors: list[Anchor], starts: list[int], token: int, at: int
) -> tuple[str, hir.Place]:
    holders = [a for a in anchors[: bisect_right(starts, at)] if a.start < at < a.end]
    holder = holders[-1] if holders else None
    before = _on_its_line(tree, token)
    if before is not None:
        end = tree.tokens.end(before)
        ended = [a for a in anchors if a.end == end]
        return (ended[-1].name if ended else holder.name if holder else ""), "end"
    following = bisect_right(starts, at)
    if following < len(anchors) and (holder is None or anchors[following].start < holder.end):
        return anchors[following].name, "above"
    return (holder.name if holder else "file"), "end"


def _on_its_line(tree: Tree, token: int) -> int | None:
    """Return the token before a comment, where it stands on the same line."""
    before = token - 1
    if before >= 0 and tree.tokens.kinds[before] == "SPACE":
        if "\n" in tree.tokens.text(before) or "\r" in tree.tokens.text(before):
            return None
        before -= 1
    return before if before >= 0 and tree.tokens.kinds[before] != "COMMENT" else None


def _anchors(file: ast.File, policy: ast.Policy, tests: list[ast.Test]) -> Iterator[Anchor]:
    if file.header is not None:
        yield Anchor(file.header.start, file.header.end, "file")
    imports = others = 0
    for item in file.items:
        match item:
            case ast.Import():
                yield Anchor(item.start, item.end, f"import {imports}")
                imports += 1
            case ast.Policy():
                if item is policy:
                    yield from _members(item)
                else:
                    yield Anchor(item.start, item.end, "")  # another policy's: left out
            case ast.Test():
                known = next((i for i, test in enumerate(tests) if test is item), None)
                yield Anchor(item.start, item.end, "" if known is None else f"test {known}")
                others += 1
            case _:
                kind = type(item).__name__.lower()
                yield Anchor(item.start, item.end, f"{kind} {snake(item.name.text)}")


def _members(policy: ast.Policy) -> Iterator[Anchor]:
    yield Anchor(policy.start, policy.end, "policy")
    claims = 0
    for member in policy.members:
        match member:
            case ast.At():
                model = snake(member.model.text)
                yield Anchor(member.start, member.end, f"at {model}")
                for i, rule in enumerate(member.rules):
                    yield Anchor(rule.start, rule.end, f"rule {model} {i}")
            case ast.Start():
                yield Anchor(member.start, member.end, "start")
                if isinstance(member.go, ast.StartRules):
                    for i, start in enumerate(member.go.rules):
                        yield Anchor(start.start, start.end, f"start rule {i}")
            case ast.Claim():
                yield Anchor(member.start, member.end, f"claim {claims}")
                claims += 1
            case _:
                yield Anchor(member.start, member.end, type(member).__name__.lower())
