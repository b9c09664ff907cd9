"""Which rule fires under values that somebody types: a test case like those of `trc test`, through the same evaluator.

A case is written from the fields and put behind the policy, so that its values are read, typed and refused by the front end as
in a file, and the route programs decide it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tokenrouter.compiler import ir, trial
from tokenrouter.compiler.expr import (
    Aggregate,
    ClassOf,
    Expr,
    FieldOf,
    HeadOf,
    ParamOf,
    SignalOf,
    TokenIs,
    VarOf,
    walk,
)
from tokenrouter.compiler.ir import Automaton, action
from tokenrouter.dsl.load import study
from tokenrouter.lsp.book import Book, Document
from tokenrouter.plan.literal import quote, value_text
from tokenrouter.playground.replies import Field, Fired, Place, RuleLine
from tokenrouter.signals import CLASSES, SIGNALS

START = "start"
UNREAD = "a value cannot be read"
TOKEN, CLASS = "token", "class"


def places(auto: Automaton) -> list[Place]:
    """Return where rules are tried, with what they read."""
    start = [RuleLine(_start_text(rule), rule.span.line - 1) for rule in auto.start]
    asked = [rule.when for rule in auto.start if rule.when is not None]
    found = [Place(START, _fields(auto, asked), start)] if len(start) > 1 else []
    for state in auto.states:
        if state.rules:
            lines = [RuleLine(_text(rule), _line(rule)) for rule in state.rules]
            found.append(Place(state.model, _fields(auto, list(_asked(state.rules))), lines))
    return found


def _start_text(rule: ir.StartRule) -> str:
    went = action(True, rule.go).removeprefix("commit then ")
    return f"{'otherwise' if rule.when is None else f'when {rule.when}'} -> {went}"


def _text(rule: ir.Rule) -> str:
    if rule.source == "fallback":
        return f"otherwise -> {action(rule.keep, rule.go)}  (where `enforce` leaves no other rule)"
    return rule.text + ("  (guarded by `enforce`)" if rule.source == "enforced" else "")


def _line(rule: ir.Rule) -> int | None:
    return None if rule.source == "fallback" else rule.span.line - 1


def _asked(rules: tuple[ir.Rule, ...]) -> Iterator[Expr]:
    for rule in rules:
        if rule.when is not None:
            yield rule.when
        if isinstance(rule.go, ir.Borrow):
            yield rule.go.most


def _fields(auto: Automaton, asked: list[Expr]) -> list[Field]:
    """Return what some expressions read, each once: signals first, then what holds by default."""
    found: dict[str, Field] = {}
    for part in (part for expr in asked for part in walk(expr)):
        field = _field(auto, part)
        if field is not None:
            found.setdefault(field.name, field)
    return sorted(found.values(), key=lambda field: (field.kind == "value", bool(field.value)))


def _field(auto: Automaton, part: Expr) -> Field | None:
    match part:
        case SignalOf():
            kind = SIGNALS[part.name]
            return Field(str(part), "value", f"{kind.meaning}, {kind.unit}")
        case HeadOf():
            return Field(str(part), "value", "a head: a probability from 0 to 1")
        case Aggregate():
            return Field(str(part), "value", f"over {part.n} steps; else this step alone")
        case TokenIs():
            return Field(TOKEN, "token", 'the candidate, as it is or in quotes: "\\n"')
        case ClassOf():
            return Field(CLASS, "class", f"one of {', '.join(CLASSES)}")
        case ParamOf(name=name):
            value = next(p.value for p in auto.params if p.name == name)
            return Field(name, "value", "a param", value_text(value))
        case VarOf(name=name):
            value = next(v.value for v in auto.vars if v.name == name)
            return Field(name, "value", "a variable of the request", value_text(value))
        case FieldOf():
            return Field(str(part), "value", "a field of the request", value_text(part.default))
        case _:  # an operation, or a literal
            return None


def fire(
    document: Document, book: Book, auto: Automaton, place: str, given: dict[str, str]
) -> Fired:
    """Return what happens at a place of a sound policy under values as they are typed."""
    asked = next((p for p in places(auto) if p.name == place), None)
    if asked is None:
        return Fired(None, None, "", f"`{place}` has no rules", {})
    names = [field.name for field in asked.fields if given.get(field.name, "").strip()]
    filled = {name: given[name] for name in names}
    text = document.text if document.text.endswith("\n") else document.text + "\n"
    at = START if place == START else f"at {place}"
    lines = [_supposed(name, value) for name, value in filled.items()]
    givens = " given\n" + ",\n".join(lines) if lines else ""
    expect = auto.start_model() if place == START else "commit"
    case = f'test "playground" for {auto.policy} {{ {at}{givens}\n-> {expect}\n}}\n'
    resolved = study(text + case, document.path, {}, book.read).resolved
    wrong: dict[str, str] = {}
    errors = [d for d in resolved.diagnostics if d.severity == "error"]
    if errors:
        first = text.count("\n") + 2  # the line of the first value
        for diagnostic in errors:
            row = diagnostic.span.line - first
            name = names[min(max(row, 0), len(names) - 1)] if names else ""
            wrong.setdefault(name, diagnostic.message)
        return Fired(None, None, "", UNREAD, wrong)
    policy = next(p for p in resolved.policies if p.name == auto.policy)
    outcome = next(iter(trial.run(auto, replace(policy, tests=policy.tests[-1:]))))
    return _told(auto, place, outcome)


def _told(auto: Automaton, place: str, outcome: trial.Outcome) -> Fired:
    if outcome.rule is None:
        return Fired(None, None, "", outcome.got, {})
    if place == START:
        rule = auto.start[outcome.rule]
        return Fired(outcome.rule, rule.span.line - 1, _start_text(rule), outcome.got, {})
    fired = auto.state(place).rules[outcome.rule]
    got = action(fired.keep, fired.go) + "".join(f", set {item}" for item in fired.sets)
    return Fired(outcome.rule, _line(fired), _text(fired), got, {})


def _supposed(name: str, value: str) -> str:
    """Return one supposition as a test writes it."""
    if name == TOKEN:
        written = value if value.startswith('"') else quote(value)
        return f"token is {written}"
    if name == CLASS:
        return f"class is {value}"
    return f"{name} = {value}"
