"""Run the `test` blocks of a policy through its route programs: the very nodes and rules that would be served.

A case gives values of some signals; the others are unknown. The first rule whose guard holds fires; where a guard before
it cannot be decided from what is given, the case fails and says what to give. Guards that `enforce` added count as
satisfied unless the case gives a count or share of the bounded model. A given token answers every question about tokens and
classes (no given text is taken for a control token: say `class is special`). A window whose value is not given holds this step only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tokenrouter.compiler import ir, programs
from tokenrouter.compiler.alike import Known, assigned, in_words, same_go
from tokenrouter.compiler.bounds import bounded
from tokenrouter.compiler.expr import (
    ClassOf,
    Every,
    Expr,
    Lit,
    ParamOf,
    SignalOf,
    TokenIs,
    VarOf,
    children,
)
from tokenrouter.compiler.ir import Automaton, action
from tokenrouter.compiler.lower import lower_expr, lower_go
from tokenrouter.compiler.unknown import Found, values
from tokenrouter.diagnostics import Span
from tokenrouter.dsl import hir
from tokenrouter.plan import structs as s
from tokenrouter.plan.structs import Value
from tokenrouter.signals import lexical_class

MANY = 1e6  # kept tokens, where a case gives a share and no position


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one case."""

    test: str
    case: hir.Case
    passed: bool
    expected: str
    got: str
    rule: int | None = None  # which fired, of the case's model or of the start
    span: Span | None = None  # its place
    text: str = ""  # as written
    source: Literal["policy", "enforced", "fallback"] = "policy"  # who wrote it


@dataclass(frozen=True, slots=True)
class _Fired:
    """The rule that fires; None where none does, or where what is `missing` would have to be known."""

    rule: int | None
    missing: str = ""


def run(auto: Automaton, policy: hir.Policy) -> Iterator[Outcome]:
    """Yield the outcome of every case of a policy's tests, in source order."""
    routes = programs.programs(auto)
    for test in policy.tests:
        for case in test.cases:
            if case.model is None:
                yield _start(auto, test, case)
            else:
                yield _at(auto, routes, test, case)


def coverage(auto: Automaton, outcomes: Sequence[Outcome]) -> list[tuple[str, ir.Rule, int]]:
    """Return the rules of the policy with their models, and how many passed cases fired each."""
    fired = Counter((o.case.model, o.rule) for o in outcomes if o.passed)
    return [
        (state.model, rule, fired[state.model, index])
        for state, index, rule in auto.rules()
        if rule.source != "fallback"
    ]


def _at(auto: Automaton, routes: list[s.Program], test: hir.Test, case: hir.Case) -> Outcome:
    go = lower_go(case.expect.go)
    expected = action(case.expect.keep, go)
    names = [decl.name for decl in auto.models]
    if case.model not in names:
        return Outcome(
            test.name, case, False, expected, f"nothing: `{case.model}` is never reached"
        )
    at = names.index(case.model)
    program, rules = routes[at], auto.states[at].rules
    if not rules:
        return Outcome(test.name, case, False, expected, f"nothing: `{case.model}` has no rules")
    given = _given(auto, program.nodes, case)
    fired = _decide(auto, program.nodes, given, program.rules, rules)
    if fired.rule is None:
        passed = not fired.missing and expected == "commit"
        return Outcome(test.name, case, passed, expected, fired.missing or "commit")
    rule = rules[fired.rule]
    if case.expect.keep and go == ir.To(case.model):
        go = ir.Stay()  # handed to the model where it is, as rules of `at any` are
    known = _known(auto, case)
    asked = [ir.Assign(item.var, lower_expr(item.value)) for item in case.expect.sets]
    expected += "".join(f" set {item}" for item in asked)
    sets = assigned(known, asked)
    passed = (
        rule.keep == case.expect.keep
        and same_go(auto, known, rule.go, go, rule.sets)
        and (not sets or sets == assigned(known, rule.sets))
    )
    got = action(rule.keep, rule.go)
    got += in_words(known, rule) if isinstance(go, ir.Borrow) and not passed else ""
    got += "".join(_set(known, item, passed) for item in rule.sets if sets)
    return Outcome(
        test.name, case, passed, expected, got, fired.rule, rule.span, rule.text, rule.source
    )


