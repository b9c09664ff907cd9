"""Requests of every kind, and what it means that a served request equals the reference's."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.e2e.serving import Request
from tests.factories import EOS, prompts
from tokenrouter.runtime import grammar
from tokenrouter.runtime.engine import Completion
from tokenrouter.runtime.messages import RouteState, Sampling
from tokenrouter.runtime.reference import After, Reference, Trace

SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 1.0},
    {"temperature": 0.7, "top_p": 0.9},
    {},
    {"temperature": 1.3, "top_k": 12},
    {"temperature": 1.0, "min_p": 0.07},
    {"temperature": 0.9, "top_k": 40, "top_p": 0.8, "min_p": 0.02},
    {"ignore_eos": True},
)

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "kind": {"enum": ["ship", "sea", "river"]},
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "kind", "n"],
    "additionalProperties": False,
}
REGEX = r"([a-z]{2,5} ){2,4}[0-9]{2}"
LARK = 'start: "(" item ("," item)* ")"\nitem: /[a-c]{1,3}/ | start'
WISHES: tuple[dict[str, Any], ...] = (
    {"frequency_penalty": 0.7},
    {"presence_penalty": -1.5, "temperature": 1.0},
    {"repetition_penalty": 1.3, "temperature": 0.8, "top_p": 0.9},
    {"logit_bias": {EOS: -100.0, 70: 9.0, 71: -3.5}},
    {"grammar": grammar.of_regex(REGEX)},
    {"grammar": grammar.of_json_schema(json.dumps(SCHEMA)), "temperature": 1.0},
    {"grammar": grammar.of_lark(LARK), "temperature": 1.2, "min_p": 0.01},
    {"grammar": grammar.of_regex(REGEX), "presence_penalty": 2.0, "logit_bias": {80: 50.0}},
    {"grammar": grammar.of_regex("[a-e ]{2,30}"), "temperature": 1.0},
    {"ignore_eos": True, "stop_ids": [71], "logit_bias": {EOS: 5.0, 71: 7.0}, "temperature": 1.0},
    {},
    {"repetition_penalty": 0.8, "frequency_penalty": -0.3, "presence_penalty": 0.4, "top_k": 30,
     "temperature": 1.0},
)  # fmt: skip


def requests(
    n: int, seed: int = 0, longest: int = 24, most: int = 24, *, wishes: bool = False
) -> list[Request]:
    """Return `n` requests: greedy and sampled in every way, of all lengths, the same for a seed.

    With `wishes`, two of three also ask for penalties, biases or a grammar.
    """
    rng = random.Random(seed)
    wishing = random.Random(seed)
    made = []
    asked = prompts(n, seed, longest)
    for at, prompt in enumerate(asked):
        shape = SHAPES[at % len(SHAPES)]
        if wishes:
            shape = wishing.choice(SHAPES)
        if wishes and at % 3:
            wish = wishing.choice(WISHES)
            shape = wish if "grammar" in wish else {**shape, **wish}
        given: dict[str, Any] = {
            "seed": rng.choice((at, 2**63 + at, rng.getrandbits(64))),
            "max_tokens": rng.randint(most // 2, most) if at % 5 else rng.randint(1, 4),
            "stop_ids": [] if at % 4 else [rng.randrange(EOS, 300)],
        }
        sampling = Sampling(**{**given, **shape})
        # Some share a beginning, which the prefix cache may find.
        shared = asked[at - 1][:-1] if at % 3 == 2 else []
        made.append(Request((shared + prompt)[:longest], sampling))
    return made


def traces(reference: Reference, wanted: Sequence[Request]) -> list[Trace]:
    """Return what the reference writes for each request."""
    return [reference.generate(r.prompt, r.sampling, r.params, r.metadata) for r in wanted]


def difference(trace: Trace, served: Completion) -> str | None:
    """Return where a served request first differs from the reference's, None where it is equal in every respect."""
    for at, (want, got) in enumerate(zip(trace.steps, served.tokens, strict=False)):
        same = (want.token, want.model, want.rule) == (got.token, got.model, got.rule)
        if not same or abs(want.logprob - got.logprob) > 1e-9:
            return (
                f"token {at} is {got.token} by model {got.model}, rule {got.rule}, logprob {got.logprob}; "
                f"the reference has {want}"
            )
        problem = want.after and _state(want.after, got.state)
        if problem:
            return f"after token {at}: {problem}"
    if len(trace.steps) != len(served.tokens) or trace.finish != served.finish:
        return (
            f"{len(served.tokens)} tokens, finish {served.finish}; "
            f"the reference has {len(trace.steps)} tokens, finish {trace.finish}"
        )
    switches = served.tokens[-1].state.switches
    if switches != trace.switches:
        return f"{switches} hand-offs, the reference has {trace.switches}"
    return None


def _state(want: After, got: RouteState) -> str | None:
    """Return what of the route state is not the reference's; recovery goes on from it."""
    for name in ("owner", "home", "remaining", "counts", "switches", "since_switch"):
        if getattr(want, name) != getattr(got, name):
            return f"{name} is {getattr(got, name)}; the reference has {getattr(want, name)}"
    if got.vars != pytest.approx(want.vars, rel=1e-9, abs=1e-9):
        return f"the variables are {got.vars}; the reference has {want.vars}"
    for model, nodes in enumerate(want.windows):
        held = got.windows[model] if got.windows else []
        for at, values in enumerate(nodes):
            if (held[at] if held else []) != pytest.approx(values, rel=1e-9, abs=1e-9):
                return f"windows of model {model} are {held}; the reference has {nodes}"
    return None
