"""Kernels of route programs against torch's evaluation of the same program, and the ids that no signal may see."""

import random

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tokenrouter_kernels import signals as reference
from tokenrouter_kernels.triton.program import divide

from tests.e2e.random_policies import policies
from tests.factories import SPECIAL, plan_from_ir, save_bench, tokenizer
from tests.runtime.toy import SIZE, above, plan, rule
from tokenrouter.plan import structs as s
from tokenrouter.runtime.kernel import source as kernel_source
from tokenrouter.runtime.kernel.router import CompiledRouter
from tokenrouter.runtime.messages import RouteState, Sampling
from tokenrouter.runtime.route import Router
from tokenrouter.runtime.row import Output, Row
from tokenrouter.runtime.scheduler import Chunk
from tokenrouter.runtime.sequence import Sequence
from tokenrouter.runtime.vocabulary import Vocabulary

INF = float("inf")
LOUD = 99.0  # where nobody may look
METADATA = ({}, {"tier": "paid"}, {"tier": 7.0}, {"tier": "free"})
ASKED = [
    *(("entropy", ()), ("entropy_norm", ()), ("varentropy", ()), ("maxprob", ()), ("margin", ())),
    *(("logprob", ()), ("rank", ()), ("mass", (3,)), ("aleatoric", (3,)), ("epistemic", (3,))),
]


