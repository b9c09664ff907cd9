"""The TextMate grammar: what VS Code colours before the server has answered, and everywhere that it has no say.

A TextMate grammar sees one line at a time and no declarations. So names are told by the words before and behind them, and a
name in an expression, which may be a head, a param, a variable or a derived signal, is just a name.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from editing import words
from tokenrouter.dsl.lexer import FOREIGN
from tokenrouter.dsl.table import table

Pattern = dict[str, Any]
NAME = table().patterns["NAME"]
OTHER = (
    rf"(?!(?:{'|'.join(sorted(words.WORDS))})\b){NAME}"  # a name that is no word of the language
)
SCOPE_OF = {kind: f"{scope}.route" for kind, scope in words.SCOPES.items()}
SIGNS = {
    "keyword.operator.arrow": ("->",),
    "keyword.operator.comparison": ("<=", ">=", "==", "!=", "<", ">"),
    "keyword.operator.assignment": ("=",),
    "keyword.operator.arithmetic": ("+", "-", "*", "/"),
}


def grammar() -> str:
    """Return the file."""
    made = {
        "name": "tokenrouter policy",
        "scopeName": "source.route",
        "fileTypes": ["route"],
        "patterns": _includes("comment", "block", "declaration", "inside"),
        "repository": {
            "comment": _match(r"#.*$", "comment", {"#": "punctuation.definition.comment"}),
            "string": _string(),
            "block": _block(),
            "property": {"patterns": _properties()},
            "declaration": {"patterns": _declarations()},
            "mixture": _mixture(),
            "texts": _texts(),
            "place": {"patterns": _places()},
            "word": {"patterns": _words()},
            "literal": {"patterns": _literals()},
            "name": {"patterns": _names()},
            "sign": {"patterns": _signs()},
            "inside": {
                "patterns": _includes(
                    "mixture", "place", "texts", "literal", "word", "name", "sign", "string"
                )
            },
        },
    }
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def semantic_scopes() -> dict[str, list[str]]:
    """Return the scopes of the server's tokens, as package.json tells VS Code."""
    return {kind: [scope] for kind, scope in SCOPE_OF.items()}


def _includes(*names: str) -> list[Pattern]:
    return [{"include": f"#{name}"} for name in names]


def _any(items: Iterable[str]) -> str:
    """Return a pattern for any of some texts, whole words where they are words, the longest first."""
    ordered = sorted(items, key=lambda item: (-len(item), item))
    worded = all(item.isidentifier() for item in ordered)
    one_of = "|".join(re.escape(item) if not item.isidentifier() else item for item in ordered)
    return rf"\b(?:{one_of})\b" if worded else f"(?:{one_of})"


def _match(pattern: str, kind: str, first: dict[str, str] | None = None) -> Pattern:
    """Return a rule for a pattern; `first` marks the sign that it begins with."""
    rule: Pattern = {"name": SCOPE_OF[kind], "match": pattern}
    for sign, scope in (first or {}).items():
        rule["match"] = f"({sign})" + pattern.removeprefix(sign)
        rule["captures"] = {"1": {"name": f"{scope}.route"}}
    return rule


def _groups(pattern: str, *scopes: str | list[Pattern]) -> Pattern:
    """Return a rule whose groups have scopes, or patterns of their own."""
    captures = {
        str(number): {"name": scope} if isinstance(scope, str) else {"patterns": scope}
        for number, scope in enumerate(scopes, 1)
    }
    return {"match": pattern, "captures": captures}


def _keyword(word: str) -> str:
    """Return the scope of a word of the language."""
    if word in words.DECLARING:
        return "keyword.control.declaration.route"
    if word in words.ACTIONS or word in words.PLANNED_WORDS:
        return "keyword.control.action.route"
    if word in words.CONSTANTS:
        return "keyword.control.constant.route"
    return "keyword.control.logic.route" if word in words.LOGIC else "keyword.control.route"


def _string() -> Pattern:
    return {
        "name": SCOPE_OF["string"],
        "begin": '"',
        "end": r'"|$',
        "patterns": [{"name": "constant.character.escape.route", "match": r"\\."}],
    }


def _block() -> Pattern:
    """Return `model NAME { ... }` and `head NAME { ... }`, wherever the lines break."""
    stops = _any(words.DECLARING)
    rules = [
        {
            "begin": rf"\b({word})\b(?:\s+({OTHER}))?",
            "beginCaptures": {
                "1": {"name": _keyword(word)},
                "2": {"name": SCOPE_OF[kind]},
            },
            "end": rf"(?<=\}})|(?=(?!\b{word}\b){stops})|(?=\b{word}\b)",
            "patterns": [
                *_includes("comment"),
                _match(OTHER, kind),
                {
                    "begin": r"\{",
                    "end": r"\}",
                    "patterns": _includes("comment", "property", "literal", "string", "sign"),
                },
            ],
        }
        for word, kind in (("model", "class"), ("head", "function"))
    ]
    return {"patterns": rules}


