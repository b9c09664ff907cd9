"""What differs between two plans: everything but the rules, which the caller has compared (`compiler.changes`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tokenrouter.plan.difference import Difference, Expected, Fact, Place
from tokenrouter.plan.hash import hashes
from tokenrouter.plan.literal import number, value_text
from tokenrouter.plan.show import runs, size
from tokenrouter.plan.structs import Param, Plan

Facts = dict[str, dict[str, str]]  # by name, by field


def difference(old: Plan, new: Plan, places: Sequence[Place]) -> Difference:
    """Return all that differs; `places` are the rules that do."""
    before, after = hashes(old), hashes(new)
    names = [
        Fact(kind="model", name=now, field="name", old=was, new=now)
        for was, now in renames(old, new).items()
    ]
    old = renamed(old, new)
    meaning = [*names, *_meaning(old, new)] if before.program != after.program else []
    if before.program != after.program and not meaning and not places:
        order = "the order of models, params, vars or heads"
        meaning = [Fact(kind="order", name="", field=order, old="", new="")]
    return Difference(
        same_meaning=before.program == after.program,
        same_tuning=before.tuning == after.tuning,
        program_hash=(before.program, after.program),
        tuning_hash=(before.tuning, after.tuning),
        meaning=meaning,
        places=list(places),
        tuning=list(_tuning(old, new)) if before.tuning != after.tuning else [],
        probabilities=(old.estimates.source, new.estimates.source),
        expected=list(_expected(old, new)),
    )


def _meaning(old: Plan, new: Plan) -> Iterator[Fact]:
    yield from _named("model", _models(old), _models(new))
    yield from _named("param", _params(old), _params(new))
    yield from _named("var", _vars(old), _vars(new))
    yield from _named("head", _heads(old), _heads(new))
    yield from _named("vocabulary", {"": _vocabulary(old)}, {"": _vocabulary(new)})
    yield from _named("claim", _claims(old), _claims(new))
    if old.windows.objective != new.windows.objective:
        goals = old.windows.objective, new.windows.objective
        yield Fact(kind="objective", name="", field="", old=goals[0], new=goals[1])


def renames(old: Plan, new: Plan) -> dict[str, str]:
    """Return the models that have another name in the new plan, by fingerprint."""
    here, were = {m.name for m in new.models}, {m.name for m in old.models}
    free = {m.fingerprint: m.name for m in new.models if m.name not in were}
    return {
        m.name: free[m.fingerprint]
        for m in old.models
        if m.name not in here and m.fingerprint in free
    }


def renamed(old: Plan, new: Plan) -> Plan:
    """Return the old plan with the names that the new one has for the same models."""
    names = renames(old, new)
    models = [msgspec.structs.replace(m, name=names.get(m.name, m.name)) for m in old.models]
    return msgspec.structs.replace(old, models=models)


def _tuning(old: Plan, new: Plan) -> Iterator[Fact]:
    before, after = _speeds(old), _speeds(new)
    both = before.keys() & after.keys()  # the others are told as models that came or went
    yield from _named(
        "tuning",
        {name: fields for name, fields in before.items() if name in both},
        {name: fields for name, fields in after.items() if name in both},
    )
    yield from _named("windows", {"": _windows(old)}, {"": _windows(new)})
    yield from _named("memory", {"": _memory(old)}, {"": _memory(new)})


def _models(plan: Plan) -> Facts:
    return {
        m.name: {
            "weights and tokenizer": m.fingerprint[:12],
            "dtype": m.dtype,
            "quantize": m.quantize,
            "cost": value_text(m.cost),
            "stop ids": _ids(m.stop_ids),
            "context": str(m.context),
        }
        for m in plan.models
    }


def _speeds(plan: Plan) -> Facts:
    tables = dict(zip([m.name for m in plan.models], plan.windows.table, strict=True))
    graphs = dict(zip([m.name for m in plan.models], plan.subservers, strict=True))
    return {
        m.name: {
            "windows": runs(tables[m.name]),
            "prefill": m.prefill,
            "tensor_parallel": str(m.tensor_parallel),
            "KV a token": size(m.kv_bytes_per_token),
            "tasks": ", ".join(task.id for task in graphs[m.name].tasks),
        }
        for m in plan.models
    }


def _params(plan: Plan) -> Facts:
    return {
        p.name: {"value": f"{value_text(p.value)} {p.unit}", "bounds": _bounds(p)}
        for p in plan.params
    }


def _bounds(param: Param) -> str:
    if param.low is None or param.high is None:
        return "none"
    return f"[{number(param.low)}, {number(param.high)}]"


def _vars(plan: Plan) -> Facts:
    return {v.name: {"first value": f"{value_text(v.value)} {v.unit}"} for v in plan.vars}


def _heads(plan: Plan) -> Facts:
    return {
        h.name: {
            "kind": h.kind,
            "weights": h.digest[:12],
            "reads": f"{plan.models[h.model].name}.{{{', '.join(h.reads)}}}",
        }
        for h in plan.heads
    }


def _vocabulary(plan: Plan) -> dict[str, str]:
    tokenizer = plan.tokenizer
    return {
        "digest": tokenizer.digest[:12],
        "ids": str(tokenizer.size),
        "end of sequence": _ids(tokenizer.eos_ids),
        "chat template": plan.models[tokenizer.template_from].name,
    }


def _ids(ids: list[int]) -> str:
    return ", ".join(map(str, ids)) or "none"


def _claims(plan: Plan) -> Facts:
    return {claim.text: {"": claim.status} for claim in plan.claims}


def _windows(plan: Plan) -> dict[str, str]:
    windows = plan.windows
    source = "not tuned" if windows.source == "none" else f"{windows.source} step times"
    return {
        "up to": f"{windows.max_active} requests",
        "longest wait": f"{value_text(windows.max_wait_ms)} ms",
        "from": f"{source} of {windows.machine}" if windows.machine else source,
    }


def _memory(plan: Plan) -> dict[str, str]:
    memory = plan.memory
    return {
        "KV budget": size(memory.budget_bytes),
        "page": f"{memory.page_size} tokens",
        "each pool": f"{memory.capacity_tokens} tokens",
    }


def _named(kind: str, old: Facts, new: Facts) -> Iterator[Fact]:
    """Yield how named things differ, field by field; what came or went is told with all its fields."""
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in new:
            yield Fact(kind=kind, name=name, field="", old=_all(old[name]), new=None)
        elif name not in old:
            yield Fact(kind=kind, name=name, field="", old=None, new=_all(new[name]))
        else:
            for field, was in old[name].items():
                now = new[name][field]
                if was != now:
                    yield Fact(kind=kind, name=name, field=field, old=was, new=now)


def _all(fields: dict[str, str]) -> str:
    return ", ".join(f"{field} {value}".strip() for field, value in fields.items())


def _expected(old: Plan, new: Plan) -> Iterator[Expected]:
    before, after = (
        dict(zip([m.name for m in plan.models], plan.estimates.by_model, strict=True))
        for plan in (old, new)
    )
    for name in [*before, *(name for name in after if name not in before)]:
        was, now = (
            None if visit is None else (f"{visit.share:.1%}", f"{visit.handoffs_per_token:.3f}")
            for visit in (before.get(name), after.get(name))
        )
        for at, what in enumerate((f"tokens of {name}", f"hand-offs to {name} a token")):
            yield Expected(
                what=what,
                old=None if was is None else was[at],
                new=None if now is None else now[at],
            )
    costs = f"{old.estimates.cost_per_token:.3g}", f"{new.estimates.cost_per_token:.3g}"
    yield Expected(what="cost a token", old=costs[0], new=costs[1])
    a, b = old.estimates.tokens_per_s, new.estimates.tokens_per_s
    for n in dict.fromkeys((1, min(len(a), len(b)))) if a and b else ():
        what = f"tokens/s at N={n}"
        yield Expected(what=what, old=f"{a[n - 1]:.4g}", new=f"{b[n - 1]:.4g}")


def encode(told: Difference) -> str:
    """Return a difference as JSON."""
    return msgspec.json.format(msgspec.json.encode(told), indent=2).decode() + "\n"
