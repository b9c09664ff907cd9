"""What a syntax error says.

It reads the parser's stack and changes nothing. Reports:
    TR0201  a token that nothing here can go on with
    TR0202  a sign that is missing
    TR0203  blocks that are never closed
    TR0204  a `}` that closes nothing
    TR0205  a word reserved for the next version
    TR0210  a word of the language where a name must stand
    TR0211  a unit that is none
    TR0212  an action that is none
    TR0213  a statement that is none
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Protocol

from tokenrouter.diagnostics import Diagnostic, Edit, Fix, Label, Span
from tokenrouter.dsl.lexer import Tokens
from tokenrouter.dsl.nearest import did_you_mean, nearest
from tokenrouter.dsl.table import table

KINDS = (
    "prob",
    "count",
    "share",
    "number",
    "bool",
)  # of values, none of which is written behind one
UNITS = ("nats", "nats^2", "%", "ms", "tokens", "tokens/s")
ACTIONS = ("commit", "retry", "borrow", "stop")
PLANNED = {
    "fuse": "combine the distributions of several models at one position",
    "verify": "have a model check a drafted run in one pass",
    "probe": "step and commit nothing",
    "undo": "take back tokens that are committed",
}
FORMS = {  # how a statement goes on behind its word
    "IMPORT": 'import "other.route"',
    "MODEL": 'model NAME { use "..." }',
    "HEAD": 'head NAME { file "..."  reads MODEL.{hidden, logits, token} }',
    "PARAM": "param NAME: UNIT = VALUE in [LOW, HIGH]",
    "VAR": "var NAME: UNIT = VALUE",
    "SIGNAL": "signal NAME = EXPRESSION",
    "POLICY": "policy NAME { start MODEL  at MODEL { ... } }",
    "TEST": 'test "NAME" for POLICY { at MODEL given SIGNAL = VALUE -> ACTION }',
    "AT": "at MODEL { when CONDITION -> ACTION  otherwise -> ACTION }",
    "WHEN": "when CONDITION -> ACTION",
    "OTHERWISE": "otherwise -> ACTION",
    "GIVEN": "at MODEL given SIGNAL = VALUE -> ACTION",
    "GUARANTEE": "guarantee share(MODEL) <= 40%",
    "ENFORCE": "enforce share(MODEL) <= 40%",
    "OBJECTIVE": "objective throughput where speed >= 20 tokens/s",
    "FALLBACK": "fallback MODEL",
    "TEMPLATE": "template from MODEL",
    "RETRY": "retry MODEL",
    "BORROW": "borrow MODEL for N` or `borrow MODEL until CONDITION at most N",
    "MIX": "mix { MODEL: WEIGHT  MODEL: WEIGHT }",
    "SET": "set VAR = VALUE",
}
SYNONYMS = {  # words of other languages
    "if": "when",
    "elif": "when",
    "case": "when",
    "else": "otherwise",
    "default": "otherwise",
    "accept": "commit",
    "keep": "commit",
    "reject": "retry",
    "exit": "stop",
    "halt": "stop",
    "end": "stop",
}
MEMBERS = {"AT", "START", "GUARANTEE", "ENFORCE", "OBJECTIVE", "FALLBACK", "TEMPLATE"}
ARROWS = {"COLON", "THEN", "LBRACE", "ASSIGN", "COMMA"}  # what stands where `->` is meant
_STARTS_VALUE = {"LPAR", "NUMBER", "NAME", "STRING", "TRUE", "FALSE", "SIGN"}
_OPERATORS = {"COMPARE", "ASSIGN", "SIGN", "TIMES", "AND", "OR", "IS", "IN", "NOT", "DOT", "LPAR"}
_UNITS = {"NATS", "NATS_SQUARED", "PERCENT", "MS", "TOKENS", "TOKENS_A_SECOND"}
_CLASSES = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a string",
    "$END": "the end of the file",
}


class Stack(Protocol):
    """What of a parser is asked here."""

    tokens: Tokens

    def accepts(self, kinds: list[str]) -> bool:
        """Return whether these tokens could follow."""


def spelling(kind: str) -> str:
    """Return a terminal as it is written, in backticks, or what it is."""
    for text, terminal in (*table().words.items(), *table().signs.items()):
        if terminal == kind:
            return f"`{text}`"
    return (
        _CLASSES.get(kind)
        or {"COMPARE": "a comparison", "SIGN": "`+` or `-`", "TIMES": "`*` or `/`"}[kind]
    )


def found(tokens: Tokens, token: int) -> str:
    """Return a token as a message names it."""
    if tokens.kinds[token] == "$END":
        return "the end of the file"
    text = tokens.text(token)
    return f"`{text if len(text) <= 24 else text[:23] + '…'}`"


def accepted(stack: Stack) -> set[str]:
    """Return every terminal that could come next."""
    known = table()
    kinds = {*known.words.values(), *known.signs.values(), *known.patterns, "$END"} - known.ignored
    return {kind for kind in kinds if stack.accepts([kind])}


def describe(kinds: set[str]) -> str:
    """Return what is expected, in a few words."""
    left, parts = set(kinds), []
    if left >= {"LPAR", "NUMBER", "NAME", "STRING"}:
        parts.append("a condition" if "NOT" in left else "a value")
        left -= _STARTS_VALUE | {"NOT"}
    elif left >= {"COMPARE", "SIGN"}:
        parts.append("an operator")
        left -= _OPERATORS | _UNITS
    if left >= {"NATS", "MS", "PERCENT"}:
        parts.append("a unit")
        left -= _UNITS
    if "PROBE" in left:
        left -= {"FUSE", "VERIFY", "PROBE", "UNDO"}
    order = sorted(left, key=lambda kind: (kind not in _CLASSES, spelling(kind)))
    parts += [spelling(kind) for kind in order if kind != "$END" or len(order) < 3]
    if len(parts) == 1:
        return parts[0]
    return f"{', '.join(parts[:-1])} or {parts[-1]}"


def missing(tokens: Tokens, before: int, token: int, kind: str) -> Diagnostic:
    """TR0202: between the tokens `before` and `token` a sign is missing."""
    sign = spelling(kind).strip("`")
    start, end = tokens.end(before), tokens.starts[token]
    gap = tokens.source.span(start, start)
    fix = Fix(
        f"insert `{sign}`", (Edit(gap, f" {sign}" if start < end else f" {sign} "),), safe=False
    )
    return Diagnostic(
        "TR0202",
        "error",
        f"`{sign}` is missing before {found(tokens, token)}",
        tokens.source.span(tokens.starts[token], tokens.end(token)),
        fix=fix,
    )


def unclosed(tokens: Tokens, braces: list[int], token: int) -> Diagnostic:
    """TR0203: these `{`, outermost first, are still open where they cannot be."""
    spans = [tokens.source.span(tokens.starts[brace], tokens.end(brace)) for brace in braces]
    what = "this block is" if len(braces) == 1 else f"{len(braces)} blocks are"
    return Diagnostic(
        "TR0203",
        "error",
        f"{what} never closed: a `}}` is missing before {found(tokens, token)}",
        spans[-1],
        tuple(Label(span, "and this block begins here") for span in reversed(spans[:-1])),
        help="close it with `}`",
    )


def form(tokens: Tokens, token: int, kinds: set[str]) -> str:
    """Return how the statement is written that a token cannot go on with; '' where one could end here."""
    if not kinds.isdisjoint({"WHEN", "OTHERWISE", "START", "POLICY"}):
        return ""
    at = bisect_left(tokens.real, token)
    for before in reversed(tokens.real[max(0, at - 40) : at]):
        if tokens.kinds[before] in FORMS:
            return f"it is written `{FORMS[tokens.kinds[before]]}`"
    return ""


def arrow(tokens: Tokens, token: int, closer: int | None) -> Diagnostic:
    """TR0104: another sign stands where `->` is meant; `closer` is the `}` that goes with a `{`."""
    span = tokens.source.span(tokens.starts[token], tokens.end(token))
    edits = [Edit(span, "->")]
    if closer is not None:
        edits.append(Edit(tokens.source.span(tokens.starts[closer], tokens.end(closer)), ""))
    return Diagnostic(
        "TR0104",
        "error",
        f"{found(tokens, token)} is written `->` here",
        span,
        help="a rule is `when CONDITION -> ACTION`",
        fix=Fix("write `->`", tuple(edits), safe=True),
    )


def assign(tokens: Tokens, token: int) -> Diagnostic:
    """TR0104: `==` stands where a name is given its value."""
    span = tokens.source.span(tokens.starts[token], tokens.end(token))
    return Diagnostic(
        "TR0104",
        "error",
        "`==` is written `=` here",
        span,
        help="`=` gives a value to a name, `==` compares",
        fix=Fix("write `=`", (Edit(span, "="),), safe=True),
    )


def belongs(kind: str, text: str, kinds: set[str]) -> str:
    """Return in which block a word stands that begins a statement of another list; '' where it begins none."""
    if kind in MEMBERS and "POLICY" in kinds:
        return f"`{text}` stands in a policy: `policy NAME {{ start MODEL  {text} ... }}`"
    if kind in ("WHEN", "OTHERWISE") and kinds & {"POLICY", "AT"}:
        return f"`{text}` stands in the rules of a model: `at MODEL {{ {text} ... }}`"
    return ""


def unexpected(stack: Stack, token: int, opened: bool) -> Diagnostic:
    """Return what is wrong with a token that nothing here can go on with."""
    tokens = stack.tokens
    kind, text = tokens.kinds[token], tokens.text(token)
    span = tokens.source.span(tokens.starts[token], tokens.end(token))
    if kind == "RBRACE" and not opened:
        return Diagnostic("TR0204", "error", "this `}` closes nothing", span, help="remove it")
    if text in PLANNED:
        return reserved(text, span)
    if kind == "NAME" and stack.accepts(["COMMIT"]):
        near = SYNONYMS.get(text)
        help_ = f"did you mean `{near}`?" if near in ACTIONS else did_you_mean(text, ACTIONS)
        return Diagnostic("TR0212", "error", f"`{text}` is no action", span, help=help_)
    kinds = accepted(stack)
    if kind == "MIX" and "NAME" in kinds:
        return Diagnostic(
            "TR0214",
            "error",
            "a mixture draws the model after a token that is kept",
            span,
            help="write `commit then mix { ... }`",
        )
    words = [word for word, terminal in table().words.items() if terminal in kinds]
    if (
        kind == "NAME"
        and "NAME" not in kinds
        and kinds.isdisjoint({"ARROW", "COMPARE"})
        and len(words) > 1
    ):
        near = SYNONYMS.get(text) if SYNONYMS.get(text) in words else nearest(text, words)
        return Diagnostic(
            "TR0213",
            "error",
            f"`{text}` begins no statement",
            span,
            help=f"did you mean `{near}`?" if near else f"here may stand {describe(kinds)}",
        )
    if kind == "$END":
        return Diagnostic(
            "TR0201",
            "error",
            f"the file ends where {describe(kinds)} must follow",
            span,
            help=form(tokens, token, kinds),
        )
    help_, fix = form(tokens, token, kinds) or belongs(kind, text, kinds), None
    if kind == "COMMA" and not help_:
        help_ = "nothing stands between statements but white space"
        fix = Fix("remove it", (Edit(span, ""),), safe=True)
    if kind == "THEN" and not help_:
        help_ = "only `commit then ...` names who is next: `commit then MODEL`"
    return Diagnostic(
        "TR0201",
        "error",
        f"expected {describe(kinds)}, found {found(tokens, token)}",
        span,
        help=help_,
        fix=fix,
    )


def reserved(word: str, span: Span) -> Diagnostic:
    """TR0205."""
    return Diagnostic(
        "TR0205",
        "error",
        f"`{word}` is reserved for the next version of the language",
        span,
        help=f"it will {PLANNED[word]}; version 1 has {', '.join(f'`{a}`' for a in ACTIONS)}",
    )


def word_as_name(text: str, span: Span) -> Diagnostic:
    """TR0210."""
    return Diagnostic(
        "TR0210",
        "error",
        f"`{text}` is a word of the language and cannot be a name",
        span,
        help=f"another name will do, such as `{text}_`",
    )


def unit(tokens: Tokens, token: int) -> Diagnostic:
    """TR0211."""
    text = tokens.text(token)
    return Diagnostic(
        "TR0211",
        "error",
        f"`{text}` is no unit",
        tokens.source.span(tokens.starts[token], tokens.end(token)),
        help=f"a value of the unit {text} is written without it"
        if text in KINDS
        else did_you_mean(text, UNITS),
    )
