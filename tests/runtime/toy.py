"""A toy model and plans by hand: everything of the runtime but the network, in microseconds a step.

`ToyModel` keeps token ids where a model keeps keys and values, and its logits are a hash of all tokens that it finds
there. A page that is lost, shared by mistake or written twice, or a token that is read at the wrong position, changes
what comes out; so equality of outputs says the same of the runtime as it would with real weights.
"""

import random
import zlib
from functools import cache

import torch

from tokenrouter.plan import structs as s
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.row import StepOutput

SIZE = 24  # vocabulary
EOS = 0
PAGE = 4


@cache
def _logits(key):
    rng = random.Random(zlib.crc32(key))
    heat = rng.choice([0.3, 1.0, 4.0])
    return [heat * rng.gauss(0, 1) for _ in range(SIZE)]


def toy_logits(model, tokens):
    """The logits of a model after some tokens; a wide spread of entropies."""
    return _logits(bytes([model, *(token & 255 for token in tokens)]))


class ToyModel:
    """A runner whose KV pool holds token ids."""

    def __init__(self, model, capacity_tokens=512):
        self.model = model
        self.capacity_tokens = capacity_tokens
        self.store = [[-1] * PAGE for _ in range(capacity_tokens // PAGE)]
        self.n_read = 0

    def run(self, chunks, *, hidden):
        logits = []
        for chunk in chunks:
            tokens, pages = chunk.sequence.tokens, chunk.sequence.pages
            end = chunk.start + chunk.n
            for at in range(chunk.start, end):
                self.store[pages[at // PAGE]][at % PAGE] = tokens[at]
            self.n_read += chunk.n
            if chunk.samples:
                seen = [self.store[pages[at // PAGE]][at % PAGE] for at in range(end)]
                logits.append(toy_logits(self.model, seen))
        return StepOutput(torch.tensor(logits, dtype=torch.float64).reshape(-1, SIZE), None)


def toys(plan, capacity_tokens=512):
    return [ToyModel(model, capacity_tokens) for model in range(len(plan.models))]


def rule(go=None, when=None, keep=True, sets=()):
    return s.Rule(when=when, keep=keep, go=go or s.Stay(), sets=list(sets))


def above(signal, value, first=0, args=()):
    """Nodes for `signal > value`, from index `first` on; the condition is node `first + 2`."""
    return [
        s.Signal(name=signal, args=list(args)),
        s.Const(value=float(value), unit="number"),
        s.Compare(sign=">", left=first, right=first + 1),
    ]


def graph(n, model, prefill="lazy"):
    """A task graph with every task."""
    edges = """admit next gate, resume next gate, gate next extend, extend next sample, sample own signals,
        signals next route, route keep commit, route drop park, sample borrowed watch, watch next count_down,
        count_down next commit, commit stay gate, commit leave park, commit ended finish, park next send"""
    tasks = [
        s.Admit(id="admit", prefill=prefill),
        s.Resume(id="resume"),
        s.Gate(id="gate"),
        s.Extend(id="extend", hidden=False),
        s.Sample(id="sample"),
        s.Signals(id="signals"),
        s.Signals(id="watch"),
        s.Route(id="route"),
        s.CountDown(id="count_down"),
        s.Commit(id="commit"),
        s.Park(id="park"),
        s.Send(id="send", peers=[peer for peer in range(n) if peer != model]),
        s.Finish(id="finish"),
    ]
    split = [edge.split() for edge in edges.split(",")]
    return s.Subserver(
        tasks=tasks, edges=[s.Edge(source=a, label=label, target=b) for a, label, b in split]
    )


def plan(
    *programs,
    start=None,
    prefill=None,
    params=(),
    vars_=(),
    capacity=512,
    context=256,
    max_active=16,
    windows=None,
    max_wait_ms=50.0,
):
    """A plan of toy models with these programs."""
    n = len(programs)
    prefill = prefill or ["lazy"] * n
    models = [
        s.Model(
            name=f"m{at}",
            use="toy",
            fingerprint="toy",
            family="llama",
            dtype="float64",
            stop_ids=[EOS],
            prefill=prefill[at],
            vocab_size=SIZE,
            context=context,
            layers=1,
            hidden_size=1,
            kv_bytes_per_token=1,
            weight_bytes=0,
        )
        for at in range(n)
    ]
    visit = s.Visit(share=0.0, handoffs_per_token=0.0, reached=0.0)
    return s.Plan(
        plan_version=1,
        min_reader=1,
        producer="tests",
        policy="toy",
        program_hash="",
        tuning_hash="",
        models=models,
        tokenizer=s.Tokenizer(digest="", size=SIZE, eos_ids=[EOS], template_from=0),
        params=list(params),
        vars=list(vars_),
        start=start or s.Start(rules=[s.StartRule(when=None, go=s.To(model=0))]),
        programs=list(programs),
        subservers=[graph(n, at, prefill[at]) for at in range(n)],
        windows=s.Windows(
            max_active=max_active,
            table=windows or [[1] * max_active] * n,
            max_wait_ms=max_wait_ms,
            objective="throughput",
            source="none",
        ),
        memory=s.Memory(page_size=PAGE, budget_bytes=capacity * n, capacity_tokens=capacity),
        estimates=s.Estimates(source="assumed", by_model=[visit] * n, cost_per_token=0.0),
        provenance=s.Provenance(source="", digest="", created=""),
        surface=s.Surface(),
    )


def ping_pong(tau=1.5, **fields):
    """R-Stitch over two toys: unsure tokens are dropped and go to the other, sure ones of the other come back."""
    small = s.Program(
        nodes=above("entropy", tau),
        rules=[rule(s.To(model=1), when=2, keep=False), rule()],
    )
    nodes = [*above("entropy", tau), s.Not(of=2)]
    large = s.Program(nodes=nodes, rules=[rule(s.To(model=0), when=3), rule()])
    return plan(small, large, **fields)


def borrowing(most=1, tau=1.5, keep=False, until=None, **fields):
    """Unsure tokens are written by the other toy, which has no rules of its own."""
    nodes = [*above("entropy", tau), s.Const(value=float(most), unit="count")]
    go = s.Borrow(model=1, most=3, until=0 if until is not None else None)
    small = s.Program(nodes=nodes, rules=[rule(go, when=2, keep=keep), rule()])
    lender = s.Program()
    if until is not None:
        lender = s.Program(nodes=above("entropy", until), untils=[2])
    return plan(small, lender, **fields)


def mixture(weights=(0.5, 0.3, 0.2), **fields):
    """Every token's model is drawn."""
    mix = s.Mix(weights=[s.Share(model=at, weight=w) for at, w in enumerate(weights)])
    program = s.Program(rules=[rule(mix)])
    start = s.Start(rules=[s.StartRule(when=None, go=mix)])
    return plan(*[program] * len(weights), start=start, **fields)


def coin(p=0.3, **fields):
    """Hand-offs by `chance`, both ways, tokens kept."""
    nodes = [*above("chance", 1 - p)]
    there = s.Program(nodes=nodes, rules=[rule(s.To(model=1), when=2), rule()])
    back = s.Program(nodes=nodes, rules=[rule(s.To(model=0), when=2), rule()])
    return plan(there, back, **fields)


PLANS = {
    "ping_pong": ping_pong,
    "borrow_one": borrowing,
    "borrow_three": lambda **f: borrowing(most=3, keep=True, **f),
    "borrow_until": lambda **f: borrowing(most=5, until=2.5, **f),
    "mixture": mixture,
    "coin": coin,
}


def prompts(n, seed=0, longest=40):
    rng = random.Random(seed)
    return [[rng.randrange(1, SIZE) for _ in range(rng.randint(1, longest))] for _ in range(n)]


def greedy(max_tokens=24, **fields):
    return Sampling(max_tokens=max_tokens, **fields)


def seeded(seed, max_tokens=24):
    return Sampling(
        max_tokens=max_tokens, seed=seed, temperature=0.9, top_p=0.95, top_k=12, min_p=0.01
    )