def _set(known: Known, item: ir.Assign, passed: bool) -> str:
    """Return what a rule sets, with what it comes to in a case that it fails."""
    [here] = assigned(known, [item])
    told = not passed and isinstance(here.value, Lit) and not isinstance(item.value, Lit)
    return f" set {item}" + (f", here {here.value}" if told else "")


def _known(auto: Automaton, case: hir.Case) -> dict[Expr, Lit]:
    """Return what params, vars, request fields and signals are known to be in a case."""
    known: dict[Expr, Value] = {ParamOf(d.name, d.unit): d.value for d in auto.params}
    known |= {VarOf(d.name, d.unit): d.value for d in auto.vars}
    known |= {lower_expr(item.of): item.value for item in case.given}
    known |= dict(_counts(known))
    return {
        term: Lit(value if isinstance(value, (bool, str)) else float(value), "")
        for term, value in known.items()
    }


def _start(auto: Automaton, test: hir.Test, case: hir.Case) -> Outcome:
    start = programs.start(auto)
    go = lower_go(case.expect.go)
    expected = action(True, go).removeprefix("commit then ")
    given = _given(auto, start.nodes, case)
    fired = _decide(auto, start.nodes, given, start.rules, auto.start)
    if fired.rule is None:
        return Outcome(test.name, case, False, expected, fired.missing)
    rule = auto.start[fired.rule]
    got = action(True, rule.go).removeprefix("commit then ")
    text = f"{'otherwise' if rule.when is None else f'when {rule.when}'} -> {got}"
    alike = same_go(auto, _known(auto, case), rule.go, go)
    return Outcome(test.name, case, alike, expected, got, fired.rule, rule.span, text)


def _given(auto: Automaton, nodes: list[s.Node], case: hir.Case) -> dict[int, Value]:
    """Return the values that are known at a step, by node; what the program does not ask for is left out."""
    places = programs.index(auto)
    said: dict[Expr, Value] = {lower_expr(item.of): item.value for item in case.given}
    said |= dict(_counts(said))
    out: dict[int, Value] = {}
    for expr, value in said.items():
        at = programs.find(places, nodes, expr)
        if at is not None:
            out[at] = value
    candidates = _texts(said)
    if candidates is not None:
        out = _of_text(nodes, candidates) | out
    for at, node in enumerate(nodes):
        if isinstance(node, s.ParamRef):
            out.setdefault(at, auto.params[node.param].value)
        elif isinstance(node, s.VarRef):
            out.setdefault(at, auto.vars[node.var].value)
        elif isinstance(node, s.RequestField):
            out.setdefault(at, node.default)
    return out


def _texts(said: dict[Expr, Value]) -> list[str] | str | None:
    """Return what the candidate's text may be, or its class where only that is given; None where nothing is."""
    for expr in said:
        if isinstance(expr, TokenIs):
            return list(expr.texts)
    return next((expr.name for expr in said if isinstance(expr, ClassOf)), None)


def _of_text(nodes: list[s.Node], candidates: list[str] | str) -> dict[int, Value]:
    """Return by node what follows for questions about the candidate from its text or its class."""
    out: dict[int, Value] = {}
    for at, node in enumerate(nodes):
        if isinstance(node, s.TokenIn):
            if isinstance(candidates, str):
                # A class rules texts of other classes out; it rules none in.
                answers = {False} if candidates not in map(lexical_class, node.texts) else set()
            else:
                answers = {text in node.texts for text in candidates}
        elif isinstance(node, s.ClassIs):
            if isinstance(candidates, str):
                answers = {candidates == node.name}
            else:
                answers = {lexical_class(text) == node.name for text in candidates}
        else:
            continue
        if len(answers) == 1:
            out[at] = answers.pop()
    return out