@pytest.fixture(scope="module", autouse=True)
def small_parts(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_source, "PART", 128)
        patch.setenv("TOKENROUTER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return save_bench(tmp_path_factory.mktemp("bench"))


def row(at, state, **fields):
    """A request of a batch, at its row."""
    sequence = Sequence(
        request=at + 1,
        n_prompt=fields.get("n_prompt", 5),
        tokens=[1] * 16,
        sampling=Sampling(seed=fields.get("seed", at)),
        params=fields.get("params", []),
        metadata=fields.get("metadata", {}),
        state=state,
        epochs=[1] * len(state.counts),
        seen=[6] * len(state.counts),
        traced=True,
    )
    made = Row(Chunk(sequence, 15, 1, True))
    made.at = at
    return made


def by_kernel(made, model, vocabulary, heads, raw, tokens, rows):
    """Let a program's kernel decide, over logits as they lie in a captured step."""
    router = CompiledRouter(made, model, vocabulary, heads, "cpu")
    output = Output(raw, None, router.deferred)
    output.tokens = tokens
    found = [heads[head](output).double() for head in router.layout.heads]
    inputs = router.inputs(rows)
    router.take(rows, router.launch(raw, tokens, inputs, torch.stack(found, 1) if found else None))
    router.decide(rows)
    return router


def by_torch(made, model, vocabulary, heads, raw, tokens, rows):
    """Let torch's operations decide."""
    router = Router(made, model, vocabulary, heads)
    output = Output(raw, None, router.deferred)
    output.tokens = tokens
    for each in rows:
        each.output = output
    router.evaluate(rows)
    router.decide(rows)
    return router


def padded(logits, room=11):
    """The same logits with rows of the head behind them that stand for no id."""
    wide = torch.full((logits.shape[0], logits.shape[1] + room), LOUD, dtype=logits.dtype)
    wide[:, : logits.shape[1]] = logits
    return wide.narrow(1, 0, logits.shape[1])


def asking(hidden):
    """A plan whose first model reads every signal of the logits, and the columns of hidden ids."""
    signals = [*ASKED, *(("column", (at,)) for at in hidden)]
    nodes = []
    for at, (name, args) in enumerate(signals):
        nodes += above(name, 0.5, 3 * at, args)
    nodes.append(s.AllOf(of=[3 * at + 2 for at in range(len(signals))]))
    program = s.Program(nodes=nodes, rules=[rule(s.To(model=1), len(nodes) - 1), rule()])
    return plan(program, s.Program(rules=[rule()]))


@pytest.mark.parametrize("hidden", [(), (3,), (20,), (3, 20)], ids=str)
def test_signals_see_neither_hidden_ids_nor_what_stands_for_none(hidden, monkeypatch):
    monkeypatch.setattr(kernel_source, "PART", 16)
    torch.manual_seed(0)
    logits = torch.randn(3, SIZE, dtype=torch.float64)
    seen = logits.clone()
    for at in hidden:  # louder than the best candidate: each would change every signal
        logits[:, at], seen[:, at] = 6.0, -INF
    tokens = torch.tensor([5, 23, 0])
    rows = [row(at, RouteState(owner=0, counts=[0, 0])) for at in range(3)]

    by_kernel(asking(hidden), 0, Vocabulary(SIZE), {}, padded(logits), tokens, rows)

    expected = reference(ASKED, seen, tokens)
    for name, args in ASKED:
        text = f"{name}({args[0]})" if args else name
        found = [each.signals[text] for each in rows]
        assert found == pytest.approx(expected[name, args].tolist(), rel=1e-9), text
    for at in hidden:
        own = torch.tensor(6.0, dtype=torch.float64).sigmoid().item()
        assert [each.signals[f"column({at})"] for each in rows] == pytest.approx([own] * 3)


@triton.jit
def divide_kernel(a_ptr, b_ptr, out_ptr):
    i = tl.arange(0, 4)
    tl.store(out_ptr + i, divide(tl.load(a_ptr + i), tl.load(b_ptr + i)))


def test_what_is_divided_by_0_is_0():
    a, b = torch.tensor([[3.0, 0.0, -1.0, 5.0], [2.0, 0.0, 0.0, -4.0]], dtype=torch.float64)
    out = torch.empty_like(a)

    divide_kernel[(1,)](a, b, out)

    assert out.tolist() == [1.5, 0.0, 0.0, -1.25]


def some_rows(made, model, rng, n):
    """Requests of a random past, at random points of it."""
    windows = [node for node in made.programs[model].nodes if isinstance(node, s.Window)]
    untils = made.programs[model].untils
    others = [peer for peer in range(len(made.models)) if peer != model]
    rows = []
    for at in range(n):
        mine = [[rng.uniform(0, 2) for _ in range(rng.randint(0, w.n))] for w in windows]
        borrowed = bool(untils) and rng.random() < 0.4
        state = RouteState(
            owner=model,
            position=rng.randint(0, 12),
            counts=[rng.randint(0, 6) for _ in made.models],
            switches=rng.randint(0, 4),
            since_switch=rng.randint(0, 4),
            tried=rng.randrange(1 << len(made.models)),
            home=rng.choice(others) if borrowed else None,
            remaining=rng.randint(1, 4) if borrowed else 0,
            until=rng.randrange(len(untils)) if borrowed else None,
            vars=[float(rng.randint(0, 4)), rng.choice((0.5, 0.75, 1.5))],
            windows=[[] if peer != model else mine for peer in range(len(made.models))],
        )
        fields = {
            "n_prompt": rng.randint(1, 15),
            "seed": rng.randrange(1 << 64),
            "params": [rng.choice((1.2, 0.4, 2.5, 0.0))],
            "metadata": rng.choice(METADATA),
        }
        rows.append((at, state, fields))
    return [[row(at, state, **fields) for at, state, fields in rows] for _ in range(2)]


def some_logits(rng, n, size, hidden):
    """Logits of many tempers, some of them banned, and a candidate a row that may be drawn."""
    draws = torch.Generator().manual_seed(rng.randrange(1 << 32))
    heat = torch.tensor([[rng.choice((0.3, 1.0, 4.0))] for _ in range(n)], dtype=torch.float64)
    logits = heat * torch.randn(n, size, dtype=torch.float64, generator=draws)
    tokens = [rng.choice([at for at in range(size) if at not in hidden]) for _ in range(n)]
    for at, token in enumerate(tokens):
        banned = torch.rand(size, generator=draws) < rng.choice((0.0, 0.3))
        banned[token] = False
        logits[at, banned] = -INF
    return padded(logits), torch.tensor(tokens)


@pytest.fixture(scope="module")
def equal(bench):
    texts = tokenizer()

    def check(data, n=4):
        made = plan_from_ir(data.draw(policies(dict(bench.models), dict(bench.heads))).auto)
        rng = random.Random(data.draw(st.integers(0, 1 << 32)))
        size = made.tokenizer.size
        special = frozenset(range(len(SPECIAL)))
        vocabulary = Vocabulary(size, lambda token: texts.decode([token]).encode(), special)
        heads = {
            at: lambda output, at=at: output.raw[:, 7 + at].clamp(-9, 9).sigmoid()
            for at in range(len(made.heads))
        }
        for model in range(len(made.models)):
            nodes = made.programs[model].nodes
            hidden = {n.args[0] for n in nodes if isinstance(n, s.Signal) and n.name == "column"}
            raw, tokens = some_logits(rng, n, size, hidden)
            expected, found = some_rows(made, model, rng, n)

            plain = by_torch(made, model, vocabulary, heads, raw, tokens, expected)
            kernel = by_kernel(made, model, vocabulary, heads, raw, tokens, found)

            for one, other in zip(expected, found, strict=True):
                if one.sequence.state.home is None:
                    assert other.decision[:-1] == one.decision[:-1]
                    assert other.decision.vars == pytest.approx(one.decision.vars)
                assert kernel.reached(other) == plain.reached(one)
                assert other.signals == pytest.approx(one.signals, rel=1e-9, abs=1e-9)
                assert flat(other.windows) == pytest.approx(flat(one.windows))

    return check


def flat(windows):
    return [x for of_model in windows for last in of_model for x in (-1.0, *last)]


QUICK = settings(
    max_examples=15,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@QUICK
@given(data=st.data())
def test_the_kernel_of_a_random_program_decides_as_torch_does(equal, data):
    equal(data)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@settings(QUICK, max_examples=1000, phases=[Phase.generate, Phase.shrink])
@given(data=st.data())
def test_the_kernels_of_many_random_programs_do_so(equal, data):
    equal(data)
