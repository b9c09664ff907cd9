"""What a trace says of a plan: actual figures beside the expected ones, by model and by rule.

A trace holds the tokens that were kept, one a line (`trc run --trace`); `plan.fired` finds the rules that dropped
candidates. A line at position 0 begins another request. Times are medians: the first steps of a process are slow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

import msgspec

from tokenrouter.errors import TokenRouterError
from tokenrouter.plan.fired import Fired, fired
from tokenrouter.plan.show import columns
from tokenrouter.plan.structs import Plan
from tokenrouter.plan.text import rule_text


class TraceError(TokenRouterError):
    """A trace cannot be read, or is not of this plan."""


class _Token(msgspec.Struct, frozen=True):
    model: str
    rule: int | None


class _Line(msgspec.Struct, frozen=True):
    position: int
    ms: float
    token: _Token


def read_trace(path: str | Path, plan: Plan) -> list[_Line]:
    """Return the lines of a trace; raises TraceError."""
    decode = msgspec.json.Decoder(_Line).decode
    names = [model.name for model in plan.models]
    lines = []
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    for number, raw in enumerate(text.splitlines(), start=1):
        if not raw.strip():
            continue
        try:
            line = decode(raw)
        except msgspec.DecodeError as error:
            raise TraceError(f"{path}, line {number}: not a line of a trace: {error}") from None
        token = line.token
        if token.model not in names:
            raise TraceError(f"{path}, line {number}: the plan has no model `{token.model}`")
        rules = plan.programs[names.index(token.model)].rules
        if token.rule is not None and not 0 <= token.rule < len(rules):
            raise TraceError(f"{path}, line {number}: `{token.model}` has no rule {token.rule}")
        lines.append(line)
    if not lines:
        raise TraceError(f"{path}: the trace holds no token")
    return lines


def analyze(plan: Plan, lines: list[_Line]) -> str:
    """Return actual figures beside the expected ones."""
    requests = list(_requests(lines))
    found = _fired(plan, requests)
    blocks = [
        _models(plan, requests),
        *(_rules(plan, at, found) for at in range(len(plan.models))),
        _idle(plan, found),
        _speed(plan, requests),
    ]
    return "\n\n".join("\n".join(block) for block in map(list, blocks) if block) + "\n"


def shares(plan: Plan, lines: list[_Line]) -> dict[str, dict[int, float]]:
    """Return by model, for those that decided at all, the share of its decisions on which each rule fired."""
    found = _fired(plan, list(_requests(lines)))
    out: dict[str, dict[int, float]] = {}
    for at, model in enumerate(plan.models):
        n = found.decisions(at)
        if n:
            counts = {
                index: float(found.rules[at, index])
                for index in range(len(plan.programs[at].rules))
            }
            for (where, group), some in found.unsure.items():
                for index in group if where == at else ():
                    counts[index] += some / len(group)
            out[model.name] = {index: count / n for index, count in counts.items()}
    return out


def _fired(plan: Plan, requests: list[list[_Line]]) -> Fired:
    names = {model.name: at for at, model in enumerate(plan.models)}
    return fired(
        plan, [[(names[line.token.model], line.token.rule) for line in one] for one in requests]
    )


def _requests(lines: list[_Line]) -> Iterator[list[_Line]]:
    """Yield the lines of each request."""
    begins = [at for at, line in enumerate(lines) if line.position == 0 or at == 0]
    for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True):
        yield lines[begin:end]


def _models(plan: Plan, requests: list[list[_Line]]) -> Iterator[str]:
    tokens = Counter(line.token.model for one in requests for line in one)
    handoffs: Counter[str] = Counter()
    gaps: dict[str, list[float]] = {model.name: [] for model in plan.models}
    for before, line in (pair for one in requests for pair in pairwise(one)):
        handoffs[line.token.model] += line.token.model != before.token.model
        gaps[line.token.model].append(line.ms - before.ms)
    n = tokens.total()
    some = "1 request" if len(requests) == 1 else f"{len(requests)} requests"
    yield f"actual: {n} tokens of {some}; expected: from {plan.estimates.source} probabilities"
    rows = [
        (
            "model",
            "tokens",
            "share",
            "expected",
            "hand-offs to it a token",
            "expected",
            "ms a token",
        )
    ]
    for model, visit in zip(plan.models, plan.estimates.by_model, strict=True):
        name = model.name
        rows.append(
            (
                name,
                str(tokens[name]),
                f"{tokens[name] / n:.1%}",
                f"{visit.share:.1%}",
                f"{handoffs[name] / n:.3f}",
                f"{visit.handoffs_per_token:.3f}",
                f"{median(gaps[name]):.1f}" if gaps[name] else "-",
            )
        )
    yield from columns(rows)


def _rules(plan: Plan, at: int, found: Fired) -> Iterator[str]:
    """Yield how often each rule of a model fired, beside how often it was expected to."""
    rules = plan.programs[at].rules
    asked = found.decisions(at)
    decided = f"its rules decided {_times(asked)}" if rules else "no rules"
    n_lent = found.borrowed[at]
    lent = f"; {n_lent} borrowed token{'s' * (n_lent != 1)}" if n_lent or not rules else ""
    yield f"at {plan.models[at].name}: {decided}{lent}"
    if not rules:
        return
    expected = plan.estimates.rules[at] if plan.estimates.rules else []
    lines = {rule.rule: rule.line for rule in plan.provenance.rules if rule.model == at}
    unsure = {index for model, group in found.unsure if model == at for index in group}
    rows = [("rule", "fired", "share", "expected", "", "")]
    for index, rule in enumerate(rules):
        n = found.rules[at, index]
        rows.append(
            (
                str(index),
                f"{n}+" if index in unsure else str(n),
                f"{n / asked:.0%}" if asked and index not in unsure else "-",
                f"{expected[index]:.0%}" if index < len(expected) else "-",
                f"line {lines[index]}" if index in lines else rule.source,
                rule_text(plan, at, rule),
            )
        )
    yield from columns(rows)
    for (model, group), n in found.unsure.items():
        if model == at:
            which = " or ".join(map(str, group))
            yield f"  +: {_times(n)} rule {which} dropped a candidate; the trace does not tell which"


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n} times"


def _idle(plan: Plan, found: Fired) -> Iterator[str]:
    """Yield the rules that never fired."""
    unsure = {(model, index) for model, group in found.unsure for index in group}
    lines = {(rule.model, rule.rule): f", line {rule.line}" for rule in plan.provenance.rules}
    idle = [
        f"  {plan.models[at].name}, rule {index}{lines.get((at, index), '')}: {rule_text(plan, at, rule)}"
        for at, program in enumerate(plan.programs)
        for index, rule in enumerate(program.rules)
        if not found.rules[at, index] and (at, index) not in unsure
    ]
    if idle:
        yield "rules that never fired here"
        yield from idle


def _speed(plan: Plan, requests: list[list[_Line]]) -> Iterator[str]:
    """Yield tokens/s beside what is expected of a request alone, and the windows that it met."""
    seconds = sum(one[-1].ms - one[0].ms for one in requests) / 1000
    steps = sum(len(one) - 1 for one in requests)
    windows = plan.windows
    if steps and seconds > 0.0:
        yield f"tokens/s of a request, from its first token on: {steps / seconds:.3g}"
        if plan.estimates.tokens_per_s:
            of = f"{windows.source} step times"
            of += f" of {windows.machine}" if windows.machine else ""
            yield f"  expected for one alone (N=1): {plan.estimates.tokens_per_s[0]:.3g}, from {of}"
            row = ", ".join(
                f"{model.name} {entry[0]}"
                for model, entry in zip(plan.models, windows.table, strict=True)
            )
            yield f"  windows at N=1: {row}"
