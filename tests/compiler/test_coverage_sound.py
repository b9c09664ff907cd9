"""No step ever makes a rule fire that is said to be dead: random guards on signals of real distributions."""

import random

import numpy as np
import pytest

from tests.compiler.irs import (
    COMMIT,
    MAXPROB,
    automaton,
    both,
    cmp,
    either,
    num,
    param,
    plus,
    retry,
    then,
)
from tokenrouter.compiler import programs
from tokenrouter.compiler.expr import Aggregate, Arithmetic, Negation, SignalOf
from tokenrouter.compiler.laws import Range, consequences, most_entropy, no_maxprob
from tokenrouter.compiler.liveness import alive
from tokenrouter.compiler.passes.coverage import coverage
from tokenrouter.plan import structs as s
from tokenrouter.plan.evaluate import Request, fires, needed, values

V = 40
NUMBERS = ["entropy", "maxprob", "margin", "logprob", "position", "entropy_norm", "rank", "chance"]
DECL, TAU = param("tau", 1.0, 0.0, 3.0)


class Step:
    """One step's signals, of a real distribution and a real candidate."""

    def __init__(self, rng):
        p = rng.dirichlet(np.full(V, rng.choice([0.02, 0.1, 0.5, 3.0])))
        p = np.clip(p, 1e-300, None)
        self.p = np.sort(p / p.sum())[::-1]
        self.candidate = int(rng.choice(V, p=self.p / self.p.sum()))
        self.position = int(rng.integers(0, 12))
        self.count = int(rng.integers(0, self.position + 1))
        self.chance = float(rng.random())

    def __call__(self, node):
        assert isinstance(node, s.Signal)
        match node.name:
            case "entropy":
                return float(-(self.p * np.log(self.p)).sum())
            case "entropy_norm":
                return self(s.Signal(name="entropy")) / float(np.log(V))
            case "rank":
                return float(self.candidate + 1)
            case "chance":
                return self.chance
            case "share":
                kept = self.count if node.args == [1] else self.position - self.count
                return kept / self.position if self.position else 0.0
            case "maxprob":
                return float(self.p[0])
            case "margin":
                return float(self.p[0] - self.p[1])
            case "mass":
                return float(self.p[: node.args[0]].sum())
            case "logprob":
                return float(np.log(self.p[self.candidate]))
            case "position":
                return float(self.position)
            case "count":
                return float(self.count if node.args == [1] else self.position - self.count)
            case name:
                raise AssertionError(name)


def number(rng):
    kind = rng.randrange(11)
    if kind == 0:
        return SignalOf("mass", (rng.randrange(1, 5),))
    if kind == 1:
        return SignalOf("count", (rng.choice(["small", "large"]),))
    if kind == 2:
        return Aggregate(
            rng.choice(["mean", "max", "ewma"]),
            SignalOf(rng.choice(NUMBERS[:3])),
            rng.choice([1, 2, 4]),
        )
    if kind == 3:
        return TAU
    if kind == 4:
        return SignalOf("share", (rng.choice(["small", "large"]),))
    return SignalOf(rng.choice(NUMBERS))


def constant(rng, left):
    name = getattr(left, "name", getattr(getattr(left, "of", None), "name", ""))
    high = {"entropy": 4.0, "tau": 3.0, "position": 12.0, "count": 12.0, "rank": 4.0}.get(name, 1.0)
    return round(rng.uniform(-4, 0) if name == "logprob" else rng.uniform(0, high), 2)


def multiple(rng, term):
    """Return a multiple of a term, or its distance from a constant."""
    k = num(rng.choice([2, 0.5, 3, 0.1, -1, -0.7, 7, 0]))
    return rng.choice(
        [
            Arithmetic("*", k, term),
            Arithmetic("*", term, k),
            Arithmetic("/", term, k),
            Arithmetic("-", k, term),
        ]
    )


def guard(rng, depth=2):
    if depth and rng.random() < 0.5:
        parts = [guard(rng, depth - 1) for _ in range(rng.randrange(2, 4))]
        return rng.choice([both, either])(*parts)
    if depth and rng.random() < 0.15:
        return Negation(guard(rng, depth - 1))
    left = number(rng)
    right = number(rng) if rng.random() < 0.3 else constant(rng, left)
    if rng.random() < 0.2:
        left = plus(left, num(constant(rng, left)))
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        left = multiple(rng, left)
    if rng.random() < 0.1:
        right = multiple(rng, num(right) if isinstance(right, float) else right)
    return cmp(left, rng.choice(["<", "<=", ">", ">="]), right)


