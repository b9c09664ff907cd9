"""A policy in grains, so that an edit costs the block that it is in: what stands before its first `at`, and each `at` block.

A grain begins at an `at` that is the first on its line, and is parsed between the two ends of a policy. One that parses so
without a mistake means the same in its own. A mistake in a block is parsed with the blocks that follow, up to where the
parser is in step again, as that of a statement is among statements (`dsl.pieces`); where that is not told before the policy
ends, or the mistake is in what begins or ends it, the policy is no matter of grains, and parsed as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tokenrouter.diagnostics import Diagnostic
from tokenrouter.dsl import ast
from tokenrouter.dsl.parse import Tree, parse
from tokenrouter.dsl.piece import Piece, grain
from tokenrouter.dsl.source import Source
from tokenrouter.dsl.watched import AHEAD, BEFORE, Watched, in_step, left_open, too_deep

OPENS, ENDS = "policy p {", "}"  # around a grain that does not begin or end its policy
BLOCK = "at x { otherwise -> commit }\n"  # behind which the next block begins
_AT = re.compile(r"[\r\n][ \t]*(?=at(?!\w)(?!\s+most(?!\w)))")
_Key = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Grain:
    """A part of the text of a policy, parsed alone."""

    name: str
    text: str
    alone: Piece
    fits: bool  # whether it is a part of a policy, and nothing else


@dataclass(eq=False, slots=True)
class Grains:
    """The grains of the versions of one policy."""

    name: str
    names: Iterator[str]
    grains: list[_Grain] = field(default_factory=list)
    kept: dict[_Key, Piece] = field(default_factory=dict)  # around mistakes
    made: Piece | None = None

    def cut(self, text: str) -> Piece | None:
        """Return a policy as a piece in grains; None where it has to be parsed as one."""
        borders = [0, *(found.end() for found in _AT.finditer(text)), len(text)]
        if len(borders) == 2:
            self.grains, self.made = [], None
            return None
        self._cut([text[start:end] for start, end in pairwise(borders)])
        kept: dict[_Key, Piece] = {}
        parts = self._parts(kept)
        self.kept = kept
        if parts is None:
            self.made = None
        elif self.made is None or self.made.grains != parts:
            last = sum(part.last - part.first for part in parts)
            self.made = Piece(self.name, text, None, 0, 0, last, grains=parts)
        return self.made

    def _cut(self, texts: list[str]) -> None:
        """Make the grains of some texts, those of the last version wherever they are the same."""
        old, same, behind = self.grains, 0, 0
        most = min(len(old), len(texts))
        if old and len(old) != len(texts):  # the last one is parsed with the end of the policy
            most = min(len(old) - 1, len(texts) - 1)
        while same < most and old[same].text == texts[same]:
            same += 1
        while behind < min(len(old), len(texts)) - same:
            if old[-1 - behind].text != texts[-1 - behind]:
                break
            behind += 1
        names = [made.name for made in old[same : len(old) - behind]]
        fresh = []
        for place in range(same, len(texts) - behind):
            name = names.pop(0) if names else next(self.names)
            fresh.append(
                _alone(name, texts[place], begins=place == 0, ends=place == len(texts) - 1)
            )
        self.grains = [*old[:same], *fresh, *old[len(old) - behind :]]

    def _parts(self, kept: dict[_Key, Piece]) -> tuple[Piece, ...] | None:
        """Return the grains as pieces; None where the policy has to be parsed as one."""
        grains = self.grains
        if not grains[0].fits or not grains[-1].fits:
            return None
        parts: list[Piece] = []
        at, reached = 0, False
        while at < len(grains):
            if grains[at].fits:
                part = grains[at].alone
                at += 1
            else:
                found = self._region(at, kept)
                if found is None:
                    return None
                part, at = found
            if reached:
                part = self._hit(part, kept)
            reached = part.reaches
            parts.append(part)
        return tuple(parts)

    def _hit(self, part: Piece, kept: dict[_Key, Piece]) -> Piece:
        key = (part.name, part.text, "hit")
        kept[key] = self.kept.get(key) or part.hit()
        return kept[key]

    def _region(self, first: int, kept: dict[_Key, Piece]) -> tuple[Piece, int] | None:
        """Return the piece of a mistake, and the grain behind it; None where it may reach the policy's end."""
        grains, last, step = self.grains, first + 1, 1
        while True:
            seen, end = 0, last
            while end < len(grains) and seen < AHEAD:
                seen += grains[end].alone.size
                if not grains[end].fits:
                    last, seen = end + 1, 0
                end += 1
            if last >= len(grains):
                return None
            inside = grains[first:last]
            text = "".join(part.text for part in inside)
            if "/*" in text or any(too_deep(g.alone) or left_open(g.alone) for g in inside):
                return None
            ahead = "".join(part.text for part in grains[last:end])
            ahead += ENDS if end < len(grains) else ""
            before = BEFORE + grains[0].text + (BLOCK if first > 1 else "")
            key = (grains[first].name, text, before, ahead)
            piece = self.kept.get(key) or _parsed(*key)
            if piece is not None:
                kept[key] = piece
                return piece, last
            last += step
            step *= 2


def _alone(name: str, text: str, *, begins: bool, ends: bool) -> _Grain:
    before = "" if begins else OPENS
    source = before + text + ("" if ends else ENDS)
    tree = parse(Source.of(name, source))
    items = tree.file.items
    fits = not tree.problems and not tree.lost and len(items) == 1
    fits = fits and isinstance(items[0], ast.Policy) and items[0].start == 0
    fits = fits and tree.file.header is None and (ends or items[0].end == len(source))
    return _Grain(name, text, grain(name, text, tree, len(before)), fits)


def _parsed(name: str, text: str, before: str, ahead: str) -> Piece | None:
    """Return the piece of a mistake in blocks of a policy, parsed with what follows; None where it is not over there."""
    parsers: list[Watched] = []
    tree = parse(Source.of(name, before + text + ahead), Watched.into(parsers))
    low, high = len(before), len(before + text)
    if len(tree.file.items) != 2 or not parsers or parsers[0].far or parsers[0].left_open:
        return None
    policy = tree.file.items[1]
    if not isinstance(policy, ast.Policy) or not in_step(parsers[0], tree, high, policy.members):
        return None
    if not all(_inside(problem, low, high) for problem in tree.problems):
        return None
    if any(first < low for first, _ in tree.lost):
        return None
    own = tuple(member for member in policy.members if low <= member.start < high)
    clipped = ast.Policy(policy.start, policy.end, policy.name, own)
    file = ast.File(policy.start, policy.end, None, (clipped,))
    cut = Tree(tree.source, tree.tokens, file, tree.problems, tree.lost, tree.lost_names)
    return grain(name, text, cut, low, reaches=any(end >= high for _, end in tree.lost))


def _inside(problem: Diagnostic, low: int, high: int) -> bool:
    """Return whether all that a problem points at lies between two places."""
    edits = problem.fix.edits if problem.fix is not None else ()
    spans = [problem.span, *(label.span for label in problem.labels), *(e.span for e in edits)]
    return all(low <= span.start and span.end <= high for span in spans)
