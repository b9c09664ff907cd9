"""What a trace says of a plan: actual figures beside the expected ones, by model and by rule.

A trace holds the tokens that were kept, one a line (`trc run --trace`); dropped candidates left no token. A line at
position 0 begins another request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tokenrouter.errors import TokenRouterError
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
    return "\n".join([*_models(plan, lines), "", *_rules(plan, lines)]) + "\n"


def _models(plan: Plan, lines: list[_Line]) -> Iterator[str]:
    tokens = Counter(line.token.model for line in lines)
    handoffs: Counter[str] = Counter()
    gaps: dict[str, list[float]] = {model.name: [] for model in plan.models}
    for before, line in zip([None, *lines], lines, strict=False):
        if before is None or line.position == 0:
            continue
        handoffs[line.token.model] += line.token.model != before.token.model
        gaps[line.token.model].append(line.ms - before.ms)
    requests = sum(line.position == 0 for line in lines) or 1
    yield f"actual, {len(lines)} tokens of {requests} requests (expected from {plan.estimates.source} probabilities)"
    rows = [
        ("model", "tokens", "", "expected", "hand-offs to it a token", "expected", "ms a token")
    ]
    for model, visit in zip(plan.models, plan.estimates.by_model, strict=True):
        name = model.name
        mean = f"{sum(gaps[name]) / len(gaps[name]):.1f}" if gaps[name] else ""
        rows.append(
            (
                name,
                str(tokens[name]),
                f"{tokens[name] / len(lines):.1%}",
                f"{visit.share:.1%}",
                f"{handoffs[name] / len(lines):.3f}",
                f"{visit.handoffs_per_token:.3f}",
                mean,
            )
        )
    yield from columns(rows)


def _rules(plan: Plan, lines: list[_Line]) -> Iterator[str]:
    kept = Counter((line.token.model, line.token.rule) for line in lines)
    for at, (model, program) in enumerate(zip(plan.models, plan.programs, strict=True)):
        yield f"at {model.name}"
        rows = []
        for index, rule in enumerate(program.rules):
            n = str(kept[model.name, index]) if rule.keep else "drops"
            rows.append((str(index), n, rule_text(plan, at, rule)))
        borrowed = kept[model.name, None]
        if borrowed or not program.rules:
            rows.append(("-", str(borrowed), "borrowed stays"))
        yield from columns(rows)
