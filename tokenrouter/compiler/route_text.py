"""What people declared, as `.route` text: models, signals and tests of a resolved policy, whichever spelling it came in.

A plan keeps these in its surface. Where the source is a `.route` file they stand as they were written, each on one line and
without comments, which are kept beside them; where it is Python they are written anew.
"""

from __future__ import annotations

from tokenrouter.compiler.ir import action
from tokenrouter.compiler.lower import lower_expr, lower_go
from tokenrouter.dsl import hir
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
    return str(lower_expr(signal.of)) if is_python(policy) else signal.text


def test_text(policy: hir.Policy, test: hir.Test) -> str:
    """Return a test, one case a line."""
    cases = [case_text(case) if is_python(policy) else case.text for case in test.cases]
    head = f"test {quote(test.name)} for {policy.name} {{"
    return "\n".join([head, *(f"  {case}" for case in cases), "}"])


def case_text(case: hir.Case) -> str:
    """Return one case of a test."""
    where = "start" if case.model is None else f"at {case.model}"
    given = ", ".join(map(_given, case.given))
    expect = action(case.expect.keep, lower_go(case.expect.go))
    if case.model is None:
        expect = expect.removeprefix("commit then ")
    sets = "".join(f" set {item.var} = {lower_expr(item.value)}" for item in case.expect.sets)
    return f"{where}{f' given {given}' if given else ''} -> {expect}{sets}"


def _given(item: hir.Given) -> str:
    match item.of:
        case hir.TokenIn() | hir.ClassIs():
            return str(lower_expr(item.of))
        case hir.Derived():
            return f"{item.of.name} = {value_text(item.value)}"
        case _:
            return f"{lower_expr(item.of)} = {value_text(item.value)}"
