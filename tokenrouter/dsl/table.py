"""The tables of the grammar, as `tools/grammar.py` wrote them: what the lexer knows and what the parser does.

They are shipped, not cached: reading them takes some 2 ms, needs no lark, and leaves nothing in a user's home that could
be stale, torn by two processes or unwritable.
"""

from __future__ import annotations

import json
from functools import cache
from pkgutil import get_data  # importlib.resources would bring in tempfile, zipfile and lzma
from typing import Any, NamedTuple

# Rules of which lists of statements are made; into the nearest of them the parser falls back.
STATEMENTS = frozenset([
    "import", "model", "head", "param", "var", "signal", "policy", "test", "start", "at",
    "claim", "objective", "fallback", "template", "rule", "start_rule", "property", "case",
    "share",
])  # fmt: skip


class Production(NamedTuple):
    """One alternative of a rule, and which of its children a reduction hands on."""

    name: str  # of the rule, or of the alternative where it has its own
    origin: str  # of the rule
    size: int  # symbols
    kept: tuple[int, ...]  # i >= 0: child i; -1: None; -(i + 2): the children of child i
    single: bool  # a lone child stands for the whole
    renames: bool  # the whole is its one symbol: nothing is built


class Table(NamedTuple):
    """A grammar. An action is a state to shift into, -(p + 1) to reduce by p, or 0 to accept."""

    words: dict[str, str]  # reserved word -> terminal
    signs: dict[str, str]  # longest first -> terminal
    patterns: dict[str, str]  # terminal -> regular expression
    ignored: frozenset[str]
    productions: tuple[Production, ...]
    states: tuple[dict[str, int], ...]  # by state: symbol -> action


@cache
def table() -> Table:
    """Return the grammar of `.route` files."""
    text = get_data("tokenrouter.grammars", "route.json")
    assert text is not None, "the grammar's tables are not in the package"
    raw: Any = json.loads(text)
    terminals = raw["terminals"]
    return Table(
        terminals["words"],
        terminals["signs"],
        terminals["patterns"],
        frozenset(terminals["ignored"]),
        tuple(
            Production(name, origin, size, tuple(kept), single, single and size == 1)
            for name, origin, size, kept, single in raw["productions"]
        ),
        tuple(raw["states"]),
    )


@cache
def through(below: int, state: int, kind: str) -> int:
    """Return the state on top once a value has gone through every rule of which it is the whole."""
    rows, productions = table().states, table().productions
    action = rows[state].get(kind)
    while action is not None and action < 0 and productions[-1 - action].renames:
        state = rows[below][productions[-1 - action].origin]
        action = rows[state].get(kind)
    return state


@cache
def open_states() -> frozenset[int]:
    """Return the states that are entered by shifting `{`."""
    return frozenset(row["LBRACE"] for row in table().states if row.get("LBRACE", -1) > 0)


@cache
def list_states() -> frozenset[int]:
    """Return the states in which a statement of some list can begin."""
    return frozenset(i for i, row in enumerate(table().states) if not STATEMENTS.isdisjoint(row))
