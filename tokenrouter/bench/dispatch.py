"""The comparison's dispatcher: the policy outside the servers, one HTTP request a token.

It holds each request's tokens and routing state, asks the owner's server for one token with its signals, evaluates the
owner's rules on them, and asks again. Rules, state and random draws are the plan's own, so at temperature 0 the tokens are
those of the routed server; a sampled token has another draw, since a server's draws know nothing of positions before
its own prompt.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tokenrouter.bench.http import BenchError, Http
from tokenrouter.bench.sample import Ask, Job, Sample
from tokenrouter.models.tokenizer import TextTokenizer
from tokenrouter.plan import evaluate
from tokenrouter.plan import structs as s
from tokenrouter.plan.structs import Plan, Value
from tokenrouter.plan.text import node_text
from tokenrouter.runtime.messages import RouteState, Sampling
from tokenrouter.runtime.random import CHANCE, uniform
from tokenrouter.runtime.start import draw, first_owner
from tokenrouter.runtime.state import (
    Decision,
    advance,
    count_down,
    initial,
    limits,
    tried,
    whole,
)
from tokenrouter.runtime.vocabulary import Vocabulary


@dataclass(eq=False, slots=True)
class _Step:
    """One candidate, as its server told of it."""

    token: int
    signals: dict[str, float]
    state: RouteState
    job: Job
    n_prompt: int


class Dispatcher:
    """A policy over ordinary servers, by model of its plan."""

    def __init__(
        self, plan: Plan, tokenizer: TextTokenizer, servers: Sequence[Http], ask: Ask
    ) -> None:
        self.plan = plan
        self.tokenizer = tokenizer
        self.servers = servers
        self.ask = ask
        self.limits = limits(plan)
        self.params = [ask.params.get(param.name, param.value) for param in plan.params]

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The text of every id, for rules that look at it."""
        plan = self.plan
        return Vocabulary(
            plan.tokenizer.size, self.tokenizer.id_to_bytes, self.tokenizer.special_ids
        )

    async def __call__(self, job: Job) -> Sample:
        """Write one answer, token by token."""
        sample = Sample(started=time.perf_counter(), by_model={})
        try:
            await self._write(job, sample)
        except BenchError as error:
            sample.error = str(error)
        sample.ended = time.perf_counter()
        sample.tokens = len(sample.ids)
        return sample

    async def _write(self, job: Job, sample: Sample) -> None:
        plan = self.plan
        prompt = self.tokenizer.encode(job.prompt) if isinstance(job.prompt, str) else job.prompt
        sample.prompt_tokens = len(prompt)
        sampling = Sampling(max_tokens=job.max_tokens, ignore_eos=self.ask.ignore_eos)
        owner = first_owner(plan, job.seed, len(prompt), [float(p) for p in self.params], {})
        state = initial(plan, owner)
        carried = evaluate.Request(list(self.params), [var.value for var in plan.vars])
        written: Counter[int] = Counter()
        end = None
        while end is None:
            token, signals = await self._one(state.owner, prompt + sample.ids, job, state)
            step = _Step(token, signals, state, job, len(prompt))
            decision = self._decide(step, carried)
            if decision.keep:
                sample.ids.append(token)
                sample.arrivals.append(time.perf_counter())
                written[state.owner] += 1
                n = len(sample.ids)
                end = self.limits.end(token, n, len(prompt) + n, sampling)
                if decision.target is None:
                    end = end or "stop"
            state = advance(state, decision, [], ended=end is not None)
        sample.handoffs = state.switches
        sample.by_model = {model.name: written[at] for at, model in enumerate(plan.models)}

    async def _one(
        self, model: int, tokens: list[int], job: Job, state: RouteState
    ) -> tuple[int, dict[str, float]]:
        """Return one token of a model and the signals that its server computes."""
        seed = (job.seed * 1_000_003 + state.position) * 31 + model
        body: dict[str, Any] = {
            "prompt": tokens,
            "max_tokens": 1,
            "temperature": self.ask.temperature,
            "seed": seed % 2**63,
            "route": {"trace": True},
        }
        answer = await self.servers[model].ask("/completions", body)
        [traced] = answer["choices"][0]["route"]["trace"]
        return traced["id"], traced["signals"]

    def _decide(self, step: _Step, carried: evaluate.Request) -> Decision:
        state = step.state
        program = self.plan.programs[state.owner]
        if state.home is not None:
            roots = [] if state.until is None else [program.untils[state.until]]
            found = self._values(step, carried, roots)
            return count_down(state, reached=bool(roots and found[roots[0]]))
        found = self._values(step, carried, evaluate.needed(program))
        fired = evaluate.fires(program, found)
        if fired is None:
            return Decision(True, state.owner)
        rule = program.rules[fired]
        new = {assign.var: found[assign.value] for assign in rule.sets}
        for var, value in new.items():
            assert not isinstance(value, str), var
            carried.vars[var] = value
        return self._go(step, rule, found)

    def _go(self, step: _Step, rule: s.Rule, found: list[Value]) -> Decision:
        state = step.state
        match rule.go:
            case s.Stay():
                return Decision(rule.keep, state.owner)
            case s.Stop():
                return Decision(rule.keep, None)
            case s.To(model=target):
                if not rule.keep and tried(state, state.owner) >> target & 1:
                    return Decision(True, state.owner)
                return Decision(rule.keep, target)
            case s.Mix():
                target = draw(rule.go, step.job.seed, state.position + 1, state.owner)
                return Decision(rule.keep, target)
            case s.Borrow(model=target, most=most, until=until):
                n = whole(float(found[most]))
                return Decision(rule.keep, target, borrowed=n, until=until)

    def _values(self, step: _Step, carried: evaluate.Request, roots: list[int]) -> list[Value]:
        nodes = self.plan.programs[step.state.owner].nodes

        def given(node: s.Node) -> Value:
            match node:
                case s.Signal():
                    return self._signal(node, nodes, step)
                case s.TokenIn():
                    return self.vocabulary.is_text(node.texts)[step.token]
                case s.ClassIs():
                    return self.vocabulary.is_class(node.name)[step.token]
                case s.RequestField():
                    return node.default  # no metadata is sent
                case _:
                    raise AssertionError(f"{node!r} was refused before")

        return evaluate.values(self.plan, step.state.owner, carried, given, roots)

    def _signal(self, node: s.Signal, nodes: list[s.Node], step: _Step) -> Value:
        state = step.state
        match node.name:
            case "position":
                return float(state.position)
            case "since_switch":
                return float(state.since_switch)
            case "switches":
                return float(state.switches)
            case "prompt_tokens":
                return float(step.n_prompt)
            case "count":
                return float(state.counts[node.args[0]])
            case "share":
                return state.counts[node.args[0]] / max(1, state.position)
            case "chance":
                return uniform(step.job.seed, state.position, state.owner, CHANCE)
            case _:
                return step.signals[node_text(self.plan, nodes, nodes.index(node))]
