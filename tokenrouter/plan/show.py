"""A plan as a page of text, the way a database prints a query plan: what runs, why, and what is expected of it.

The words of the claims are never mixed: what is computed from probabilities is `expected`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenrouter.plan.hash import hashes
from tokenrouter.plan.literal import number, value_text
from tokenrouter.plan.nodes import reads_load
from tokenrouter.plan.structs import Admit, Extend, Load, Model, Plan, Send, Subserver, Task
from tokenrouter.plan.text import node_text, rule_text, start_text

MOST_RUNS = 10  # of a row of windows; a longer row is shown at some N


def show(plan: Plan) -> str:
    """Return a plan as text."""
    blocks = [
        _head(plan),
        _models(plan),
        _dials(plan),
        _start(plan),
        *(_program(plan, at) for at in range(len(plan.models))),
        *(_graph(plan, at) for at in range(len(plan.models))),
        _windows(plan),
        _claims(plan),
        _expected(plan),
    ]
    return "\n\n".join("\n".join(block) for block in map(list, blocks) if block) + "\n"


def _head(plan: Plan) -> Iterator[str]:
    program, tuning = hashes(plan)
    edited = (program, tuning) != (plan.program_hash, plan.tuning_hash)
    yield f"policy {plan.policy}, from {plan.provenance.source}"
    yield f"  program {program[:16]}  tuning {tuning[:16]}" + (
        "  (edited by hand)" if edited else ""
    )
    if reads_load(plan):
        yield "  not reproducible: rules read load signals; a trace's `loads` replay what was served"
    yield f"  plan version {plan.plan_version}, by {plan.producer}, {plan.provenance.created}"


def _models(plan: Plan) -> Iterator[str]:
    yield "models"
    rows = [_model(model) for model in plan.models]
    yield from columns(
        [("name", "use", "family", "dtype", "layers", "KV a token", "cost", "prefill"), *rows]
    )
    tokenizer = plan.tokenizer
    ends = ", ".join(map(str, tokenizer.eos_ids)) or "none"
    template = plan.models[tokenizer.template_from].name
    yield f"  one vocabulary of {tokenizer.size} ids; end of sequence: {ends}; chat template of {template}"


def _model(model: Model) -> tuple[str, ...]:
    dtype = model.dtype if model.quantize == "none" else f"{model.dtype} {model.quantize}"
    parallel = "" if model.tensor_parallel == 1 else f" x{model.tensor_parallel}"
    return (
        model.name,
        model.use,
        model.family,
        dtype + parallel,
        str(model.layers),
        size(model.kv_bytes_per_token),
        number(model.cost),
        model.prefill,
    )


def _dials(plan: Plan) -> Iterator[str]:
    for param in plan.params:
        bounds = ""
        if param.low is not None and param.high is not None:
            bounds = f" in [{number(param.low)}, {number(param.high)}]"
        yield f"param {param.name}: {param.unit} = {value_text(param.value)}{bounds}"
    for var in plan.vars:
        yield f"var {var.name}: {var.unit} = {value_text(var.value)}"
    for head in plan.heads:
        reads = ", ".join(head.reads)
        model = plan.models[head.model].name
        opaque = "; opaque to every analysis" if head.kind == "python" else ""
        yield f"head {head.name}: {head.kind} {head.file}, reads {model}.{{{reads}}}{opaque}"


def _start(plan: Plan) -> Iterator[str]:
    yield "start"
    for rule in plan.start.rules:
        yield f"  {start_text(plan, rule)}"


def _program(plan: Plan, at: int) -> Iterator[str]:
    program = plan.programs[at]
    yield f"at {plan.models[at].name}"
    if not program.rules:
        yield "  no rules: it is only borrowed from"
    expected = plan.estimates.rules[at] if plan.estimates.rules else []
    lines = {rule.rule: rule.line for rule in plan.provenance.rules if rule.model == at}
    rows = []
    for index, rule in enumerate(program.rules):
        text = rule_text(plan, at, rule)
        mark = "" if rule.source == "policy" else rule.source
        place = f"line {lines[index]}" if index in lines else mark
        share = f"expected {expected[index]:.0%}" if index < len(expected) else ""
        rows.append((str(index), share, place, text))
    yield from columns(rows)
    for index, node in enumerate(program.untils):
        yield f"  until {index}: {node_text(plan, program.nodes, node)}"
    if program.nodes:
        yield f"  {len(program.nodes)} nodes: {_needed(plan, at)}"


def _needed(plan: Plan, at: int) -> str:
    """Return the leaves of a program: what a step must expose."""
    nodes = plan.programs[at].nodes
    leaves = [
        node_text(plan, nodes, index)
        for index, node in enumerate(nodes)
        if node.__struct_config__.tag in ("signal", "head", "token_in", "class_is", "request")
    ]
    return "reads " + ", ".join(leaves) if leaves else "reads nothing of the step"


def _graph(plan: Plan, at: int) -> Iterator[str]:
    yield f"tasks of {plan.models[at].name}"
    yield from (f"  {line}" for line in graph_lines(plan, plan.subservers[at]))


def graph_lines(plan: Plan, graph: Subserver) -> Iterator[str]:
    """Yield one line a task: what it is, and where requests go from it."""
    for task in graph.tasks:
        kind = str(task.__struct_config__.tag)
        name = task.id if task.id == kind else f"{task.id} ({kind})"
        ways = [
            f"-> {edge.target}" if edge.label == "next" else f"{edge.label} -> {edge.target}"
            for edge in graph.edges
            if edge.source == task.id
        ]
        yield f"{name + _detail(plan, task):<24} {', '.join(ways)}".rstrip()


def _detail(plan: Plan, task: Task) -> str:
    match task:
        case Admit():
            return f" {task.prefill}"
        case Extend(hidden=True):
            return " with hidden state"
        case Send():
            return " to " + ", ".join(plan.models[peer].name for peer in task.peers)
        case _:
            return ""


def _windows(plan: Plan) -> Iterator[str]:
    windows, memory = plan.windows, plan.memory
    basis = "not tuned" if windows.source == "none" else f"from {windows.source} step times"
    yield f"windows by active requests, up to {windows.max_active} ({basis})"
    if windows.machine:
        yield f"  step times of {windows.machine}"
    if windows.note:
        yield f"  {windows.note}"
    for model, row in zip(plan.models, windows.table, strict=True):
        yield f"  {model.name}: {runs(row)}"
    yield f"  longest wait {number(windows.max_wait_ms)} ms; objective {windows.objective}"
    if windows.optimality_gap is not None:
        at = "" if windows.gap_at is None else f" at N={windows.gap_at}"
        yield f"  {1 - windows.optimality_gap:.1%} of the best launch policy of any kind{at}"
    yield (
        f"memory: {size(memory.budget_bytes)} of KV hold {memory.capacity_tokens} tokens a model, "
        f"in pages of {memory.page_size}"
    )


def narrowed(plan: Plan) -> str | None:
    """Return what a request may have where the KV pools hold less than the context that all models read; None where they do not."""
    if plan.longest == plan.context:
        return None
    return (
        f"a request may have {plan.longest} tokens, prompt and answer together: the KV pools hold no more, "
        f"where the models read {plan.context}"
    )


def runs(row: list[int]) -> str:
    """Return a row of windows as runs of equal entries, `1 at N=1..12, 2 at N=13`; a long one at some N only."""
    parts, begin = [], 0
    for at in range(1, len(row) + 1):
        if at == len(row) or row[at] != row[begin]:
            last = f"N={begin + 1}" if at - begin == 1 else f"N={begin + 1}..{at}"
            parts.append(f"{row[begin]} at {last}")
            begin = at
    if len(parts) <= MOST_RUNS:
        return ", ".join(parts)
    shown = [n for n in (1, 2, 3, *(2**i for i in range(2, 11))) if n < len(row)]
    return ", ".join(f"{row[n - 1]} at N={n}" for n in [*shown, len(row)]) + ", and between"


def _claims(plan: Plan) -> Iterator[str]:
    if plan.claims:
        yield "claims"
        yield from columns([(claim.status, claim.text, claim.evidence) for claim in plan.claims])


def _expected(plan: Plan) -> Iterator[str]:
    estimates = plan.estimates
    yield f"expected, from {estimates.source} probabilities"
    rows = [("model", "tokens", "hand-offs to it a token", "reached")]
    for model, visit in zip(plan.models, estimates.by_model, strict=True):
        rows.append(
            (
                model.name,
                f"{visit.share:.1%}",
                f"{visit.handoffs_per_token:.3f}",
                f"{visit.reached:.0%}",
            )
        )
    yield from columns(rows)
    yield f"  cost a token {estimates.cost_per_token:.3g}"
    if estimates.loads:
        yield ""
        yield f"expected load by active requests, from {plan.windows.source} step times"
        yield from columns([_load_head(plan), *map(_load_row, estimates.loads)])
    elif estimates.tokens_per_s:
        yield f"  tokens/s {estimates.tokens_per_s[0]:.0f} at N=1, {estimates.tokens_per_s[-1]:.0f} at N={len(estimates.tokens_per_s)}"


def _load_head(plan: Plan) -> tuple[str, ...]:
    by_model = [(f"{model.name} busy", "batch", "waits") for model in plan.models]
    return ("N", "tokens/s", "each", *(cell for cells in by_model for cell in cells))


def _load_row(load: Load) -> tuple[str, ...]:
    by_model = [
        (f"{m.utilisation:.0%}", f"{m.mean_batch:.3g}", f"{m.admission_delay_ms:.3g} ms")
        for m in load.by_model
    ]
    each = f"{load.tokens_per_s / load.n:.3g}"
    return (
        str(load.n),
        f"{load.tokens_per_s:.4g}",
        each,
        *(cell for cells in by_model for cell in cells),
    )


def columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows as indented columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        yield ("  " + "  ".join(cells)).rstrip()


def size(n_bytes: int) -> str:
    """Return a number of bytes for people."""
    value, unit = float(n_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.3g} {unit}"