def _counts(said: dict[Expr, Value]) -> Iterator[tuple[Expr, Value]]:
    """Yield the counts that follow from given shares."""
    position = SignalOf("position")
    kept = said.get(position, MANY)
    for expr, value in said.items():
        if isinstance(expr, SignalOf) and expr.name == "share":
            yield position, kept
            count = SignalOf("count", expr.args)
            yield count, said.get(count, float(value) * float(kept))


def _decide(
    auto: Automaton,
    nodes: list[s.Node],
    given: dict[int, Value],
    rules: Sequence[s.Rule | s.StartRule],
    written: Sequence[ir.Rule | ir.StartRule],
) -> _Fired:
    """Return the first rule that fires; `written` are the same rules in the IR, to tell what is missing."""
    found = values(nodes, given)
    for index, rule in enumerate(rules):
        holds: Found = True if rule.when is None else found[rule.when]
        if holds is None and isinstance(rule, s.Rule) and rule.source == "enforced":
            holds = _leniently(nodes, found, rule.when)
        if holds and isinstance(rule.go, s.Borrow):
            most = found[rule.go.most]
            holds = None if most is None else float(most) >= 1.0
        if holds is None:
            return _Fired(None, _missing(auto, nodes, found, written[index]))
        if holds:
            return _Fired(index)
    return _Fired(None)  # even `otherwise` was a borrow below 1


def _leniently(nodes: list[s.Node], found: list[Found], guard: int | None) -> Found:
    """Return an enforced guard with its bounds held for kept, where the case says nothing of counts."""
    assert guard is not None
    node = nodes[guard]
    parts = node.of if isinstance(node, s.AllOf) else [guard]
    known = [found[part] for part in parts if not _is_bound(nodes, part)]
    bounds = [found[part] for part in parts if _is_bound(nodes, part)]
    if False in known or False in bounds:
        return False
    return None if None in known else True


def _is_bound(nodes: list[s.Node], at: int) -> bool:
    """Return whether a node is a comparison that `enforce` makes: count(M) + n <= ..."""
    node = nodes[at]
    if not isinstance(node, s.Compare) or node.sign != "<=":
        return False
    left = nodes[node.left]
    return isinstance(left, s.Arith) and left.sign == "+" and _is_count(nodes[left.left])


def _is_count(node: s.Node) -> bool:
    return isinstance(node, s.Signal) and node.name == "count"


def _parts(rule: ir.Rule | ir.StartRule) -> Iterator[Expr]:
    """Yield the conditions of a rule that a case has to decide: not the bounds that `enforce` added."""
    if rule.when is None:
        return
    enforced = isinstance(rule, ir.Rule) and rule.source == "enforced"
    for part in rule.when.of if isinstance(rule.when, Every) else (rule.when,):
        if not (enforced and bounded(part)):
            yield part


def _missing(
    auto: Automaton, nodes: list[s.Node], found: list[Found], rule: ir.Rule | ir.StartRule
) -> str:
    """Return what a case would have to give for a rule to be decided."""
    asked = list(_parts(rule))
    asked += [rule.go.most] if isinstance(rule.go, ir.Borrow) else []
    places = programs.index(auto)

    def unknown(expr: Expr) -> Iterator[Expr]:
        at = programs.find(places, nodes, expr)
        if isinstance(expr, Lit) or (at is not None and found[at] is not None):
            return
        if not children(expr):
            yield expr
        for part in children(expr):  # a window holds this step where only its signal is given
            yield from unknown(part)

    leaves = dict.fromkeys(str(part) for expr in asked for part in unknown(expr))
    return "nothing, since the case does not give " + ", ".join(f"`{leaf}`" for leaf in leaves)
