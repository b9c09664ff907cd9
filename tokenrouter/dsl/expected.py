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
from tokenrouter.dsl.nearest import nearest
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
ACTION_KINDS = frozenset(word.upper() for word in ACTIONS)
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
    "elsif": "when",
    "elseif": "when",
    "accept": "commit",
    "keep": "commit",
    "reject": "retry",
    "drop": "retry",
    "discard": "retry",
    "exit": "stop",
    "halt": "stop",
    "end": "stop",
    "const": "param",
    "let": "param",
    "version": "route",
    "include": "import",
    "ensure": "enforce",
    "limit": "enforce",
    "assert": "guarantee",
    "begin": "start",
    "on": "at",
}
ENDINGS = {  # at one of these a statement that breaks off is known to
    "IMPORT", "MODEL", "HEAD", "PARAM", "VAR", "SIGNAL", "POLICY", "TEST", "START", "AT", "GUARANTEE",
    "ENFORCE", "OBJECTIVE", "FALLBACK", "TEMPLATE", "WHEN", "OTHERWISE", "RBRACE", "$END",
}  # fmt: skip
_HANDS_OVER = {  # what people write who mean that another model goes on
    "ask", "call", "delegate", "escalate", "forward", "go", "goto", "handoff", "pass", "return", "route", "send",
    "switch", "use",
}  # fmt: skip
_TO_ANOTHER = (
    "`retry MODEL` has a model decide this position anew, `commit then MODEL` the next one"
)
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
    if left >= {"NUMBER", "STRING", "TRUE", "SIGN"} and "LPAR" not in left:
        parts.append("a value")  # of a property
        left -= _STARTS_VALUE
    elif left >= {"LPAR", "NUMBER", "NAME", "STRING"}:
        parts.append("a condition" if "NOT" in left else "a value")
        left -= _STARTS_VALUE | {"NOT"}
    elif left >= {"COMPARE", "SIGN"}:
        parts.append("an operator")
        left -= _OPERATORS | _UNITS
    if left >= {"NATS", "MS", "PERCENT"}:
        parts.append("a unit")
        left -= _UNITS
    if "PROBE" in left:
        parts.append("an action (`commit`, `retry`, `borrow` or `stop`)")
        left -= {"FUSE", "VERIFY", "PROBE", "UNDO", "COMMIT", "RETRY", "BORROW", "STOP", "MIX"}
    order = sorted(left, key=lambda kind: (kind not in _CLASSES, spelling(kind)))
    parts += [spelling(kind) for kind in order if kind != "$END" or len(order) < 3]
    if len(parts) == 1:
        return parts[0]
    return f"{', '.join(parts[:-1])} or {parts[-1]}"


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
    row = tokens.real[max(0, at - 40) : at]
    for before, after in zip(reversed(row), [token, *reversed(row)], strict=False):
        if tokens.kinds[after] == "MOST":
            continue  # its `at` begins nothing
        if tokens.kinds[before] in FORMS:
            return f"it is written `{FORMS[tokens.kinds[before]]}`"
    return ""


def outside(tokens: Tokens, token: int) -> Diagnostic:
    """TR0201: a statement stands outside of the block that it is of."""
    kind, text = tokens.kinds[token], tokens.text(token)
    if kind in MEMBERS:
        block, help_ = "a policy", f"policy NAME {{ start MODEL  {text} ... }}"
    else:
        block, help_ = "the rules of a model", f"at MODEL {{ {text} ... }}"
    return Diagnostic(
        "TR0201",
        "error",
        f"`{text}` stands outside of {block}",
        tokens.source.span(tokens.starts[token], tokens.end(token)),
        help=f"it stands in {block}: `{help_}`",
    )


def too_many(tokens: Tokens, brace: int, token: int) -> Diagnostic:
    """TR0204: a `}` closes a block that goes on."""
    span = tokens.source.span(tokens.starts[brace], tokens.end(brace))
    text = tokens.text(token)
    place = tokens.source.span(tokens.starts[token], tokens.end(token))
    return Diagnostic(
        "TR0204",
        "error",
        f"this `}}` closes its block too early: `{text}` still belongs to it",
        span,
        (Label(place, "what still belongs to it"),),
        fix=Fix("remove it", (Edit(span, ""),), safe=True),
    )


def incomplete(stack: Stack, token: int, kinds: set[str]) -> Diagnostic | None:
    """TR0201: a statement breaks off; what is missing is missing at its end, wherever the next one begins."""
    tokens = stack.tokens
    ends = tokens.kinds[token]
    at = bisect_left(tokens.real, token)
    if at == 0 or ends not in ENDINGS or not kinds.isdisjoint(ENDINGS - {"AT"}):
        return None
    before = tokens.real[at - 1]
    what = describe(kinds)
    if "ARROW" in kinds:
        what = "`->` and an action"
    elif "AT" in kinds:
        what = "`at most N`"
    end = tokens.end(before)
    return Diagnostic(
        "TR0201",
        "error",
        f"{what} must follow {found(tokens, before)}",
        tokens.source.span(end, end),
        help=form(tokens, token, kinds),
    )


