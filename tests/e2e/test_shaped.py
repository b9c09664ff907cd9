"""Penalties, biases and grammars: what is served equals the reference, across hand-offs, preemption and deaths.

The reference computes them from the whole text at each step; a subserver reads only what it has not read yet.
"""

import json
import re

import pytest

from tests.e2e.compare import REGEX, SCHEMA, WISHES, difference, requests, traces
from tests.e2e.serving import Conditions, Request, serve
from tests.e2e.test_exact import ROOT
from tests.factories import tokenizer
from tokenrouter.runtime import grammar
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.reference import Reference

POLICIES = ("demo", "mixture", "first_n")
CONDITIONS = {
    "alone": Conditions(crowd=1),
    "in disorder with a tiny pool": Conditions(capacity=64, order=3, chunk=3),
    "with subservers lost": Conditions(deaths=3, order=10, windows=4, capacity=96),
    "grammars followed in threads": Conditions(late=True, deaths=2, order=5, capacity=96),
    "with others given up, all lazy": Conditions(aborts=6, order=11, prefill="lazy"),
}


def wanted():
    """Requests with every wish, those with a grammar long enough to end."""
    made = []
    for at, request in enumerate(requests(2 * len(WISHES), seed=8)):
        wish = WISHES[at % len(WISHES)]
        most = 40 if "grammar" in wish else 20
        made.append(Request(request.prompt, Sampling(seed=at, max_tokens=most, **wish)))
    return made


@pytest.fixture(scope="module", params=POLICIES)
def case(request, compiled, float64, bench):
    plan = compiled(ROOT / "examples" / f"{request.param}.route")
    reference = Reference(plan, bench.root, models=float64(plan.models))
    return plan, wanted(), traces(reference, wanted())


@pytest.mark.parametrize("name", CONDITIONS)
def test_what_clients_wish_of_the_choice_is_served_as_the_reference_does_it(case, decoders, name):
    plan, asked, expected = case

    served = serve(plan, asked, CONDITIONS[name], decoders(plan.models))

    for at, (trace, completion) in enumerate(zip(expected, served.completions, strict=True)):
        found = difference(trace, completion)
        assert not found, f"request {at}, {asked[at].sampling}: {found}"
    if CONDITIONS[name].capacity is not None:
        assert served.preempted


def test_every_wish_changes_some_choice_and_hand_offs_happen_under_it(case, float64, bench):
    plan, asked, expected = case
    plain = [Request(r.prompt, Sampling(seed=r.sampling.seed, max_tokens=20,
             temperature=r.sampling.temperature)) for r in asked]  # fmt: skip
    unwished = traces(Reference(plan, bench.root, models=float64(plan.models)), plain)

    for wish in range(len(WISHES)):
        pairs = list(zip(expected, unwished, strict=True))[wish :: len(WISHES)]
        same = all(one.tokens[:20] == other.tokens[:20] for one, other in pairs)
        assert same == (WISHES[wish] == {}), WISHES[wish]
    shaped = [t for t, r in zip(expected, asked, strict=True) if r.sampling.grammar]
    assert plan.policy == "first_n" or sum(trace.switches for trace in shaped) > 5


@pytest.mark.parametrize(
    ("spelled", "pattern"),
    [
        (grammar.of_regex(REGEX), REGEX),
        (grammar.of_regex("ab?"), "ab?"),
        (grammar.of_json_schema(json.dumps(SCHEMA)), None),
    ],
    ids=["regex", "short", "schema"],
)
def test_an_output_that_ends_by_itself_follows_its_grammar(compiled, decoders, spelled, pattern):
    plan = compiled(ROOT / "examples" / "demo.route")
    asked = [
        Request(r.prompt, Sampling(seed=at, max_tokens=120, temperature=at % 2, grammar=spelled))
        for at, r in enumerate(requests(8, seed=9))
    ]

    served = serve(plan, asked, Conditions(), decoders(plan.models))

    ended = 0
    for completion in served.completions:
        text = tokenizer().decode(completion.ids)
        if completion.finish == "stop":
            ended += 1
            if pattern:
                assert re.fullmatch(pattern, text), text
            else:
                value = json.loads(text)
                assert list(value) == ["name", "kind", "n"] and 0 <= value["n"] <= 99
    assert ended >= 4
