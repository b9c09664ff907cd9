"""IR + facts -> plan: names become indices, estimates and memory are filled in, and the result is sealed and verified."""

from __future__ import annotations

from dataclasses import dataclass, field

from tokenrouter.compiler import assume, chain, memory, programs, tasks
from tokenrouter.compiler.facts import Facts
from tokenrouter.compiler.ir import Automaton, ModelDecl, targets
from tokenrouter.plan import structs as s
from tokenrouter.plan.hash import seal
from tokenrouter.plan.structs import MIN_READER, PLAN_VERSION, Plan
from tokenrouter.plan.verify import verify
from tokenrouter.profile.flow import Flow
from tokenrouter.version import __version__

EAGER = 0.5  # expected reach from which on a model reads the prompt at admission
LEAST_WAIT_MS = 50.0  # longest time that a window holds a request back, where nothing else is said
WIDTH = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}  # bytes a value


@dataclass(frozen=True, slots=True)
class Tuning:
    """What is chosen for the machine, not for the meaning."""

    max_active: int = 64
    max_wait_ms: float | None = None  # None: 50, or longer where the windows need it
    kv_budget: int = memory.BUDGET
    given: assume.Given = field(default_factory=dict)  # shares of rules, in place of assumed ones


def emit(
    auto: Automaton,
    facts: list[Facts],
    tuning: Tuning,
    provenance: s.Provenance,
    surface: s.Surface,
    claims: list[s.Claim],
    digests: dict[str, str],
) -> Plan:
    """Return the sealed plan of a checked policy; `facts` by model, `digests` of head files by head."""
    assume.check(auto, tuning.given)
    flow = chain.flow(auto, tuning.given)
    prefills = [_prefill(auto, decl, flow.reached[at]) for at, decl in enumerate(auto.models)]
    models = [
        _model(decl, fact, prefill)
        for decl, fact, prefill in zip(auto.models, facts, prefills, strict=True)
    ]
    place = programs.index(auto)
    heads = [
        s.Head(
            name=decl.name,
            kind=decl.kind,
            file=decl.file,
            digest=digests[decl.name],
            model=place.models[decl.model],
            reads=list(decl.reads),
        )
        for decl in auto.heads
    ]
    route = programs.programs(auto)
    graphs = [
        tasks.subserver(auto, state, program, heads, prefill)
        for state, program, prefill in zip(auto.states, route, prefills, strict=True)
    ]
    plan = Plan(
        plan_version=PLAN_VERSION,
        min_reader=MIN_READER,
        producer=f"tokenrouter {__version__}",
        policy=auto.policy,
        program_hash="",
        tuning_hash="",
        models=models,
        tokenizer=_tokenizer(auto, facts, place.models),
        params=[
            s.Param(name=d.name, unit=d.unit, value=d.value, low=d.low, high=d.high)
            for d in auto.params
        ],
        vars=[s.Var(name=d.name, unit=d.unit, value=d.value) for d in auto.vars],
        heads=heads,
        start=programs.start(auto),
        programs=route,
        subservers=graphs,
        windows=_windows(auto, tuning),
        memory=memory.split(models, tuning.kv_budget, tuning.max_active),
        claims=claims,
        estimates=_estimates(auto, flow, tuning.given),
        provenance=provenance,
        surface=surface,
    )
    problems = verify(plan)
    assert not problems, f"the compiler made a plan that does not hold together: {problems}"
    return seal(plan)


def _prefill(auto: Automaton, decl: ModelDecl, reached: float) -> tasks.Prefill:
    """Return `eager` for a model that requests start at or probably come to."""
    first = {name for rule in auto.start for name in targets(rule.go)}
    return "eager" if decl.name in first or reached >= EAGER else "lazy"


def _model(decl: ModelDecl, fact: Facts, prefill: tasks.Prefill) -> s.Model:
    width, config = WIDTH[decl.dtype], fact.config
    return s.Model(
        name=decl.name,
        use=decl.use,
        fingerprint=fact.fingerprint,
        family=config.family,
        dtype=decl.dtype,
        quantize=decl.quantize,
        tensor_parallel=decl.tensor_parallel,
        cost=decl.cost,
        stop_ids=sorted(config.eos_ids),
        prefill=prefill,
        vocab_size=config.vocab_rows,
        context=config.context,
        layers=config.layers,
        hidden_size=config.hidden,
        kv_bytes_per_token=2 * config.layers * config.kv_heads * config.head_dim * width,
        weight_bytes=fact.parameters * width,
    )


def _tokenizer(auto: Automaton, facts: list[Facts], place: dict[str, int]) -> s.Tokenizer:
    return s.Tokenizer(
        digest=facts[0].vocabulary.digest,
        size=facts[0].vocabulary.size,
        eos_ids=sorted({id_ for fact in facts for id_ in fact.config.eos_ids}),
        template_from=place[auto.template_from or auto.start_model()],
    )


def _windows(auto: Automaton, tuning: Tuning) -> s.Windows:
    """Return windows of 1: a batch starts as soon as its model is idle."""
    return s.Windows(
        max_active=tuning.max_active,
        table=[[1] * tuning.max_active for _ in auto.models],
        max_wait_ms=LEAST_WAIT_MS if tuning.max_wait_ms is None else tuning.max_wait_ms,
        objective=auto.objective,
        source="none",
    )


def _estimates(auto: Automaton, flow: Flow, given: assume.Given) -> s.Estimates:
    cost = sum(share * decl.cost for share, decl in zip(flow.shares, auto.models, strict=True))
    visits = [
        s.Visit(share=_round(share), handoffs_per_token=_round(handoffs), reached=_round(reached))
        for share, handoffs, reached in zip(flow.shares, flow.handoffs, flow.reached, strict=True)
    ]
    rules = [[_round(p) for p in row] for row in chain.shares(auto, given)]
    return s.Estimates(
        source="assumed",
        by_model=visits,
        cost_per_token=_round(cost),
        rules=rules,
        start=[_round(p) for p in chain.start_shares(auto, given)],
    )


def _round(value: float) -> float:
    """Return an estimate to the digits that it can claim, equal on every machine."""
    return round(value, 4)
