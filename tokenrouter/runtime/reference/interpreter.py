"""The loop: step, candidate, signals, rules, action; language.md's page on one step, written as it stands.

It follows one request and keeps nothing between steps but the tokens and the route state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import floor
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from tokenrouter.plan import structs as s
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.reference import draws
from tokenrouter.runtime.reference import values as v
from tokenrouter.runtime.reference.distribution import Candidate, Distribution, Text
from tokenrouter.runtime.reference.grammar import Allowed, allowed
from tokenrouter.runtime.reference.heads import HeadOf, Seen, value
from tokenrouter.runtime.reference.heads import read as read_heads
from tokenrouter.runtime.reference.load import Logits, Remembered, load, texts
from tokenrouter.runtime.reference.trace import After, Slack, Step, Trace


class Stay(NamedTuple):
    """A borrowed stay: the model that is there writes `remaining` tokens more, then `home` decides."""

    home: int
    remaining: int
    until: int | None


class Action(NamedTuple):
    """What a rule does with the candidate and the request."""

    keep: bool
    go: s.Go
    rule: int | None
    borrowed: int = 0


@dataclass(eq=False, slots=True)
class Request:
    """One request between two steps."""

    prompt: list[int]
    sampling: Sampling
    params: list[s.Value]
    metadata: Mapping[str, s.Value]
    owner: int
    vars: list[v.Known]
    counts: list[int]
    windows: list[dict[int, list[v.Known]]]  # by model, by node
    output: list[Step] = field(default_factory=list)
    switches: int = 0
    since_switch: int = 0
    tried: set[int] = field(default_factory=set)  # models that dropped this position's candidate
    stay: Stay | None = None
    slack: Slack = field(default_factory=Slack)  # at this position so far
    loads: Sequence[Sequence[Mapping[int, float]]] = ()  # as recorded, by position, by step
    asked: int = 0  # steps at this position, the start rules counted as one of the first

    def hand_to(self, model: int) -> None:
        """Give the next decision to a model; where it is there already, nothing is handed over."""
        if model == self.owner:
            self.since_switch += 1
        else:
            self.owner = model
            self.switches += 1
            self.since_switch = 0


class Reference:
    """A plan and its models. `models` gives functions from token ids to the next token's logits instead of loading."""

    def __init__(
        self,
        plan: s.Plan,
        base: Path = Path(),
        dtype: torch.dtype = torch.float32,
        models: Sequence[Logits] | None = None,
        heads: Mapping[int, HeadOf] | None = None,  # beside those in files: the Python ones
    ) -> None:
        self.plan = plan
        self.base = base
        self.models = list(models) if models else load(plan.models, base, dtype)
        self.heads = {**read_heads(plan.heads, base), **(heads or {})}
        self.context = plan.context
        self.columns = [_columns(program) for program in plan.programs]
        nodes = [node for program in plan.programs for node in program.nodes]
        self.text: Callable[[int], tuple[str, bool]] = lambda token: ("", False)
        if any(isinstance(node, (s.TokenIn, s.ClassIs)) for node in nodes):
            self.text = texts(plan.models[plan.tokenizer.template_from], base)

    @cached_property
    def allowed(self) -> Allowed:
        """What a grammar allows; made for the first request that asks for one."""
        return allowed(self.plan, self.base)

    def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        params: Mapping[str, float | bool] | None = None,
        metadata: Mapping[str, s.Value] | None = None,
        loads: Sequence[Sequence[Mapping[int, float]]] = (),
    ) -> Trace:
        """Return the whole output of one request; `loads` are the load signals that a served one read (`Token.loads`)."""
        plan = self.plan
        given = dict(params or {})
        chosen: list[s.Value] = [given.get(param.name, param.value) for param in plan.params]
        request = Request(
            prompt=list(prompt),
            sampling=sampling,
            params=chosen,
            metadata=metadata or {},
            owner=-1,
            vars=[v.Known(var.value, exact=True) for var in plan.vars],
            counts=[0] * len(plan.models),
            windows=[{} for _ in plan.models],
            loads=loads,
        )
        request.owner = self._first(request)
        forwards = [0] * len(plan.models)
        finish = None
        while finish is None:
            forwards[request.owner] += 1
            finish = self._step(request)
        return Trace(request.output, finish, request.switches, forwards)

    def _first(self, request: Request) -> int:
        """Return the model that decides the first position."""
        start = self.plan.start
        evaluator = v.Evaluator(start.nodes, self._seen(request, 0))
        rule = next(rule for rule in start.rules if evaluator.holds(rule.when))
        if isinstance(rule.go, s.To):
            return rule.go.model
        return _drawn(rule.go, draws.uniform(request.sampling.seed, 0, 0, draws.MIX))

    def _seen(self, request: Request, model: int) -> v.Step:
        position, step = len(request.output), request.asked
        recorded = request.loads[position] if position < len(request.loads) else ()
        request.asked += 1
        return v.Step(
            load=recorded[step] if step < len(recorded) else {},
            model=model,
            seed=request.sampling.seed,
            position=len(request.output),
            prompt_tokens=len(request.prompt),
            since_switch=request.since_switch,
            switches=request.switches,
            counts=request.counts,
            params=request.params,
            vars=request.vars,
            metadata=request.metadata,
        )

    def _step(self, request: Request) -> Literal["stop", "length"] | None:
        """Take one step at the owner; return how the request ends by it, or None where it goes on."""
        model, position = request.owner, len(request.output)
        tokens = [*request.prompt, *(step.token for step in request.output)]
        row = self.models[model](tokens)
        seen = Distribution(row, self.plan.tokenizer.size, self.columns[model])
        draw = draws.uniform(request.sampling.seed, position, model, draws.SAMPLE)
        output = tokens[len(request.prompt) :]
        grammar = request.sampling.grammar
        may = self.allowed(grammar, output) if grammar else None
        candidate = seen.candidate(request.sampling, draw, Text(request.prompt, output, may))
        request.slack = request.slack.joined(candidate.slack)
        action, assigned = self._decide(request, seen, candidate)
        if not action.keep:
            request.vars = assigned
            request.tried.add(model)
            self._go(request, action)
            return None
        logprob = seen.logprob(candidate.token)
        written = Step(candidate.token, model, action.rule, logprob, request.slack, None)
        request.output.append(written)
        request.counts[model] += 1
        request.vars = assigned
        request.tried.clear()
        request.asked = 0
        request.slack = Slack()
        if finish := self._ended(request, candidate.token, action):
            return finish
        self._go(request, action)
        request.output[-1] = replace(written, after=self._after(request))
        return None

    def _after(self, request: Request) -> After:
        windows = [
            [
                [float(k.value) for k in request.windows[model].get(at, [])]
                for at, node in enumerate(program.nodes)
                if isinstance(node, s.Window)
            ]
            for model, program in enumerate(self.plan.programs)
        ]
        return After(
            owner=request.owner,
            home=None if request.stay is None else request.stay.home,
            remaining=0 if request.stay is None else request.stay.remaining,
            counts=list(request.counts),
            switches=request.switches,
            since_switch=request.since_switch,
            vars=[float(k.value) for k in request.vars],
            windows=windows,
        )

    def _decide(
        self, request: Request, seen: Distribution, candidate: Candidate
    ) -> tuple[Action, list[v.Known]]:
        """Return what becomes of the candidate, and the variables after it."""
        model = request.owner
        program = self.plan.programs[model]
        text, special = self.text(candidate.token)
        evaluator = v.Evaluator(
            program.nodes,
            replace(
                self._seen(request, model),
                distribution=seen,
                candidate=candidate.token,
                head=lambda at: self._head(at, request, seen, candidate.token),
                text=text,
                special=special,
            ),
            request.windows[model],
        )
        if request.stay is not None:
            action = self._borrowed(request, request.stay, evaluator)
            request.slack = request.slack.joined(evaluator.slack)
            return action, request.vars
        for node in sorted(v.needed(program.nodes, _roots(program))):
            evaluator.known(node)
        action = _fired(program, evaluator)
        request.slack = request.slack.joined(evaluator.slack)
        assigned = list(request.vars)
        if action.rule is not None:
            for one in program.rules[action.rule].sets:
                assigned[one.var] = evaluator.known(one.value)
        if _retries(action) in request.tried | {model}:  # it had its turn at this position
            action = Action(keep=True, go=s.Stay(), rule=action.rule)
        return action, assigned

    def _head(self, at: int, request: Request, seen: Distribution, token: int) -> float:
        """Return what a router head says of this step."""
        model = self.models[request.owner]
        assert isinstance(model, Remembered), (
            "a plan with heads needs models that show their states"
        )
        tokens = [*request.prompt, *(step.token for step in request.output)]
        size = self.plan.tokenizer.size
        step = Seen(model.hidden(tokens), seen.row[:size], token, model.embedding(token))
        return value(self.heads, self.plan.heads, at, step)

    def _borrowed(self, request: Request, stay: Stay, evaluator: v.Evaluator) -> Action:
        """Count down a borrowed stay; its last token, or the one its `until` holds on, is kept and ends it."""
        request.stay = stay._replace(remaining=stay.remaining - 1)
        over = request.stay.remaining == 0
        if stay.until is not None:
            program = self.plan.programs[request.owner]
            over = evaluator.holds(program.untils[stay.until]) or over
        if over:
            request.stay = None
            return Action(keep=True, go=s.To(model=stay.home), rule=None)
        return Action(keep=True, go=s.Stay(), rule=None)

    def _ended(
        self, request: Request, token: int, action: Action
    ) -> Literal["stop", "length"] | None:
        sampling = request.sampling
        if token in self.plan.tokenizer.eos_ids and not sampling.ignore_eos:
            return "stop"
        if token in sampling.stop_ids or isinstance(action.go, s.Stop):
            return "stop"
        if len(request.output) >= sampling.max_tokens:
            return "length"
        if len(request.prompt) + len(request.output) >= self.context:
            return "length"
        return None

    def _go(self, request: Request, action: Action) -> None:
        """Hand the next decision on."""
        go = action.go
        if isinstance(go, s.To):
            request.hand_to(go.model)
        elif isinstance(go, s.Borrow):
            request.stay = Stay(request.owner, action.borrowed, go.until)
            request.hand_to(go.model)
        elif isinstance(go, s.Mix):
            # The draw belongs to the position that is decided next and to the model that asks.
            position = len(request.output)
            draw = draws.uniform(request.sampling.seed, position, request.owner, draws.MIX)
            request.hand_to(_drawn(go, draw))
        else:
            request.hand_to(request.owner)


