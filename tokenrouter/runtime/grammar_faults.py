"""What is wrong with a grammar, in one sentence for the client who wrote it, from what the grammar engine reports.

The engine's reports show its own state and data structures. Known ones become sentences of ours, and any other is told
as what it is about, no more.
"""

from __future__ import annotations

import re

COSTLY = "it is too costly: simplify it, or lower its repetitions and lengths"
NO_TEXT = "it allows no text"
MOST_QUOTED = 80  # characters of what the client wrote

_COSTLY = re.compile(
    r"too (many|big|large|complex|long)|limit|fuel|max is|exceed|stack overflow", re.I
)
_PLACE = re.compile(r"^(?:at )?(\d+)\((\d+)\): (.*)", re.S)
_REGEX = re.compile(r"regex parse error:\n(?P<shown>.*)\nerror: (?P<what>[^\n]*)", re.S)
_QUOTED = re.compile(r"[\"'`](.*?)[\"'`]", re.S)

_OF_REGEX = {
    "look-around": "look-around is not supported",
    "backreferences": "back references are not supported",
    "unclosed group": "a group is not closed",
    "unopened group": "a group is closed that was not opened",
    "unclosed character class": "a character class is not closed",
    "unclosed counted repetition": "a repetition count is not closed",
    "repetition operator missing": "a repetition has nothing to repeat",
    "repetition count range": "a repetition's least count is above its greatest",
    "character class range": "a character range ends before it begins",
    "unrecognized escape": "an escape is unknown",
    "Unicode property": "a Unicode property is unknown",
    "unrecognized flag": "a group's flag is unknown",
    "group name": "a group's name is not closed, empty or used twice",
    "decimal": "a repetition count is no number",
    "nest": "it is nested too deeply",
}

# What the engine says of JSON schemas and of its dialect of Lark, and what we say; {0} is what its report quotes.
_OTHERS = (
    (r"Unimplemented keys: \[(.*?)\]", "the keyword {0} cannot be kept to"),
    (r"Unknown format: (\S+)", "the format `{0}` is unknown"),
    (r"Invalid type: (\S+)", "`{0}` is no type of JSON"),
    (r"type must be a string", "`type` must be a string or an array of strings"),
    (r"Pointer '(.*?)' does not exist", "`$ref` names `{0}`, which the schema does not hold"),
    (r"Resource '(.*?)'", "`$ref` must stay within the schema; `{0}` does not"),
    (r"oneOf constraints", "`oneOf` cannot be kept to; `anyOf` can"),
    (r"required property '(.*?)' is unsatisfiable", "the required property `{0}` can have no value"),
    (r"Unsatisfiable schema: (.*)", "no JSON text satisfies the schema: {0}"),
    (r"^(\w+) must be (an? \w+)", "`{0}` must be {1}"),
    (r"unknown name: \"?(\w*)", "`{0}` is not defined"),
    (r"circular reference in token \"?(\w*)", "the token `{0}` refers to itself"),
    (r"Unknown common regex: ([\w.]*)", "`{0}` cannot be imported"),
    (r"no start rule", "the rule `start` is missing"),
    (r"Empty grammar", "it is empty"),
    (r"unknown grammar (\S+)", "`{0}` names another grammar, and there is none"),
    (r"lexer error$", "what stands there is no part of a grammar"),
    (r"Expected token (\S+), found", "{0} is expected there"),
    (r"NoExtension", NO_TEXT),
    (r"lookarounds? not supported|look-around", "look-around and word boundaries are not supported"),
)  # fmt: skip


def explained(report: str) -> str:
    """Return one sentence about a grammar that cannot be compiled, or not be followed any further."""
    found = _REGEX.search(report)
    if found is not None:
        return _of_regex(found["what"], found["shown"])
    place, words = "", report
    if (at := _PLACE.match(report)) is not None:
        place, words = f"line {at[1]}, column {at[2]}: ", at[3]
    words = words.split("\n")[0].split("<state>")[0]
    for pattern, sentence in _OTHERS:
        if (told := re.search(pattern, words)) is not None:
            if "invalid regex" in words:
                place = ""  # of the text that the engine made of it
            return place + sentence.format(*(_short(each) for each in told.groups()))
    if _COSTLY.search(words):
        return COSTLY
    return f"{place}it cannot be read" if place else "it cannot be followed"


def _of_regex(what: str, shown: str) -> str:
    sentence = next((ours for theirs, ours in _OF_REGEX.items() if theirs in what), None)
    sentence = sentence or "it is no regular expression that can be followed"
    lines = [line[4:] for line in shown.split("\n")]  # each is moved to the right
    if len(lines) == 2 and lines[1].strip(" ^") == "":
        at = len(lines[1]) - len(lines[1].lstrip()) + 1
        return f"{sentence}, at character {at} of `{_short(lines[0])}`"
    return sentence


def _short(text: str) -> str:
    text = text.replace('"', "`")
    return text if len(text) <= MOST_QUOTED else text[: MOST_QUOTED - 1] + "…"
