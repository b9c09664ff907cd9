"""Diagnostics: what is wrong with a policy, where, why, and how to mend it.

A diagnostic is a value. Passes return them, one driver collects them, a renderer prints them; nothing here
knows of files, grammars or terminals. Lines and columns count from 1; columns count code points (an editor's
UTF-16 columns are made from them at that border). Messages follow Cedar's manner: lower case, no full stop, no line
break, user text in backticks, advice apart from the message as help.

Codes are `TRnnnn` and never reused: 0xxx syntax, 1xxx names and types, 2xxx rules and reachability, 3xxx claims,
4xxx models, vocabularies and heads, 5xxx windows, 6xxx restricted Python, 7xxx plans, 9xxx internal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec

from tokenrouter.errors import TokenRouterError

Severity = Literal["error", "warning", "info"]


class Code(NamedTuple):
    """What a code stands for; its page under docs/diagnostics/ says the rest."""

    severity: Severity
    title: str


CODES: dict[str, Code] = {
    # Syntax
    "TR0101": Code("error", "a character that is not part of the language"),
    "TR0102": Code("error", "a string that is not closed"),
    "TR0103": Code("error", "an escape that strings do not have"),
    "TR0104": Code("error", "a sign of another language"),
    "TR0201": Code("error", "a token that does not fit here"),
    "TR0202": Code("error", "a sign is missing"),
    "TR0203": Code("error", "a block that is never closed"),
    "TR0204": Code("error", "a brace that closes nothing"),
    "TR0205": Code("error", "a word reserved for the next version"),
    "TR0206": Code("error", "`=` where values are compared"),
    "TR0207": Code("error", "a chain of comparisons"),
    "TR0208": Code("error", "no language version"),
    "TR0209": Code("error", "an unknown language version"),
    "TR0210": Code("error", "a word of the language as a name"),
    "TR0211": Code("error", "a unit that is none"),
    "TR0212": Code("error", "an action that is none"),
    "TR0213": Code("error", "a statement that is none"),
    "TR0214": Code("error", "a mixture without `commit then`"),
    "TR0215": Code("error", "an expression nested too deeply"),
    # Names and types
    "TR1001": Code("error", "an unknown model"),
    "TR1002": Code("error", "an unknown name in an expression"),
    "TR1003": Code("error", "an unknown policy"),
    "TR1004": Code("error", "an unknown property"),
    "TR1005": Code("error", "an unknown unit of a declaration"),
    "TR1006": Code("error", "a name declared twice"),
    "TR1007": Code("error", "a name that the language has already"),
    "TR1008": Code("error", "an unknown param in `--set`"),
    "TR1009": Code("error", "an unknown class of tokens"),
    "TR1010": Code("error", "an unknown part of a step"),
    "TR1011": Code("error", "not exactly one policy to compile"),
    "TR1012": Code("error", "an unknown request variable"),
    "TR1101": Code("error", "two units that do not go together"),
    "TR1102": Code("error", "a condition, a number or a text in the wrong place"),
    "TR1103": Code("error", "a declaration without its unit"),
    "TR1104": Code("error", "the wrong arguments"),
    "TR1105": Code("error", "a value outside its bounds"),
    "TR1106": Code("error", "a declaration without its value"),
    "TR1107": Code("error", "a fraction where a whole number must stand"),
    "TR1108": Code("error", "an order of things that have none"),
    "TR1109": Code("error", "weights that make no mixture"),
    "TR1110": Code("error", "a signal that is defined by itself"),
    "TR1111": Code("error", "a request field whose type cannot be told"),
    "TR1112": Code("error", "a `set` of what is no request variable"),
    "TR1113": Code("error", "a property is missing"),
    "TR1114": Code("error", "a property with the wrong value"),
    "TR1115": Code("error", "a head that reads other parts than its kind takes"),
    "TR1201": Code("error", "an imported file that cannot be read"),
    "TR1202": Code("error", "files that import each other"),
    "TR1301": Code("warning", "a declaration that nothing uses"),
    # Rules and reachability
    "TR2001": Code("error", "a block without `otherwise`"),
    "TR2002": Code("error", "a rule behind `otherwise`"),
    "TR2003": Code("error", "a policy without `start`"),
    "TR2004": Code("error", "the same part of a policy twice"),
    "TR2005": Code("error", "a model that has no rules"),
    "TR2006": Code("error", "a hand-off to the same model"),
    "TR2007": Code("error", "a head away from its model"),
    "TR2008": Code("error", "a start rule that reads a step"),
    "TR2009": Code("error", "a variable set twice by one rule"),
    "TR2101": Code("warning", "a model that no request reaches"),
    "TR2102": Code("warning", "a model that is never left by accident"),
    "TR2201": Code("error", "livelock"),
    "TR2301": Code("error", "a rule that can never fire"),
    "TR2302": Code("error", "a rule that earlier rules cover"),
    "TR2303": Code("warning", "a rule that always fires"),
    "TR2304": Code("warning", "a threshold at which a rule always or never fires"),
    "TR2305": Code("info", "an `otherwise` that is never reached"),
    "TR2401": Code("error", "a borrowed stay that never begins"),
    "TR2402": Code("warning", "an `until` that never holds"),
    "TR2403": Code("warning", "an `until` that always holds"),
    "TR2501": Code("warning", "a policy that depends on load"),
    "TR2502": Code("warning", "a rule that the client's text can steer"),
    "TR2601": Code("warning", "a variable that is set in vain"),
    "TR2602": Code("warning", "a variable that is never set"),
    "TR2701": Code("error", "a test that supposes what cannot be"),
    # Claims
    "TR3001": Code("error", "a claim of another form"),
    "TR3002": Code("error", "an objective that is none"),
    "TR3101": Code("error", "a guarantee that does not hold"),
    "TR3102": Code("error", "a guarantee that is not proved"),
    "TR3201": Code("error", "a bound on the fallback"),
    "TR3202": Code("error", "a start that a bound forbids"),
    "TR3203": Code("error", "a fallback without rules"),
    # Models
    "TR4101": Code("error", "vocabularies that differ"),
    "TR4102": Code("warning", "ends of sequence that differ"),
    "TR4103": Code("warning", "chat templates that differ"),
    "TR4104": Code("error", "fewer rows than ids"),
    "TR4105": Code("error", "ranks that cannot share a model"),
    # Heads
    "TR4201": Code("error", "a head's file that is not there"),
    "TR4202": Code("error", "a file that is no head"),
    "TR4203": Code("error", "a head of another kind"),
    "TR4204": Code("error", "a head for another hidden state"),
    "TR4205": Code("error", "a head that reads more logits than there are"),
    # Restricted Python
    "TR6001": Code("error", "a file that is not Python"),
    "TR6002": Code("error", "a statement outside the subset of Python"),
    "TR6003": Code("error", "an import of something else"),
    "TR6004": Code("error", "an expression outside the subset of Python"),
    "TR6005": Code("error", "a step function of another form"),
    "TR6006": Code("error", "the wrong arguments of a declaration"),
    "TR6007": Code("error", "names that are not imported"),
}


class Span(msgspec.Struct, frozen=True, order=True):
    """A half-open range of one source: offsets in code points, lines and columns from 1."""

    start: int
    end: int
    line: int
    column: int
    end_line: int
    end_column: int
    file: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """A second place that explains the first, as in «`tau` is declared here in nats»."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the text of `span` by `text`."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A mend that a tool can apply; a safe one never changes what a correct policy means."""

    title: str
    edits: tuple[Edit, ...]
    safe: bool


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem. `code` is stable and has a page under docs/diagnostics/."""

    code: str
    severity: Severity
    message: str
    span: Span
    labels: tuple[Label, ...] = field(default=())
    help: str = ""
    fix: Fix | None = None


class PolicyError(TokenRouterError):
    """A policy has errors; `diagnostics` holds all of them, in source order, `texts` the sources by their names."""

    def __init__(self, diagnostics: list[Diagnostic], texts: dict[str, str] | None = None) -> None:
        super().__init__("; ".join(f"{d.code} {d.message}" for d in diagnostics))
        self.diagnostics = diagnostics
        self.texts = texts or {}
