"""What must hold of every plan, whoever wrote it: the compiler asks after emission, the runtime at load.

Each check returns problems, one line each; a plan with an index out of range is not looked into further, so that no
check stumbles. Programs are checked in `verify_programs`, task graphs in `verify_graphs`.

INVARIANT: a plan without problems never makes the runtime look up what is not there, and no window of it can wait
for more requests than there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite

from tokenrouter.plan import verify_graphs, verify_predictions, verify_programs
from tokenrouter.plan.structs import Param, Plan

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # as in the language


def verify(plan: Plan) -> list[str]:
    """Return what is wrong with a plan, one line each; nothing where it holds together."""
    problems = list(_shape(plan))
    if problems:
        return problems
    problems += _names(plan)
    problems += _tokenizer(plan)
    problems += _params(plan)
    problems += _windows(plan)
    problems += verify_predictions.verify(plan)
    problems += _memory(plan)
    problems += _references(plan)
    problems += verify_programs.verify(plan)
    if not problems:  # the graphs are held against the programs
        problems += verify_graphs.verify(plan)
    return problems


def _shape(plan: Plan) -> Iterator[str]:
    """Lists by model have one entry a model."""
    n = len(plan.models)
    if n == 0:
        yield "`models` is empty"
    by_model = {
        "programs": len(plan.programs),
        "subservers": len(plan.subservers),
        "windows.table": len(plan.windows.table),
        "estimates.by_model": len(plan.estimates.by_model),
    }
    for field, found in by_model.items():
        if found != n:
            yield f"`{field}` has {found} entries for {n} models"


def _names(plan: Plan) -> Iterator[str]:
    groups = {
        "models": [m.name for m in plan.models],
        "params": [p.name for p in plan.params],
        "vars": [v.name for v in plan.vars],
        "heads": [h.name for h in plan.heads],
        "policy": [plan.policy],
    }
    for group, names in groups.items():
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"`{group}` holds `{name}` twice"
        for name in names:
            if not NAME.fullmatch(
                name
            ):  # names become parts of file names and of generated sources
                yield f"`{group}` holds what is no name: {name!r}"


def _tokenizer(plan: Plan) -> Iterator[str]:
    tokenizer = plan.tokenizer
    if not 0 <= tokenizer.template_from < len(plan.models):
        yield f"`tokenizer.template_from` names no model: {tokenizer.template_from}"
    if tokenizer.eos_ids != sorted(set(tokenizer.eos_ids)):
        yield "`tokenizer.eos_ids` is not ascending"
    if not all(0 <= id_ < tokenizer.size for id_ in tokenizer.eos_ids):
        yield f"`tokenizer.eos_ids` holds an id outside the vocabulary of {tokenizer.size}"
    for model in plan.models:
        if model.vocab_size < tokenizer.size:
            yield (
                f"model `{model.name}` has {model.vocab_size} rows for a vocabulary of {tokenizer.size}"
            )
        missing = sorted(set(model.stop_ids) - set(tokenizer.eos_ids))
        if missing:
            yield f"`tokenizer.eos_ids` lacks {missing} of model `{model.name}`"
        if min(model.context, model.tensor_parallel) < 1 or model.kv_bytes_per_token < 0:
            yield f"model `{model.name}` has a size out of range"


def _params(plan: Plan) -> Iterator[str]:
    for param in plan.params:
        if not _within(param, param.value):
            yield f"param `{param.name}` is {param.value}, outside its bounds"
    for var in plan.vars:
        if not isfinite(var.value):
            yield f"var `{var.name}` is not finite"


def _within(param: Param, value: float | bool) -> bool:
    if isinstance(value, bool):
        return param.low is None and param.high is None
    low = value if param.low is None else param.low
    high = value if param.high is None else param.high
    return isfinite(value) and low <= value <= high


def _windows(plan: Plan) -> Iterator[str]:
    windows = plan.windows
    if windows.max_active < 1:
        yield "`windows.max_active` is below 1"
    if not (isfinite(windows.max_wait_ms) and windows.max_wait_ms > 0):
        yield "`windows.max_wait_ms` is not a positive time"
    for model, row in zip(plan.models, windows.table, strict=True):
        if len(row) != windows.max_active:
            yield f"the windows of `{model.name}` have {len(row)} entries for {windows.max_active}"
            return
        if min(row, default=1) < 1:
            yield f"a window of `{model.name}` is below 1"
    for n, column in enumerate(zip(*windows.table, strict=True), start=1):
        if sum(b - 1 for b in column) >= n:
            yield f"the windows {list(column)} could stop for ever with {n} active requests"
            return


def _memory(plan: Plan) -> Iterator[str]:
    memory = plan.memory
    if memory.page_size < 1:
        yield "`memory.page_size` is below 1"
        return
    if memory.capacity_tokens < memory.page_size or memory.capacity_tokens % memory.page_size:
        yield f"`memory.capacity_tokens` is no positive multiple of {memory.page_size}"
    needed = memory.capacity_tokens * sum(model.kv_bytes_per_token for model in plan.models)
    if needed > memory.budget_bytes:
        yield f"the KV pools take {needed} bytes of a budget of {memory.budget_bytes}"


def _references(plan: Plan) -> Iterator[str]:
    n = len(plan.models)
    for head in plan.heads:
        if not 0 <= head.model < n:
            yield f"head `{head.name}` reads no model of the plan: {head.model}"
    for rule in plan.provenance.rules:
        if not 0 <= rule.model < n or not 0 <= rule.rule < len(plan.programs[rule.model].rules):
            yield f"`provenance.rules` names no rule: model {rule.model}, rule {rule.rule}"
