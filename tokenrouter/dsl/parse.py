"""Text -> syntax tree: lexer, parser, and which class each grammar rule becomes.

Needs: a source. Gives: a tree, always, and the names that were lost to mistakes, so that later checks can tell a
consequence from a mistake of its own.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokenrouter.diagnostics import Diagnostic
from tokenrouter.dsl import ast
from tokenrouter.dsl.expr import DEEPEST
from tokenrouter.dsl.lalr import Build
from tokenrouter.dsl.lexer import Tokens, tokenize
from tokenrouter.dsl.recover import Parser
from tokenrouter.dsl.source import Source

# A node's fields before (start, end), from the children of a reduction. Children come from the tables, so their types
# are those that the grammar gives them.
Made = Callable[[int, int, list[Any]], object]

_MORE_THAN_SPACES = re.compile(r"[^\S ]|\ufeff")  # a byte-order mark is white space too


@dataclass(frozen=True, slots=True)
class Tree:
    """A parsed source."""

    source: Source
    tokens: Tokens
    file: ast.File
    problems: tuple[Diagnostic, ...]
    lost: tuple[tuple[int, int], ...]  # ranges of offsets that no node stands for
    lost_names: frozenset[str]  # names in them
    docstrings: tuple[tuple[int, str], ...] = ()  # of Python: where each begins, and its text

    def one_line(self, start: int, end: int) -> str:
        """Return a range as written, without comments, on one line."""
        tokens = self.tokens
        first, last = (bisect_left(tokens.starts, offset) for offset in (start, end))
        text = self.source.text[tokens.starts[first] : tokens.starts[last]]
        if "COMMENT" in tokens.kinds[first:last] or _MORE_THAN_SPACES.search(text):
            text = "".join(
                {"SPACE": " ", "COMMENT": ""}.get(tokens.kinds[token], tokens.text(token))
                for token in range(first, last)
            )
        return re.sub(r"  +", " ", text).strip()

    def is_lost(self, start: int, end: int) -> bool:
        """Return whether a mistake cost something inside a range."""
        return any(low <= end and start <= high for low, high in self.lost)


def parse(source: Source, parser: Callable[[Tokens, Build], Parser] = Parser) -> Tree:
    """Return the tree of a source."""
    tokens, problems = tokenize(source)
    deep = too_deep(tokens)
    if deep is not None:
        names = frozenset(tokens.text(i) for i in tokens.real if tokens.kinds[i] == "NAME")
        whole = ((0, len(source.text)),)
        nothing = ast.File(0, len(source.text), None, ())
        return Tree(source, tokens, nothing, (*problems, deep), whole, names)
    parsed = parser(tokens, _Builder(tokens)).run()
    assert isinstance(parsed.tree, ast.File)
    lost: list[tuple[int, int]] = []
    lost_names = set(parsed.renamed)
    for first, last in parsed.dropped:
        lost.append(
            (tokens.starts[first], tokens.end(last) if last >= first else tokens.starts[first])
        )
        lost_names |= {
            tokens.text(i).strip('"')  # what ought to be a name may stand in quotes
            for i in range(first, last + 1)
            if tokens.kinds[i] in ("NAME", "STRING")
        }
    for string in tokens.unclosed:
        lost_names |= set(re.findall(r"[A-Za-z_]\w*", tokens.text(string)))
    found = sorted([*problems, *parsed.problems], key=lambda d: d.span.start)
    return Tree(
        source, tokens, parsed.tree, tuple(found), tuple(sorted(lost)), frozenset(lost_names)
    )


def too_deep(tokens: Tokens) -> Diagnostic | None:
    """TR0215: nothing behind the parser need be ready for a nest without end."""
    depth = prefixes = 0
    kinds = tokens.kinds
    if kinds.count("LPAR") + kinds.count("NOT") + kinds.count("SIGN") <= DEEPEST:
        return None
    for token in tokens.real:
        kind = kinds[token]
        if kind in ("NOT", "SIGN"):
            prefixes += 1
        else:
            prefixes = 0
            if kind == "LPAR":
                depth += 1
            elif kind == "RPAR":
                depth -= 1
        if depth > DEEPEST or prefixes > DEEPEST:
            return Diagnostic(
                "TR0215",
                "error",
                f"this is nested more than {DEEPEST} deep",
                tokens.source.span(tokens.starts[token], tokens.end(token)),
                help="name a part of it with `signal`",
            )
        if kind in ("RBRACE", "LBRACE"):
            depth = 0
    return None


class _Builder:
    """Makes nodes of reductions."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.starts = tokens.starts

    def __call__(self, name: str, children: list[object], first: int, last: int) -> object:
        """Return the node of one reduction."""
        starts = self.starts
        start = starts[first]
        end = starts[last + 1] if last >= first else start
        for at, child in enumerate(children):
            if isinstance(child, int):
                children[at] = self._leaf(child)
        return BUILD[name](start, end, children)

    def _leaf(self, token: int) -> ast.Tok:
        tokens = self.tokens
        start, end = tokens.starts[token], tokens.end(token)
        return ast.Tok(start, end, tokens.kinds[token], tokens.source.text[start:end])


