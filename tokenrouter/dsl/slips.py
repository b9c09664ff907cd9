"""What small mistakes say after which nothing is dropped, and how each is mended.

Reports: TR0104 (a sign of another language), TR0201, TR0202, TR0211, TR0213, as `tokenrouter.dsl.mend` finds them.
"""

from __future__ import annotations

from dataclasses import replace

from tokenrouter.diagnostics import Diagnostic, Edit, Fix, Span
from tokenrouter.dsl.expected import KINDS, UNITS, form, found, spelling
from tokenrouter.dsl.findings import BEHIND
from tokenrouter.dsl.lexer import Tokens
from tokenrouter.dsl.nearest import did_you_mean, nearest

_UNIT_WORDS = {"percent": "%", "pct": "%", "millis": "ms", "msec": "ms", "tok": "tokens"}
_SECONDS = {"s", "sec", "secs", "second", "seconds"}


def _span(tokens: Tokens, first: int, last: int | None = None) -> Span:
    return tokens.source.span(tokens.starts[first], tokens.end(first if last is None else last))


def unit_like(text: str) -> str | None:
    """Return the unit that a word is meant for by all likelihood."""
    return _UNIT_WORDS.get(text.lower()) or nearest(text, UNITS)


def missing(tokens: Tokens, before: int, token: int, kind: str, sure: bool) -> Diagnostic:
    """TR0202: between the tokens `before` and `token` a sign is missing; `sure`: with it alone all is right."""
    sign = spelling(kind).strip("`")
    start, end = tokens.end(before), tokens.starts[token]
    tight = kind in ("RPAR", "RSQB", "COLON", "COMMA")
    text = ("" if tight else " ") + sign + ("" if start < end else " ")
    gap = tokens.source.span(start, start)
    here = "\n" not in tokens.source.text[start:end] and "\r" not in tokens.source.text[start:end]
    return Diagnostic(
        "TR0202",
        "error",
        f"`{sign}` is missing before {found(tokens, token)}"
        if here
        else f"`{sign}` is missing behind {found(tokens, before)}",
        _span(tokens, token) if here else gap,
        help=form(tokens, token, set()),
        fix=Fix(f"insert `{sign}`", (Edit(gap, text),), safe=False) if sure else None,
    )


def arrow(tokens: Tokens, token: int, closer: int | None) -> Diagnostic:
    """TR0104: another sign stands where `->` is meant; `closer` is the `}` that goes with a `{`."""
    span = _span(tokens, token)
    apart = tokens.kinds[token - 1] == "SPACE"
    edits = [Edit(span, "->" if apart else " ->")]
    if closer is not None:
        edits.append(Edit(_span(tokens, closer), ""))
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
    span = _span(tokens, token)
    return Diagnostic(
        "TR0104",
        "error",
        "`==` is written `=` here",
        span,
        help="`=` gives a value to a name, `==` compares",
        fix=Fix("write `=`", (Edit(span, "="),), safe=True),
    )


def respelt(problem: Diagnostic, near: str) -> Diagnostic:
    """Return what is said of a word with the one that it is meant for."""
    fix = Fix(f"write `{near}`", (Edit(problem.span, near),), safe=False)
    return replace(problem, help=f"did you mean `{near}`?", fix=fix)


def counting(tokens: Tokens, name: int, sign: int, equals: int) -> Diagnostic:
    """TR0104: `t += 1`."""
    var, written = tokens.text(name), f"{tokens.text(sign)}="
    span = _span(tokens, sign, equals)
    text = f"= {var} {tokens.text(sign)}"
    return Diagnostic(
        "TR0104",
        "error",
        f"there is no `{written}`",
        span,
        help=f"write `{var} {text} ...`",
        fix=Fix(f"write `{text}`", (Edit(span, text),), safe=False),  # what follows may be a sum
    )


def stepping(tokens: Tokens, name: int, first: int, last: int) -> Diagnostic:
    """TR0104: `t++`."""
    var, sign = tokens.text(name), tokens.text(first)
    span = _span(tokens, first, last)
    text = f"= {var} {sign} 1"
    apart = tokens.kinds[first - 1] == "SPACE"
    return Diagnostic(
        "TR0104",
        "error",
        f"there is no `{sign}{sign}`",
        span,
        help=f"write `{var} {text}`",
        fix=Fix(f"write `{text}`", (Edit(span, text if apart else f" {text}"),), safe=True),
    )


def braces(tokens: Tokens, opener: int, closer: int) -> Diagnostic:
    """TR0104: texts or classes stand in other brackets than `{ }`."""
    first, last = _span(tokens, opener), _span(tokens, closer)
    return Diagnostic(
        "TR0104",
        "error",
        f"{found(tokens, opener)} is written `{{` here",
        first,
        help='what may be is listed in braces: `token in {"a", "b"}`',
        fix=Fix("write `{ }`", (Edit(first, "{"), Edit(last, "}")), safe=True),
    )


