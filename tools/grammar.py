"""Write grammars/route.json, the tables that the front end runs on, from grammars/route.lark.

lark does the analysis: it refuses every conflict (`strict`), and gives the LALR actions. Here they are renumbered in the
order of discovery from the start state, so that the file is a function of the grammar alone.

    python tools/grammar.py            # write
    python tools/grammar.py --check    # exit 1 where the file differs
"""

import json
import sys
from functools import cache
from pathlib import Path

from lark import Lark
from lark.grammar import NonTerminal, Rule
from lark.lexer import PatternStr
from lark.parsers.lalr_analysis import Shift

GRAMMAR = Path(__file__).parents[1] / "grammars/route.lark"
TABLES = GRAMMAR.with_suffix(".json")


def load() -> Lark:
    """Return the grammar as lark reads it."""
    text = GRAMMAR.read_text(encoding="utf-8")
    return Lark(
        text, parser="lalr", lexer="basic", strict=True, start="file", maybe_placeholders=True
    )


@cache
def load_once() -> Lark:
    """Return the grammar, read once a process."""
    return load()


def recipe(rule: Rule) -> list[int]:
    """Return what a reduction hands on: i >= 0 for child i, -1 for None, -(i + 2) for the children of child i."""
    n = len(rule.expansion)
    empty = rule.options.empty_indices or [False] * n
    found, i = [], 0
    for missing in empty:
        if missing:
            found.append(-1)
            continue
        symbol = rule.expansion[i]
        if isinstance(symbol, NonTerminal):
            found.append(-(i + 2) if symbol.name.startswith("_") else i)
        elif not symbol.filter_out or rule.options.keep_all_tokens:
            found.append(i)
        i += 1
    assert i == n, rule
    return found


def productions(lark: Lark) -> dict[Rule, int]:
    """Return the rules in an order of their own."""

    def key(rule: Rule) -> tuple[str, str, str, str]:
        shape = f"{recipe(rule)}"
        return (
            rule.origin.name,
            str(rule.alias or ""),
            " ".join(s.name for s in rule.expansion),
            shape,
        )

    return {rule: i for i, rule in enumerate(sorted(lark.rules, key=key))}


def tables(lark: Lark) -> dict[str, object]:
    """Return the tables as JSON holds them."""
    parser = lark.parser.parser  # type: ignore[attr-defined]
    raw = parser._parse_table
    (start,) = raw.start_states.values()
    (end,) = raw.end_states.values()
    numbers, order = {start: 0}, [start]
    for state in order:
        for _, (action, target) in sorted(raw.states[state].items()):
            if action is Shift and target not in numbers:
                numbers[target] = len(order)
                order.append(target)
    rules = productions(lark)
    # Rules of the parser proper are copies; equal expansions of one origin may differ in what they hand on.
    by_identity = {id(rule): number for rule, number in rules.items()}

    def encode(state: object) -> dict[str, int]:
        row = {}
        for symbol, (action, target) in sorted(raw.states[state].items()):
            if action is not Shift:
                row[symbol] = -1 - by_identity[id(target)]
            else:
                row[symbol] = numbers[target]
        if state == end:
            row["$END"] = 0  # accept: nothing else leads to the start state
        return row

    return {
        "terminals": terminals(lark),
        "productions": [
            [
                rule.alias or rule.origin.name,
                rule.origin.name,
                len(rule.expansion),
                recipe(rule),
                bool(rule.options.expand1 and not rule.alias),
            ]
            for rule in rules
        ],
        "states": [encode(state) for state in order],
    }


def terminals(lark: Lark) -> dict[str, object]:
    """Return words (reserved), signs (longest first) and patterns."""
    words, signs, patterns = {}, {}, {}
    for terminal in sorted(lark.terminals, key=lambda t: t.name):
        pattern = terminal.pattern
        if not isinstance(pattern, PatternStr):
            patterns[terminal.name] = pattern.to_regexp()
        elif pattern.value.isidentifier():
            words[pattern.value] = terminal.name
        else:
            signs[pattern.value] = terminal.name
    longest = dict(sorted(signs.items(), key=lambda item: (-len(item[0]), item[0])))
    return {
        "words": words,
        "signs": longest,
        "patterns": patterns,
        "ignored": sorted(lark.ignore_tokens),
    }


def dump() -> str:
    """Return the text of the tables' file, one state and one production a line."""
    made = tables(load())

    def lines(items: list[object]) -> str:
        return ",\n".join(json.dumps(item, separators=(",", ":")) for item in items)

    head = json.dumps(made["terminals"], indent=1, ensure_ascii=False)
    return (
        f'{{"terminals":{head},\n"productions":[\n{lines(made["productions"])}\n],\n'  # type: ignore[arg-type]
        f'"states":[\n{lines(made["states"])}\n]}}\n'  # type: ignore[arg-type]
    )


if __name__ == "__main__":
    text = dump()
    if "--check" in sys.argv[1:]:
        sys.exit(0 if TABLES.read_text(encoding="utf-8") == text else 1)
    TABLES.write_text(text, encoding="utf-8")
