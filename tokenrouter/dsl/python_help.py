"""Help lines in Python: what the common checks say of `.route` texts, said of restricted Python."""

from __future__ import annotations

from dataclasses import replace

from tokenrouter.diagnostics import Diagnostic
from tokenrouter.dsl.units import DECLARABLE

# By code; a code that is not here has help that is the same in both spellings.
HELP = {
    "TR0214": "write `commit(then=mix({MODEL: WEIGHT, ...}))`",
    "TR0215": "name a part of it with a function under `@signal`",
    "TR1103": 'write `param(VALUE, unit="nats")`; there are ' + ", ".join(DECLARABLE),
    "TR1104": "as in `mean(step.entropy, 8)`, `step.mass(4)`, `step.share(MODEL)`",
    "TR1106": "give it as the first argument",
    "TR1109": "as in `mix({small: 0.7, large: 0.3})`",
    "TR1112": "declare `NAME = var(VALUE, unit=UNIT)` beside it",
    "TR1113": "give it as an argument",
    "TR2003": "write `@policy(start=MODEL)`, or a function under `@start`",
    "TR2005": "add a function under `@at(MODEL)` for it, or under `@at(ANY)`",
    "TR2006": "`commit()` alone stays where it is",
    "TR2201": "let one of these `commit(then=...)` instead of `retry(...)`",
    "TR2303": "leave the `if` out, or mend its threshold",
    "TR2305": "the last `if` of them can be left out",
    "TR3001": "write `enforce(share(M) <= 0.4)` or `guarantee(count(M) <= 100)`",
    "TR3002": "there are `throughput` and `latency`",
}
NAMES = frozenset({"TR1001", "TR1002", "TR1003", "TR1012"})  # a respelt name is the same in both
DECLARE = {
    "TR1001": 'declare it: `{0} = model("...")`',
    "TR1002": "declare it with `param`, `var` or `@signal`, or take a signal of the step",
    "TR1003": "declare it: a class under `@policy(...)`",
    "TR1012": 'declare it: `{0} = var(0, unit="count")`',
}


def in_python(diagnostic: Diagnostic, *, keep_fix: bool = False) -> Diagnostic:
    """Return a diagnostic of a Python file without what only fits the other spelling.

    Fixes of the front end are texts of the other spelling, but for those of Python alone; those of the passes fit both.
    """
    code, help_ = diagnostic.code, diagnostic.help
    if code in NAMES:
        if help_.startswith("declare it"):
            help_ = DECLARE[code].format(diagnostic.message.split("`")[1])
        return replace(diagnostic, help=help_)
    if help_ and code in HELP:
        help_ = HELP[code]
    keep_fix = keep_fix or code.startswith("TR6")
    return replace(diagnostic, help=help_, fix=diagnostic.fix if keep_fix else None)