def opens(tokens: Tokens, token: int, sure: bool) -> Diagnostic:
    """TR0104: a `:` opens a block; `sure`: something closes it."""
    span = _span(tokens, token)
    text = "{" if tokens.kinds[token - 1] == "SPACE" else " {"
    return Diagnostic(
        "TR0104",
        "error",
        "`:` is written `{` here",
        span,
        help="a block stands in `{` and `}`, however it is indented",
        fix=Fix("write `{`", (Edit(span, text),), safe=True) if sure else None,
    )


def unit(tokens: Tokens, token: int, checked: bool) -> Diagnostic:
    """TR0211; `checked`: the word, if it is a unit, is held against its place."""
    text, span, fix = tokens.text(token), _span(tokens, token), None
    like = unit_like(text)
    if text in KINDS:
        # Not safe: a part that is lost, or nothing that is held against its place, may be of another unit.
        help_ = f"a value of the unit {text} is written without it"
        fix = Fix("remove it", (Edit(span, ""),), safe=False) if checked else None
        return Diagnostic("TR0211", "error", f"`{text}` {BEHIND}", span, help=help_, fix=fix)
    if text.lower() in _SECONDS:
        help_ = "time is told in milliseconds: one second is `1000 ms`"
    elif text.lower() in ("bit", "bits"):
        help_ = "entropy is in nats: one bit is 0.693 nats"
    elif like is not None:
        help_ = f"did you mean `{like}`?"
        fix = Fix(f"write `{like}`", (Edit(span, like),), safe=False)
    else:
        help_ = did_you_mean(text, UNITS)
    return Diagnostic("TR0211", "error", f"`{text}` is no unit", span, help=help_, fix=fix)


def no_digit(tokens: Tokens, dot: int) -> Diagnostic:
    """TR0201: `.5`."""
    number = "." + tokens.text(dot + 1)
    return Diagnostic(
        "TR0201",
        "error",
        f"a number begins with a digit, and `{number}` does not",
        _span(tokens, dot, dot + 1),
        help=f"write `0{number}`",
        fix=Fix("write `0`", (Edit(_span(tokens, dot), "0."),), safe=True),
    )


def comma_in_number(tokens: Tokens, number: int) -> Diagnostic:
    """TR0201: `0,5` or `2,000`; a number, a comma and a number stand side by side."""
    whole, rest = tokens.text(number), tokens.text(number + 2)
    grouped = len(rest) == 3 and rest.isdigit() and whole != "0"
    sign = "_" if grouped else "."
    return Diagnostic(
        "TR0201",
        "error",
        f"there is no `,` in a number, as in `{whole},{rest}`",
        _span(tokens, number, number + 2),
        help=f"write `{whole}{sign}{rest}`",
        fix=Fix(f"write `{sign}`", (Edit(_span(tokens, number + 1), sign),), safe=False),
    )


def superfluous(tokens: Tokens, token: int) -> Diagnostic:
    """TR0201: without this token all is right."""
    span = _span(tokens, token)
    comma, after = tokens.kinds[token] in ("COMMA", "COLON"), tokens.text(token + 1)
    gap = 0 if comma or after.strip(" \t") else len(after)
    cut = tokens.source.span(tokens.starts[token], tokens.end(token) + gap)
    return Diagnostic(
        "TR0201",
        "error",
        f"{found(tokens, token)} is one {'word' if tokens.text(token).isalpha() else 'sign'} too many",
        span,
        help="nothing stands between statements but white space"
        if tokens.kinds[token] == "COMMA"
        else "leave it out",
        fix=Fix("remove it", (Edit(cut, ""),), safe=True),
    )


def not_first(tokens: Tokens, route: int) -> Diagnostic:
    """TR0201: `route 1` does not begin the file."""
    number = next(token for token in tokens.real if token > route)
    return Diagnostic(
        "TR0201",
        "error",
        f"`route {tokens.text(number)}` stands at the beginning of a file, before everything else, and only there",
        _span(tokens, route, number),
        help="move it to the first line; where there is one already, leave this one out",
    )


def no_when(tokens: Tokens, token: int) -> Diagnostic:
    """TR0202: a rule begins with its condition."""
    span = _span(tokens, token)
    start = tokens.source.span(tokens.starts[token], tokens.starts[token])
    return Diagnostic(
        "TR0202",
        "error",
        f"`when` is missing before {found(tokens, token)}",
        span,
        help="a rule is `when CONDITION -> ACTION`",
        fix=Fix("insert `when`", (Edit(start, "when "),), safe=True),
    )


def else_if(tokens: Tokens, first: int, last: int) -> Diagnostic:
    """TR0213: `else if` is `when` here."""
    span = _span(tokens, first, last)
    return Diagnostic(
        "TR0213",
        "error",
        "`else if` begins no statement",
        span,
        help="rules are tried in order: each begins with `when`",
        fix=Fix("write `when`", (Edit(span, "when"),), safe=True),
    )
