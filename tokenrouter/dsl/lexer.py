"""Text -> tokens, without loss: every character belongs to exactly one token, white space and comments included.

What is no token of the language still becomes one, with a diagnostic: signs of other languages stand for ours, a string
that is not closed ends with its line, anything else is passed over. So the parser always has something to go on with.

Reports: TR0101 stray character, TR0102 string not closed, TR0104 a sign of another language.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from unicodedata import category

from tokenrouter.diagnostics import Diagnostic, Edit, Fix
from tokenrouter.dsl.source import Source
from tokenrouter.dsl.table import table

# What people write who come from elsewhere -> what it is here.
FOREIGN = {
    "&&": "and",
    "||": "or",
    "=>": "->",
    "-->": "->",
    "==>": "->",
    "<>": "!=",
    "=<": "<=",
    "- >": "->",
    "> =": ">=",
    "< =": "<=",
    "= =": "==",
    "! =": "!=",
    "===": "==",
    "!==": "!=",
    "→": "->",
    "−>": "->",
    "–>": "->",
    "—>": "->",
    "−": "-",
    "–": "-",
    "—": "-",
    "≥": ">=",
    "≤": "<=",
    "≠": "!=",
    "!": "not ",
}
TRIVIA = frozenset({"SPACE", "COMMENT", "STRAY"})
ODD = frozenset({"STRAY", "FOREIGN", "OPEN", "WORD", "REMARK"})  # no tokens of the language
_VALUES = frozenset({"NUMBER", "SIGN", "LPAR", "TRUE", "FALSE"})  # no action begins so
_GIVES = frozenset({"GIVEN", "PARAM", "VAR", "SET"})
_ENDS = frozenset(
    {"WHEN", "OTHERWISE", "AT", "START", "LBRACE", "RBRACE", "POLICY", "TEST", "$END"}
)
MARK = "\ufeff"  # of byte order: white space at the beginning, a stray elsewhere


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a source. Token i reaches from starts[i] to starts[i + 1]; the last one is $END and empty."""

    source: Source
    kinds: list[str]
    starts: list[int]
    real: list[int]  # tokens that the parser sees: all but white space, comments and strays
    unclosed: list[int] = field(default_factory=list)  # strings that end with their line

    def text(self, token: int) -> str:
        """Return a token as written."""
        if token + 1 == len(self.starts):
            return ""
        return self.source.text[self.starts[token] : self.starts[token + 1]]

    def end(self, token: int) -> int:
        """Return the offset behind a token."""
        return self.starts[min(token + 1, len(self.starts) - 1)]


@cache
def _patterns() -> dict[str, str]:
    """Return what tokens look like, in the order of trial; signs and FOREIGN are looked up."""
    patterns, signs = table().patterns, sorted(table().signs, key=len, reverse=True)
    worded = [sign for sign in signs if sign[0].isalpha()]
    plain = [sign for sign in signs if not sign[0].isalpha()]
    foreign = sorted(FOREIGN, key=len, reverse=True)
    return {
        "SPACE": patterns["SPACE"] + f"|\\A{MARK}",
        "BRACKET": r"[(){}\[\],:%]",  # the commonest signs, which begin nothing longer
        "WORDED": "|".join(re.escape(sign) + r"(?![A-Za-z0-9_])" for sign in worded),
        "NAME": patterns["NAME"] + r"(?!\w)",
        "WORD": r"[^\W\d]\w*",
        "NUMBER": patterns["NUMBER"],
        "STRING": patterns["STRING"],
        "COMMENT": patterns["COMMENT"],
        "FOREIGN": "[><=!] =(?![=>])|- >(?!=)|-->|==>|===|!==|&&|\\|\\||=>|=<|<>|!(?!=)|[−–—]>|"
        + "|".join(f for f in foreign if len(f) == 1 and f != "!"),
        "REMARK": r"//[^\r\n]*|/\*(?s:.*?)\*/",
        "COMPARE": patterns["COMPARE"],
        "PLAIN": "|".join(re.escape(sign) for sign in plain),
        "SIGN": patterns["SIGN"],
        "TIMES": patterns["TIMES"],
        "OPEN": r'"[^\r\n]*|\'[^\'\r\n]*\'?|[“„][^”“\r\n]*[”“]?',
        "STRAY": r"(?s:.)",
    }


@cache
def _one() -> re.Pattern[str]:
    """Return a pattern for one token, whose group tells the kind."""
    return re.compile("|".join(f"(?P<{name}>{text})" for name, text in _patterns().items()))


@cache
def _any() -> re.Pattern[str]:
    """Return a pattern for one token, without groups: with it `findall` cuts a whole text."""
    return re.compile("|".join(_patterns().values()))


class _Kinds(dict[str, str]):
    """The kind of each text that was met; a text is of the same kind wherever it is a whole token."""

    def __missing__(self, text: str) -> str:
        found = _one().match(text)
        assert found is not None and found.end() == len(text), text
        kind = found.lastgroup or "STRAY"
        if kind == "NAME":
            kind = table().words.get(text, "NAME")
        elif kind in ("BRACKET", "WORDED", "PLAIN"):
            kind = table().signs[text]
        self[text] = kind
        return kind