def _fired(program: s.Program, evaluator: v.Evaluator) -> Action:
    """Return the action of the first rule that holds; a borrow of less than one token is passed over."""
    for index, rule in enumerate(program.rules):
        if not evaluator.holds(rule.when):
            continue
        if isinstance(rule.go, s.Borrow):
            most = evaluator.number(rule.go.most)
            if not most >= 1:
                continue
            return Action(rule.keep, rule.go, index, floor(min(most, 2**31)))
        return Action(rule.keep, rule.go, index)
    return Action(keep=True, go=s.Stay(), rule=None)


def _retries(action: Action) -> int | None:
    """Return the model that shall decide this position instead, None where there is none."""
    return action.go.model if isinstance(action.go, s.To) and not action.keep else None


def _roots(program: s.Program) -> list[int]:
    """Return the nodes that a step evaluates where the rules are asked: all that any rule reads."""
    roots = [rule.when for rule in program.rules if rule.when is not None]
    roots += [rule.go.most for rule in program.rules if isinstance(rule.go, s.Borrow)]
    roots += [one.value for rule in program.rules for one in rule.sets]
    return roots


def _columns(program: s.Program) -> frozenset[int]:
    """Return the deferral rows that a program reads."""
    return frozenset(
        node.args[0]
        for node in program.nodes
        if isinstance(node, s.Signal) and node.name == "column"
    )


def _drawn(mix: s.Mix, draw: float) -> int:
    """Return the model of a mixture that a draw in [0, 1) falls on."""
    total = 0.0
    for share in mix.weights:
        total += share.weight
        if draw < total:
            return share.model
    return mix.weights[-1].model
