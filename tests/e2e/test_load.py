"""Load signals: what a served request read of load is told with its tokens, and the reference replays it to the letter."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.e2e.compare import difference, requests
from tests.e2e.random_policies import policies
from tests.e2e.serving import Conditions, PagedTokens, serve
from tests.e2e.test_random import CONDITIONS, QUICK
from tests.factories import plan_from_ir
from tokenrouter.compiler.expr import Comparison, Expr, Lit, SignalOf, rewrite
from tokenrouter.compiler.ir import Automaton, Borrow
from tokenrouter.plan.nodes import reads_load
from tokenrouter.plan.structs import Signal
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.reference import Reference
from tokenrouter.runtime.reference.errors import BeyondReference


def loaded(auto: Automaton) -> Automaton:
    """Return a policy with load in the place of counters, in its guards, windows, borrows and start rules."""
    instead = {
        "position": Comparison(">", SignalOf("elapsed"), Lit(60.0, "ms")),
        "prompt_tokens": Comparison(">=", SignalOf("queue", ("small",)), Lit(2.0, "count")),
        "chance": Comparison("<", SignalOf("queue", ("large",)), Lit(3.0, "count")),
        "entropy": Comparison(">", SignalOf("queue", ("small",)), SignalOf("queue", ("large",))),
    }

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Comparison) and isinstance(expr.left, SignalOf):
            return instead.get(expr.left.name, expr)
        return expr

    def guard(when: Expr | None) -> Expr | None:
        return None if when is None else rewrite(when, change)

    def go(of):
        return replace(of, until=guard(of.until)) if isinstance(of, Borrow) else of

    states = tuple(
        replace(s, rules=tuple(replace(r, when=guard(r.when), go=go(r.go)) for r in s.rules))
        for s in auto.states
    )
    start = tuple(
        replace(r, when=r.when and rewrite(r.when, lambda e: change(e) if _of_prompt(e) else e))
        for r in auto.start
    )
    return replace(auto, states=states, start=start)


def _of_prompt(expr: Expr) -> bool:
    return isinstance(expr, Comparison) and expr.left == SignalOf("prompt_tokens")


@pytest.fixture(scope="module")
def replayed(bench, float64):
    def check(auto, conditions, wanted):
        plan = plan_from_ir(loaded(auto))
        served = serve(plan, wanted, conditions, float64(plan.models)).completions
        reference = Reference(plan, models=float64(plan.models))
        for at, (request, completion) in enumerate(zip(wanted, served, strict=True)):
            loads = [token.loads for token in completion.tokens]
            trace = reference.generate(
                request.prompt, request.sampling, request.params, request.metadata, loads
            )
            assert not (found := difference(trace, completion)), f"request {at}: {found}"
        return plan, served

    return check


@settings(QUICK, max_examples=30)
@given(data=st.data())
def test_a_policy_that_reads_load_is_replayed_from_what_it_read(bench, replayed, data):
    auto = data.draw(policies(dict(bench.models), dict(bench.heads))).auto
    wanted = requests(6, seed=data.draw(st.integers(0, 50)))

    plan, served = replayed(auto, data.draw(CONDITIONS), wanted)

    if not reads_load(plan):
        assert not any(token.loads for completion in served for token in completion.tokens)


POLICY = """route 1
model small { use "small" }
model large { use "large" }
policy p {
  start { when queue(small) > 2 -> large otherwise -> small }
  at small {
    when queue(large) < 2 and entropy > 1.2 -> retry large
    when elapsed > 500 ms                   -> stop
    otherwise                               -> commit
  }
  at large {
    when queue(large) > 3 -> commit then small
    when entropy <= 1.0   -> commit then small
    otherwise             -> commit
  }
}
"""


@pytest.fixture(scope="module")
def plan(bench, compiled):
    path = bench.root / "by_load.route"
    path.write_text(POLICY, encoding="utf-8")
    return compiled(path)


@pytest.mark.parametrize("crowd", [1, 16])
def test_load_changes_what_is_written_and_only_a_replay_gives_it_again(plan, float64, crowd):
    wanted = requests(16, seed=5)
    reference = Reference(plan, models=float64(plan.models))

    served = serve(plan, wanted, Conditions(crowd=crowd), float64(plan.models)).completions

    for request, completion in zip(wanted, served, strict=True):
        loads = [token.loads for token in completion.tokens]
        trace = reference.generate(request.prompt, request.sampling, loads=loads)
        assert not difference(trace, completion)
    queues = {
        value
        for completion in served
        for token in completion.tokens
        for node, value in token.loads[-1].items()
        if isinstance(n := plan.programs[token.model].nodes[node], Signal) and n.name == "queue"
    }
    assert (max(queues) > 2) == (crowd > 1)


def test_the_reference_says_what_it_would_have_to_be_told(plan, float64):
    with pytest.raises(BeyondReference, match="was not recorded"):
        Reference(plan, models=float64(plan.models)).generate([5, 6], Sampling())


def test_elapsed_goes_on_where_a_subserver_is_lost(plan, float64):
    engine = Engine(plan, models=[PagedTokens(m, plan) for m in float64(plan.models)])
    request = engine.submit([5, 6, 7], Sampling(max_tokens=40, ignore_eos=True))
    while len(engine.completions[request].tokens) < 5:
        engine.step()
    engine.restart(0)
    engine.run()

    tokens = engine.completions[request].tokens
    seen = [v for t in tokens for step in t.loads for v in step.values() if v > 5]

    assert seen == sorted(seen)