def _properties() -> list[Pattern]:
    owner = SCOPE_OF["class"]
    part = SCOPE_OF["enumMember"]
    return [
        {
            "begin": rf"({OTHER})\s*\.\s*\{{",
            "beginCaptures": {"1": {"name": owner}},
            "end": r"\}",
            "patterns": [*_includes("comment"), _match(NAME, "enumMember")],
        },
        _groups(rf"({OTHER})\s*\.\s*({OTHER})", owner, part),
        _groups(
            rf"({_any(words.PROPERTIES)})(?:\s+({_any(words.CHOSEN)}))?",
            SCOPE_OF["property"],
            part,
        ),
        *_includes("word"),
        _match(OTHER, "property"),
    ]


def _declarations() -> list[Pattern]:
    def named(word: str, kind: str) -> Pattern:
        return _groups(rf"\b({word})\s+({OTHER})", _keyword(word), SCOPE_OF[kind])

    units = [
        _match(_any(words.UNITS), "type"),
        _match(NAME, "type"),
    ]
    dials = [
        _groups(
            rf"\b({word})\s+({OTHER})\s*:\s*({_any(words.UNITS)}|{OTHER})",
            _keyword(word),
            SCOPE_OF[kind],
            units,
        )
        for word, kind in (("param", "parameter"), ("var", "variable"))
    ]
    test = _groups(
        rf'\b(test)\s+("(?:[^"\\]|\\.)*")\s+(for)\s+({OTHER})',
        _keyword("test"),
        _includes("string"),
        _keyword("for"),
        SCOPE_OF["namespace"],
    )
    plain = [
        named(word, kind)
        for word, kind in (
            ("policy", "namespace"),
            ("param", "parameter"),
            ("var", "variable"),
            ("signal", "property"),
        )
    ]
    return [test, *dials, *plain]


def _mixture() -> Pattern:
    return {
        "begin": r"\b(mix)\s*\{",
        "beginCaptures": {"1": {"name": _keyword("mix")}},
        "end": r"\}",
        "patterns": [
            *_includes("comment"),
            _groups(rf"({OTHER})\s*(?=:|$)", SCOPE_OF["class"]),
            *_includes("literal", "word", "sign"),
        ],
    }


def _texts() -> Pattern:
    """Return `in { "a", "b" }`, in which names stand only by mistake."""
    return {
        "begin": r"\b(in)\s*\{",
        "beginCaptures": {"1": {"name": _keyword("in")}},
        "end": r"\}",
        "patterns": _includes("comment", "string", "word", "name"),
    }


def _places() -> list[Pattern]:
    """Return the places where a name can only be one thing."""
    model, part = SCOPE_OF["class"], SCOPE_OF["enumMember"]
    before = ("at", "retry", "borrow", "then", "start", "fallback", "from")
    arguments = _groups(
        rf"({_any(words.OF_MODELS)})\s*\(\s*({OTHER})",
        SCOPE_OF["function.defaultLibrary"],
        model,
    )
    return [
        *(_groups(rf"\b({word})\s+({OTHER})", _keyword(word), model) for word in before),
        _groups(rf"(->)\s*({OTHER})", "keyword.operator.arrow.route", model),
        _groups(rf"\b(is)\s+(not)\s+({OTHER})", _keyword("is"), _keyword("not"), part),
        _groups(rf"\b(is)\s+({OTHER})", _keyword("is"), part),
        _groups(rf"\b(objective)\s+({OTHER})", _keyword("objective"), part),
        arguments,
        _groups(rf"\b(request)\s*\.\s*({NAME})", part, SCOPE_OF["property"]),
        _groups(rf"\b(set)\s+({OTHER})", _keyword("set"), SCOPE_OF["variable"]),
    ]


def _words() -> list[Pattern]:
    groups: dict[str, list[str]] = {}
    for word in sorted(words.WORDS - set(words.UNIT_WORDS)):
        groups.setdefault(_keyword(word), []).append(word)
    return [{"name": scope, "match": _any(group)} for scope, group in groups.items()]


def _literals() -> list[Pattern]:
    worded = [unit for unit in words.UNITS if unit[0].isalpha()]
    others = [unit for unit in words.UNITS if not unit[0].isalpha()]
    longest = sorted(worded, key=lambda unit: (-len(unit), unit))
    unit = rf"\b(?:{'|'.join(map(re.escape, longest))})(?![A-Za-z0-9_])|{_any(others)}"
    return [
        _match(unit, "type"),
        _match(rf"(?<![A-Za-z0-9_]){table().patterns['NUMBER']}", "number"),
    ]


def _names() -> list[Pattern]:
    return [_match(_any(words.BUILTINS), "function.defaultLibrary"), _match(OTHER, "variable")]


def _signs() -> list[Pattern]:
    foreign = [sign for sign in FOREIGN if sign != "!"]
    return [
        {"name": "invalid.illegal.sign.route", "match": _any(foreign)},
        *({"name": f"{scope}.route", "match": _any(signs)} for scope, signs in SIGNS.items()),
        {"name": "invalid.illegal.sign.route", "match": r"[!;]"},
        {"name": "punctuation.section.route", "match": r"[{}\[\]()]"},
        {"name": "punctuation.separator.route", "match": r"[,:.]"},
    ]