def _node(cls: Callable[..., object]) -> Made:
    """Return what makes a node whose fields are the children, one by one."""
    return lambda start, end, c: cls(start, end, *c)


def _list(start: int, end: int, c: list[Any]) -> object:
    return tuple(c)


def _many(cls: Callable[..., object], fixed: int = 0) -> Made:
    """Return what makes a node whose last field holds all children behind the first `fixed`."""
    return lambda start, end, c: cls(start, end, *c[:fixed], tuple(c[fixed:]))


def _chain(cls: type[ast.Chain]) -> Made:
    return lambda start, end, c: cls(start, end, tuple(c[::2]), tuple(c[1::2]))


def _guarded(cls: Callable[..., object], after: int) -> Made:
    """Return what makes a rule: a guard or none, then `after` more children."""
    return lambda start, end, c: cls(start, end, *([None] if len(c) == after else []), *c)


def _literal(start: int, end: int, c: list[Any]) -> object:
    return ast.Literal(start, end, *c) if len(c) == 3 else ast.Literal(start, end, None, c[0], None)


def _case(start: int, end: int, c: list[Any]) -> object:
    model = c.pop(0) if isinstance(c[0], ast.Tok) else None
    givens, expect, *sets = c
    return ast.Case(start, end, model, givens or (), expect, sets[0] if sets else ())


BUILD: dict[str, Made] = {
    "file": _node(ast.File),
    "header": _node(ast.Header),
    "items": _list,
    "import": _node(ast.Import),
    "model": _node(ast.Model),
    "head": _node(ast.Head),
    "properties": _list,
    "property": _node(ast.Property),
    "part": lambda s, e, c: ast.Part(s, e, c[0], c[1] if isinstance(c[1], tuple) else (c[1],)),
    "names": _list,
    "param": _node(ast.Param),
    "bounds": _node(ast.Bounds),
    "var": _node(ast.Var),
    "signal": _node(ast.Signal),
    "type": lambda s, e, c: c[0],
    "unit": lambda s, e, c: c[0],
    "policy": _node(ast.Policy),
    "members": _list,
    "start": _node(ast.Start),
    "start_rules": _many(ast.StartRules),
    "start_rule": _guarded(ast.StartRule, 1),
    "at": _node(ast.At),
    "rules": _list,
    "rule": _guarded(ast.Rule, 2),
    "claim": _node(ast.Claim),
    "objective": _node(ast.Objective),
    "fallback": _node(ast.Fallback),
    "template": _node(ast.Template),
    "commit": _node(ast.Commit),
    "retry": _node(ast.Retry),
    "borrow": _node(ast.Borrow),
    "for_": _node(ast.For),
    "until": _node(ast.Until),
    "stop": _node(ast.Stop),
    "reserved": lambda s, e, c: ast.Reserved(s, e, c[0]),
    "mix": _many(ast.Mix),
    "share": _node(ast.Share),
    "sets": _list,
    "set": _node(ast.Set),
    "test": _node(ast.Test),
    "cases": _list,
    "case": _case,
    "givens": _list,
    "given": _node(ast.Given),
    "or_": _many(ast.Or),
    "and_": _many(ast.And),
    "negation": _node(ast.Negation),
    "comparison": _chain(ast.Comparison),
    "is_": lambda s, e, c: ast.Is(s, e, c[0], c[1] is not None, c[2]),
    "in_": lambda s, e, c: ast.In(s, e, c[0], c[1] is not None, c[2]),
    "texts": _list,
    "sum": _chain(ast.Sum),
    "term": _chain(ast.Product),
    "minus": _node(ast.Minus),
    "text": _node(ast.Text),
    "true_": lambda s, e, c: ast.Flag(s, e, True),
    "false_": lambda s, e, c: ast.Flag(s, e, False),
    "reference": _node(ast.Reference),
    "call": _node(ast.Call),
    "field": _node(ast.Field),
    "group": _node(ast.Group),
    "arguments": _list,
    "literal": _literal,
    "quantity": _node(ast.Quantity),
}