@pytest.mark.parametrize("seed", range(4))
def test_what_a_real_step_shows_is_never_said_to_leave_no_maxprob(seed):
    draws, rng = np.random.default_rng(seed), random.Random(seed)
    shown = [SignalOf(name) for name in ("entropy", "margin", "logprob")]
    shown += [SignalOf("mass", (k,)) for k in (1, 2, 3, 5, V)]
    for _ in range(400):
        step = Step(draws)
        known = []
        for term in rng.sample(shown, rng.randrange(2, len(shown))):
            value = step(s.Signal(name=term.name, args=list(term.args)))
            wide = rng.choice([0.0, 0.0, 0.1, 10.0])  # guards say as much as this, or less
            known.append((term, Range(value - wide, value + rng.choice([0.0, wide]))))
        assert no_maxprob(V, known) is None, known


@pytest.mark.parametrize("seed", range(4))
def test_what_a_real_step_shows_is_in_keeping_with_every_consequence_of_a_law(seed):
    draws, rng = np.random.default_rng(seed), random.Random(seed)
    names = ("entropy", "maxprob", "margin", "logprob", "rank", "entropy_norm", "position")
    shown = {SignalOf(name): s.Signal(name=name) for name in names}
    shown |= {SignalOf("mass", (k,)): s.Signal(name="mass", args=[k]) for k in (1, 2, 5)}
    models = ("small", "large")
    shown |= {
        SignalOf(of, (name,)): s.Signal(name=of, args=[at])
        for at, name in enumerate(models)
        for of in ("share", "count")
    }
    bounded = set()
    for _ in range(400):
        step = Step(draws)
        value = {term: step(node) for term, node in shown.items()}
        wide = {term: rng.choice([0.0, 0.0, 0.1, 10.0]) for term in shown}
        some = rng.sample(list(shown), rng.randrange(2, len(shown)))
        known = {term: Range(value[term] - wide[term], value[term] + wide[term]) for term in some}
        for bound in consequences(V, models, known):
            low, high = bound.range
            assert low - 1e-9 <= value[bound.term] <= high + 1e-9, (bound, known)
            bounded.add(bound.term)
    assert bounded >= shown.keys() - {SignalOf("mass", (1,))}


@pytest.mark.parametrize("seed", range(25))
def test_a_rule_that_is_said_to_be_dead_never_fires(seed):
    rng, draws = random.Random(seed), np.random.default_rng(seed)
    for _ in range(12):
        rules = [(guard(rng), retry("large")) for _ in range(rng.randrange(1, 5))]
        auto = automaton(
            ("small", *rules, (None, COMMIT)),
            ("large", (None, then("small"))),
            params=[DECL],
            vocabulary=V,
        )
        state = auto.states[0]
        told = {d.span for d in coverage(auto) if d.code in ("TR2301", "TR2302")}
        dead = {at for at, rule in enumerate(state.rules) if rule.span in told}
        dead |= {at for at, live in enumerate(alive(auto, state.rules)) if not live}
        always = {d.span for d in coverage(auto) if d.code == "TR2303"}
        plan = type("Bare", (), {"programs": programs.programs(auto)})
        request = Request([rng.uniform(0, 3)], [])
        for _ in range(60):
            found = values(plan, 0, request, Step(draws), needed(plan.programs[0]))
            assert fires(plan.programs[0], found) not in dead, str(state)
            for at, rule in enumerate(state.rules):
                if rule.span in always:
                    assert found[plan.programs[0].rules[at].when], str(state)


def test_random_guards_do_meet_dead_rules():
    rng, found = random.Random(7), 0
    for _ in range(150):
        rules = [(guard(rng), retry("large")) for _ in range(3)]
        auto = automaton(
            ("small", *rules, (None, COMMIT)),
            ("large", (None, then("small"))),
            params=[DECL],
            vocabulary=V,
        )
        found += sum(d.code in ("TR2301", "TR2302") for d in coverage(auto))
    assert found > 20


@pytest.mark.parametrize("v", [2, 3, 4, 10, 1000])
def test_no_vocabulary_has_more_normalised_entropy_than_one_of_two_words(v):
    for top in (0.5, 0.6, 0.9, 0.99, 1.0):
        known = {MAXPROB: Range(top, top), SignalOf("entropy_norm"): Range()}
        [most] = [b.range.high for b in consequences(v, (), known) if b.term != MAXPROB]

        assert most_entropy(top, v) / np.log(v) <= most + 1e-12
        assert v > 2 or most == pytest.approx(most_entropy(top, v) / np.log(v))


def test_where_no_count_is_spoken_of_nothing_is_known_of_position():
    for models in ((), ("small",), ("small", "large")):
        known = {SignalOf("position"): Range(0, 12), SignalOf("share", ("small",)): Range(0, 1)}
        assert consequences(V, models, known) == []
