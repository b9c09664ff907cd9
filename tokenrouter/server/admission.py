"""From a request to what the runtime takes: token ids, sampling, dials; or one line that says why not.

A request that can never fit is refused here: prompt and output together must fit the smallest context and the
smallest KV pool of the plan's models.
"""

from __future__ import annotations

import difflib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from tokenrouter.plan.structs import Param, Plan, RequestField
from tokenrouter.runtime.messages import Sampling
from tokenrouter.server.errors import bad_request
from tokenrouter.server.protocol import (
    MAX_METADATA,
    MAX_METADATA_CHARS,
    GenerationRequest,
    Metadata,
    RouteOptions,
)
from tokenrouter.server.stops import Automaton

MASK = 2**64 - 1


class Job(NamedTuple):
    """One choice: what the runtime is asked for."""

    prompt: list[int]
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Work:
    """One request: its choices, prompt by prompt, and what they have in common."""

    jobs: list[Job]
    n_prompt_tokens: int
    seed: int
    params: dict[str, float | bool]
    metadata: Metadata
    stops: Automaton
    traced: bool
    echoes: bool  # whether each choice begins with its prompt
    n_top_logprobs: int | None  # None where no log probabilities are asked for
    field: str = "prompt"  # that the prompts stand in
    guide: str | None = None  # the field that asks for a grammar, if any
    priority: int = 0
    seconds: float | None = None  # that it may take; None is no limit
    ends: float = 0.0  # when they are over, on the event loop's clock


class Limits(NamedTuple):
    """What bounds a prompt and its output."""

    vocabulary: int  # ids that the tokenizer knows
    context: int  # most tokens of prompt and output together that every model can hold
    active: int = 2**31  # requests that run at once
    waiting: int = 2**31  # requests that may queue beside them


def prepare(
    plan: Plan,
    limits: Limits,
    request: GenerationRequest,
    prompts: Sequence[list[int]],
    max_tokens: int | None,
    field: str,
    grammar: str = "",
    guide: str | None = None,
) -> Work:
    """Return the work; `max_tokens` None takes all that is left, `field` names where the prompts stand.

    `guide` names the field that asks for the grammar.
    """
    n = request.n or 1
    check_ids(limits, request)
    for prompt in prompts:
        check_prompt(limits, prompt, max_tokens, field)
    _check_room(limits, n, len(prompts), field)
    route = request.route or RouteOptions()
    seed = _seed(request)
    return Work(
        jobs=[
            Job(
                prompt,
                _sampling(limits, request, len(prompt), max_tokens, choice_seed(seed, i), grammar),
            )
            for prompt in prompts
            for i in range(n)
        ],
        n_prompt_tokens=sum(map(len, prompts)),
        seed=seed,
        params=dials(plan.params, route.params or {}),
        metadata=_metadata(plan, route.metadata or {}),
        stops=Automaton(request.stops),
        traced=request.traces,
        echoes=request.echoes,
        n_top_logprobs=request.n_top_logprobs,
        field=field,
        guide=guide,
        priority=request.priority or 0,
    )


def _check_room(limits: Limits, n: int, n_prompts: int, field: str) -> None:
    """Refuse what would not find room in an idle server."""
    room = limits.active + limits.waiting
    if n * n_prompts > room:
        message = (
            f"the request asks for {n * n_prompts} choices at once, and this server holds {room} at most: "
            f"{limits.active} that run and {limits.waiting} that wait (`--max-waiting`)"
        )
        raise bad_request(message, "n" if n > 1 else field)