def unexpected(stack: Stack, token: int, opened: bool) -> Diagnostic:
    """Return what is wrong with a token that nothing here can go on with."""
    tokens = stack.tokens
    kind, text = tokens.kinds[token], tokens.text(token)
    span = tokens.source.span(tokens.starts[token], tokens.end(token))
    if kind == "RBRACE" and not opened:
        away = Fix("remove it", (Edit(span, ""),), safe=True)
        return Diagnostic("TR0204", "error", "this `}` closes nothing", span, fix=away)
    if text in PLANNED:
        return reserved(text, span)
    if kind == "NAME" and stack.accepts(["COMMIT"]):
        near = nearest(text, ACTIONS) if text not in SYNONYMS else SYNONYMS[text]
        if text in _HANDS_OVER or near not in ACTIONS:
            return Diagnostic("TR0212", "error", f"`{text}` is no action", span, help=_TO_ANOTHER)
        return Diagnostic(
            "TR0212",
            "error",
            f"`{text}` is no action",
            span,
            help=f"did you mean `{near}`?",
            fix=Fix(f"write `{near}`", (Edit(span, near),), safe=False),
        )
    kinds = accepted(stack)
    broken = incomplete(stack, token, kinds)
    if broken is not None:
        return broken
    if kind == "MIX" and "NAME" in kinds:
        return Diagnostic(
            "TR0214",
            "error",
            "a mixture draws the model after a token that is kept",
            span,
            help="write `commit then mix { ... }`",
        )
    if not kinds.isdisjoint({"NUMBER", "NATS"}) and "LPAR" not in kinds:
        literal = _no_literal(stack, token, kinds)
        if literal is not None:
            return literal
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
            fix=Fix(f"write `{near}`", (Edit(span, near),), safe=near in ("when", "otherwise"))
            if near
            else None,
        )
    if (kind in MEMBERS and "POLICY" in kinds) or (
        kind in ("WHEN", "OTHERWISE") and kinds & {"POLICY", "AT"}
    ):
        return outside(tokens, token)
    return _not_here(tokens, token, kinds)


def _no_literal(stack: Stack, token: int, kinds: set[str]) -> Diagnostic | None:
    """TR0201: a name, or a sum, stands where a literal must; None where it is not that."""
    tokens = stack.tokens
    kind, text = tokens.kinds[token], tokens.text(token)
    span = tokens.source.span(tokens.starts[token], tokens.end(token))
    if kind == "NAME" and "NAME" not in kinds and {"NUMBER", "TRUE"} <= kinds:
        near = nearest(text, ("true", "false"))
        message = f"a literal must stand here, and `{text}` is none"
        help_ = f"did you mean `{near}`?" if near else "write out a number, `true` or `false`"
        fix = Fix(f"write `{near}`", (Edit(span, near),), safe=False) if near else None
        return Diagnostic("TR0201", "error", message, span, help=help_, fix=fix)
    if kind in ("SIGN", "TIMES") and "NATS" in kinds and kinds.isdisjoint({"SIGN", "TIMES"}):
        message = "a literal must stand here: nothing is reckoned in a declaration"
        help_ = "write the result; `signal NAME = ...` names an expression"
        return Diagnostic("TR0201", "error", message, span, help=help_)
    return None


def _not_here(tokens: Tokens, token: int, kinds: set[str]) -> Diagnostic:
    """TR0201: something else must stand here."""
    kind, text = tokens.kinds[token], tokens.text(token)
    span = tokens.source.span(tokens.starts[token], tokens.end(token))
    help_, fix = form(tokens, token, kinds), None
    if kind == "COMMA" and not kinds.isdisjoint({"ARROW", "AND"}):
        help_ = "conditions are joined with `and` and `or`"
    if kind == "LBRACE" and token == tokens.real[0]:
        help_ = "this may be a plan, which `trc decompile` writes a policy from: a policy file begins with `route 1`"
    if kind == "THEN":
        help_ = "only `commit then ...` names who is next: `commit then MODEL`"
    if (kind in ACTION_KINDS or kind == "ARROW") and "OTHERWISE" in kinds:
        help_ = "a rule is `when CONDITION -> ACTION` or `otherwise -> ACTION`"
    if kind == "STRING" and "NAME" in kinds and "RBRACE" not in kinds and text[1:-1].isidentifier():
        fix = Fix("remove the quotes", (Edit(span, text[1:-1]),), safe=True)
    if kind in ("FOR", "UNTIL") and not help_:
        help_ = "only `borrow MODEL for N` and `borrow MODEL until ...` hand over for a while"
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


def word_as_name(text: str, span: Span, before: str = "") -> Diagnostic:
    """TR0210; `before` is the kind of the token before."""
    help_ = f"another name will do, such as `{text}_`"
    if (text, before) == ("stop", "THEN"):
        help_ = "`stop` alone keeps the token and ends the request"
    if (text, before) == ("start", "AT"):
        help_ = "rules of the start stand in `start { ... }`, their tests are `start given ... -> MODEL`"
    return Diagnostic(
        "TR0210",
        "error",
        f"`{text}` is a word of the language and cannot be a name",
        span,
        help=help_,
    )