def tokenize(source: Source) -> tuple[Tokens, list[Diagnostic]]:
    """Return the tokens of a source, and what is wrong with them."""
    texts = _any().findall(source.text)
    known = _Kinds({MARK: "STRAY"})
    kinds = [known[text] for text in texts]
    if source.text.startswith(MARK):
        kinds[0] = "SPACE"
    starts = list(accumulate(map(len, texts), initial=0))
    odd = [] if ODD.isdisjoint(kinds) else [i for i, k in enumerate(kinds) if k in ODD]
    kinds.append("$END")
    unclosed = [i for i in odd if kinds[i] == "OPEN" and not _other_quotes(texts[i])]
    problems = _settle(source, kinds, starts, odd)
    real = [i for i, kind in enumerate(kinds) if kind not in TRIVIA]
    return Tokens(source, kinds, starts, real, unclosed), problems


def _other_quotes(text: str) -> bool:
    """Return whether a string is closed by a quotation mark that is not ours."""
    return len(text) > 1 and text[0] != '"' and text[-1] in "'”“"


def _settle(
    source: Source, kinds: list[str], starts: list[int], odd: list[int]
) -> list[Diagnostic]:
    """Give every odd token the kind that it stands for, and return what is wrong with it."""
    problems: list[Diagnostic] = []
    stray_end = -1  # neighbouring strays are one mistake
    for token in odd:
        kind, start, end = kinds[token], starts[token], starts[token + 1]
        if kind == "STRAY":
            if start < stray_end:
                continue
            last = token
            while kinds[last + 1] == "STRAY":
                last += 1
            end = stray_end = starts[last + 1]
        ours = FOREIGN.get(source.text[start:end], "")
        if ours == "->" and _compares(source, kinds, starts, token):
            ours = "=" if _gives(kinds, token) else ">="
        problems.append(_odd(source, kind, start, end, ours))
        if kind == "OPEN":
            kinds[token] = "STRING"
        elif kind == "WORD":
            kinds[token] = "NAME"
        elif kind == "REMARK":
            kinds[token] = "COMMENT"
        elif kind == "FOREIGN":
            kinds[token] = _kind_of(ours.strip())
    return problems


def _gives(kinds: list[str], token: int) -> bool:
    """Return whether a sign stands where a name is given its value."""
    before = reversed(kinds[max(0, token - 40) : token])
    return next((kind for kind in before if kind in _GIVES | _ENDS | {"UNTIL"}), "") in _GIVES


def _compares(source: Source, kinds: list[str], starts: list[int], token: int) -> bool:
    """Return whether `=>` stands for `>=`: a value follows, or the arrow of its rule does."""
    if source.text[starts[token] : starts[token + 1]] != "=>":
        return False
    coming = [i for i in range(token + 1, min(token + 200, len(kinds))) if kinds[i] not in TRIVIA]
    if kinds[coming[0]] in _VALUES:
        return True
    for after in coming:
        text = source.text[starts[after] : starts[after + 1]] if kinds[after] == "FOREIGN" else ""
        if kinds[after] == "ARROW" or FOREIGN.get(text) == "->":
            return True
        if kinds[after] in _ENDS:
            break
    return False


def _kind_of(text: str) -> str:
    if text in table().words:
        return table().words[text]
    return table().signs.get(text, "SIGN" if text == "-" else "COMPARE")


def _odd(source: Source, kind: str, start: int, end: int, ours: str) -> Diagnostic:
    text, span = source.text[start:end], source.span(start, end)
    if kind == "FOREIGN":
        return Diagnostic(
            "TR0104",
            "error",
            f"`{text}` is written `{ours.strip()}` here",
            span,
            fix=Fix(f"write `{ours.strip()}`", (Edit(span, ours),), safe=True),
        )
    if kind == "REMARK":
        line = text.startswith("//")
        mend = Fix("write `#`", (Edit(span, "#" + text[2:]),), safe=True) if line else None
        return Diagnostic(
            "TR0104",
            "error",
            "a comment begins with `#` and ends with its line",
            span,
            help="" if line else "begin each of its lines with `#`",
            fix=mend,
        )
    if kind == "WORD":
        return Diagnostic(
            "TR0101",
            "error",
            f"the name `{text}` has letters beyond a-z",
            span,
            help="names are made of the letters a-z, digits and `_`",
        )
    if kind == "OPEN" and _other_quotes(text):
        inner = text[1:-1].replace('"', '\\"')
        return Diagnostic(
            "TR0104",
            "error",
            f"a string stands between double quotes, not `{text[0]}`",
            span,
            fix=Fix("use double quotes", (Edit(span, f'"{inner}"'),), safe=True),
        )
    if kind == "OPEN":
        return Diagnostic(
            "TR0102",
            "error",
            "this string is not closed on its line",
            span,
            help='end it with `"`; a line break inside a string is written `\\n`',
        )
    shown = text if text.isprintable() else " ".join(f"U+{ord(c):04X}" for c in text)
    help_, fix = "arithmetic has `+`, `-`, `*` and `/`" if set(text) == {"^"} else "", None
    if set(text) == {";"}:
        help_ = "a line break ends nothing and needs no `;`"
        fix = Fix("remove it", (Edit(span, ""),), safe=True)
    elif all(category(c) in ("Zs", "Cf", "Zl", "Zp") for c in text):
        help_ = "it shows as nothing or as a space; only ordinary spaces, tabs and line breaks may stand between words"
        fix = Fix("write a space", (Edit(span, " "),), safe=True)
    return Diagnostic(
        "TR0101", "error", f"`{shown}` is not part of the language", span, help=help_, fix=fix
    )
