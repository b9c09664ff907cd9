"""What people declared, as `.route` text: models, signals and tests of a resolved policy, whichever spelling it came in.

A plan keeps these in its surface. Where the source is a `.route` file they stand as they were written, each on one line and
without comments, which are kept beside them; where it is Python they are written anew.
"""

from __future__ import annotations

from dataclasses import replace

from tokenrouter.compiler.ir import Go, action
from tokenrouter.compiler.lower import lower_expr, lower_go
from tokenrouter.compiler.naming import by_name
from tokenrouter.dsl import hir
from tokenrouter.dsl.layout import layout
from tokenrouter.dsl.parse import parse
from tokenrouter.dsl.source import Source
from tokenrouter.plan import structs as s
from tokenrouter.plan.literal import number, quote, value_text


def model_text(model: hir.Model | s.Model) -> str:
    """Return the declaration of a model."""
    parts = [f"use {quote(model.use)}", f"cost {number(model.cost)}"]
    if model.dtype != "float32":
        parts.append(f"dtype {model.dtype}")
    if model.quantize != "none":
        parts.append(f"quantize {model.quantize}")
    if model.tensor_parallel != 1:
        parts.append(f"tensor_parallel {model.tensor_parallel}")
    return f"model {model.name} {{ {'  '.join(parts)} }}"


def is_python(policy: hir.Policy) -> bool:
    """Return whether a policy was written in Python."""
    return policy.span.file.endswith(".py")


def declared(policy: hir.Policy, model: hir.Model) -> str:
    """Return the declaration of a model of a policy."""
    return model_text(model) if is_python(policy) else model.text


def signal_text(policy: hir.Policy, signal: hir.DerivedSignal) -> str:
    """Return what a derived signal stands for."""
    return str(lower_expr(by_name(signal.of))) if is_python(policy) else signal.text


def rule_text(rule: hir.Rule) -> str:
    """Return a rule, with the names of derived signals."""
    guard = "otherwise" if rule.when is None else f"when {lower_expr(by_name(rule.when))}"
    sets = "".join(f" set {item.var} = {_value(item.value)}" for item in rule.action.sets)
    return f"{guard} -> {action(rule.action.keep, _go(rule.action.go))}{sets}"


def own(block: hir.Block) -> bool:
    """Return whether a block is written for its model, and not for all."""
    return bool(block.rules) and not block.from_any


def block_text(policy: hir.Policy, block: hir.Block) -> str:
    """Return the rules of a model, one a line."""
    rules = [rule_text(rule) if is_python(policy) else rule.text for rule in block.rules]
    return "\n".join([f"at {block.model} {{", *(f"  {rule}" for rule in rules), "}"])


def head_text(head: hir.Head | s.Head, model: str) -> str:
    """Return the declaration of a head that reads a model."""
    kind = "python" if head.kind == "python" else f"kind {head.kind}  file"
    reads = f"{model}.{{{', '.join(head.reads)}}}"
    return f"head {head.name} {{ {kind} {quote(head.file)}  reads {reads} }}"


def laid_out(text: str) -> str:
    """Return a sound text as `trc fmt` lays it out."""
    return layout(parse(Source.of("policy.route", text)))


def goes(go: hir.To | hir.Mix) -> str:
    """Return what may stand behind `start`."""
    return action(True, _go(go)).removeprefix("commit then ")


def _go(go: hir.Go) -> Go:
    if isinstance(go, hir.Mix) and go.given:
        names = (model for model, _ in go.weights)
        go = replace(go, weights=tuple(zip(names, go.given, strict=True)))
    if isinstance(go, hir.Borrow):
        until = None if go.until is None else by_name(go.until)
        go = replace(go, most=by_name(go.most), until=until)
    return lower_go(go)


def _value(expr: hir.Expr) -> str:
    return str(lower_expr(by_name(expr)))


def test_text(policy: hir.Policy, test: hir.Test) -> str:
    """Return a test, one case a line."""
    cases = [case_text(case) if is_python(policy) else case.text for case in test.cases]
    head = f"test {quote(test.name)} for {policy.name} {{"
    return "\n".join([head, *(f"  {case}" for case in cases), "}"])


def case_text(case: hir.Case) -> str:
    """Return one case of a test."""
    where = "start" if case.model is None else f"at {case.model}"
    given = ", ".join(map(_given, case.given))
    expect = action(case.expect.keep, _go(case.expect.go))
    if case.model is None:
        expect = expect.removeprefix("commit then ")
    sets = "".join(f" set {item.var} = {_value(item.value)}" for item in case.expect.sets)
    return f"{where}{f' given {given}' if given else ''} -> {expect}{sets}"


def _given(item: hir.Given) -> str:
    match item.of:
        case hir.TokenIn() | hir.ClassIs():
            return str(lower_expr(item.of))
        case hir.Derived():
            return f"{item.of.name} = {value_text(item.value)}"
        case _:
            return f"{lower_expr(item.of)} = {value_text(item.value)}"
