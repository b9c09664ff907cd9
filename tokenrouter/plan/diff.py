"""What differs in meaning between two plans, told for a reviewer: models, dials, rules, claims, then tuning."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher

import msgspec

from tokenrouter.plan.hash import hashes
from tokenrouter.plan.literal import value_text
from tokenrouter.plan.show import runs
from tokenrouter.plan.structs import Plan
from tokenrouter.plan.text import node_text, rule_text, start_text


def diff(old: Plan, new: Plan) -> str:
    """Return the differences as text; '' where the two mean the same and are tuned the same."""
    before, after = hashes(old), hashes(new)
    blocks: list[str] = []
    if before.program != after.program:
        blocks.append(f"meaning: {before.program[:16]} -> {after.program[:16]}")
        blocks += list(_meaning(old, new)) or ["  the order of models, params or vars differs"]
    if before.tuning != after.tuning:
        blocks.append(f"tuning: {before.tuning[:16]} -> {after.tuning[:16]}")
        blocks += _tuning(old, new)
    return "\n".join(blocks) + "\n" if blocks else ""


def _meaning(old: Plan, new: Plan) -> Iterator[str]:
    yield from _named("model", _models(old), _models(new))
    yield from _named("param", _params(old), _params(new))
    yield from _named("var", _vars(old), _vars(new))
    yield from _named("head", _heads(old), _heads(new))
    yield from _facts("vocabulary", _vocabulary(old), _vocabulary(new))
    yield from _lines(
        "start",
        [start_text(old, rule) for rule in old.start.rules],
        [start_text(new, rule) for rule in new.start.rules],
    )
    a, b = _programs(old), _programs(new)
    for name in [*a, *(name for name in b if name not in a)]:
        yield from _lines(f"at {name}", a.get(name, []), b.get(name, []))
    yield from _lines("claims", _claims(old), _claims(new))
    if old.windows.objective != new.windows.objective:
        yield f"  objective {old.windows.objective} -> {new.windows.objective}"


def _tuning(old: Plan, new: Plan) -> Iterator[str]:
    yield from _named("model", _speeds(old), _speeds(new))
    yield from _facts("windows", _windows(old), _windows(new))
    yield from _rows(old, new)
    yield from _facts("memory", _memory(old), _memory(new))
    if old.subservers != new.subservers:
        yield "  task graphs differ"


def _models(plan: Plan) -> dict[str, dict[str, str]]:
    return {
        m.name: {
            "fingerprint": m.fingerprint[:12],
            "dtype": m.dtype,
            "quantize": m.quantize,
            "cost": value_text(m.cost),
            "stop ids": str(m.stop_ids),
            "context": str(m.context),
        }
        for m in plan.models
    }


def _speeds(plan: Plan) -> dict[str, dict[str, str]]:
    return {
        m.name: {
            "prefill": m.prefill,
            "parallelism": str(m.tensor_parallel),
            "KV bytes a token": str(m.kv_bytes_per_token),
        }
        for m in plan.models
    }


def _params(plan: Plan) -> dict[str, dict[str, str]]:
    return {
        p.name: {"value": value_text(p.value), "unit": p.unit, "bounds": f"[{p.low}, {p.high}]"}
        for p in plan.params
    }


def _vars(plan: Plan) -> dict[str, dict[str, str]]:
    return {v.name: {"value": value_text(v.value), "unit": v.unit} for v in plan.vars}


def _heads(plan: Plan) -> dict[str, dict[str, str]]:
    return {
        h.name: {
            "kind": h.kind,
            "digest": h.digest[:12],
            "model": plan.models[h.model].name,
            "reads": ", ".join(h.reads),
        }
        for h in plan.heads
    }


def _vocabulary(plan: Plan) -> dict[str, str]:
    tokenizer = plan.tokenizer
    return {
        "digest": tokenizer.digest[:12],
        "end of sequence": str(tokenizer.eos_ids),
        "chat template": plan.models[tokenizer.template_from].name,
    }


def _programs(plan: Plan) -> dict[str, list[str]]:
    out = {}
    for at, (model, program) in enumerate(zip(plan.models, plan.programs, strict=True)):
        lines = [rule_text(plan, at, rule) for rule in program.rules]
        lines += [f"until {node_text(plan, program.nodes, node)}" for node in program.untils]
        out[model.name] = lines
    return out


def _claims(plan: Plan) -> list[str]:
    return [f"{claim.text}: {claim.status}" for claim in plan.claims]


def _windows(plan: Plan) -> dict[str, str]:
    windows = plan.windows
    return {
        "max_active": str(windows.max_active),
        "max_wait_ms": value_text(windows.max_wait_ms),
    }


def _rows(old: Plan, new: Plan) -> Iterator[str]:
    """Yield how the windows of the models that both plans have differ."""
    before, after = (
        dict(zip([m.name for m in plan.models], plan.windows.table, strict=False))
        for plan in (old, new)
    )
    for name in before:
        if name in after and before[name] != after[name]:
            yield f"  windows of {name}: {runs(before[name])} -> {runs(after[name])}"


def _memory(plan: Plan) -> dict[str, str]:
    return {name: str(value) for name, value in msgspec.structs.asdict(plan.memory).items()}


def _named(
    kind: str, old: dict[str, dict[str, str]], new: dict[str, dict[str, str]]
) -> Iterator[str]:
    for name in old:
        if name not in new:
            yield f"  - {kind} {name}"
        else:
            yield from _facts(f"{kind} {name}", old[name], new[name])
    for name in new:
        if name not in old:
            yield f"  + {kind} {name}"


def _facts(what: str, old: dict[str, str], new: dict[str, str]) -> Iterator[str]:
    for field in old:
        if old[field] != new[field]:
            yield f"  {what}: {field} {_short(old[field])} -> {_short(new[field])}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _lines(what: str, old: list[str], new: list[str]) -> Iterator[str]:
    """Yield how one list of lines becomes another, unchanged lines left out."""
    if old == new:
        return
    yield f"  {what}"
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield from (f"    - {line}" for line in old[a:b])
            yield from (f"    + {line}" for line in new[c:d])