def choice_seed(seed: int, choice: int) -> int:
    """Return the seed of one of n choices: the request's own for the first, a mix of both for the others.

    The mix is SplitMix64's output function (https://doi.org/10.1145/2714064.2660195).
    """
    if choice == 0:
        return seed
    z = (seed + choice * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def dials(params: Sequence[Param], chosen: dict[str, float | bool]) -> dict[str, float | bool]:
    """Return the params that a request sets, checked against their bounds."""
    known = {param.name: param for param in params}
    for name, value in chosen.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean `{near[0]}`" if near else f"there are {_listed(known)}"
            raise bad_request(f"the policy has no param `{name}`; {hint}", f"route.params.{name}")
        _check_dial(known[name], value)
    return chosen


def _listed(names: Iterable[str]) -> str:
    *first, last = [f"`{name}`" for name in names] or ["none"]
    return f"{', '.join(first)} and {last}" if first else last


def _check_dial(param: Param, value: float | bool) -> None:
    field = f"route.params.{param.name}"
    if isinstance(param.value, bool) != isinstance(value, bool):
        wanted = "a bool" if isinstance(param.value, bool) else f"a number of {param.unit}"
        raise bad_request(f"param `{param.name}` is {wanted}", field)
    low = -float("inf") if param.low is None else param.low
    high = float("inf") if param.high is None else param.high
    if not low <= value <= high:
        raise bad_request(f"param `{param.name}` lies in [{low:g}, {high:g}]", field)


def _metadata(plan: Plan, sent: Metadata) -> Metadata:
    """Refuse what is too long, and what a rule would read as another type."""
    if len(sent) > MAX_METADATA:
        raise bad_request(f"metadata holds more than {MAX_METADATA} entries", "route.metadata")
    for name, value in sent.items():
        if len(name) > MAX_METADATA_CHARS or len(str(value)) > MAX_METADATA_CHARS:
            what = f"a metadata entry has more than {MAX_METADATA_CHARS} characters"
            raise bad_request(what, "route.metadata")
    for node in chain(plan.start.nodes, *(program.nodes for program in plan.programs)):
        if isinstance(node, RequestField) and node.name in sent:
            _check_type(node, sent[node.name])
    return sent


def _check_type(node: RequestField, value: str | float | bool) -> None:
    if type(value) is not type(node.default):
        names = {str: "text", float: "a number", bool: "a bool"}
        wanted = names[type(node.default)]
        raise bad_request(
            f"the policy reads metadata `{node.name}` as {wanted}", f"route.metadata.{node.name}"
        )


def check_prompt(limits: Limits, prompt: list[int], max_tokens: int | None, field: str) -> None:
    """Refuse a prompt that is empty, does not fit with its output, or holds ids that the vocabulary does not have."""
    if not prompt:
        raise bad_request("the prompt is empty: it holds no token", field)
    limit = limits.context
    if len(prompt) + (1 if max_tokens is None else max_tokens) > limit:
        asked = "" if max_tokens is None else f" and `max_tokens` asks for {max_tokens} more"
        message = f"the prompt has {len(prompt)} tokens{asked}, and the context holds {limit}"
        raise bad_request(message, field, "context_length_exceeded")
    size = limits.vocabulary
    if any(not 0 <= token < size for token in prompt):
        raise bad_request(f"a token id of the prompt is outside 0..{size - 1}", field)


def _seed(request: GenerationRequest) -> int:
    if request.seed is not None:
        return request.seed & MASK
    if request.temperature == 0:
        return 0
    return secrets.randbits(
        53
    )  # more would not survive a client that reads JSON numbers as doubles


def check_ids(limits: Limits, request: GenerationRequest) -> None:
    """Refuse ids that the vocabulary does not have."""
    size = limits.vocabulary
    for field, ids in (
        ("stop_token_ids", request.stop_token_ids),
        ("logit_bias", request.logit_bias),
    ):
        if any(not 0 <= id_ < size for id_ in ids or ()):
            raise bad_request(f"an id of `{field}` is outside 0..{size - 1}", field)


def _sampling(
    limits: Limits,
    request: GenerationRequest,
    n_prompt: int,
    max_tokens: int | None,
    seed: int,
    grammar: str,
) -> Sampling:
    return Sampling(
        seed=seed,
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        top_k=min(max(0, request.top_k or 0), limits.vocabulary),
        min_p=request.min_p or 0.0,
        max_tokens=limits.context - n_prompt if max_tokens is None else max_tokens,
        ignore_eos=bool(request.ignore_eos),
        stop_ids=sorted(set(request.stop_token_ids or ())),
        top_logprobs=request.n_top_logprobs or 0,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        repetition_penalty=request.repetition_penalty or 1.0,
        logit_bias=request.logit_bias or {},
        grammar=grammar,
        prompt_logprobs=request.n_top_logprobs if request.echoes else None,
    )
