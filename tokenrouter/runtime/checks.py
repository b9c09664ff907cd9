"""What a message must be for one plan, beyond its type: ids that exist, lists of the right length, numbers in range.

Whoever takes a message asks here first, so that no handler meets an index that its plan does not have. What depends on the
requests at hand (a hand-off's place in its sequence, a number that was used before) is the handlers' own to see.

Each function returns what is wrong, for the log, or None.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tokenrouter.plan import structs as plan_
from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.messages import (
    DELAY_BOUNDS_MS,
    EAGER,
    Active,
    Admit,
    Commits,
    Gated,
    Handoff,
    Held,
    Report,
    RouteState,
    Sampling,
    Scores,
    Tally,
    ToFrontEnd,
    Token,
    ToSubserver,
    Windows,
)
from tokenrouter.runtime.phases import PHASES

MOST = 2**53  # of any number that counts something
MOST_TOP_K = 2**31 - 1


class MessageCheck:
    """The checks of one plan's messages."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.n = len(plan.models)
        self.size = plan.tokenizer.size
        self.context = plan.context
        self._resumes = [
            any(isinstance(task, plan_.Resume) for task in subserver.tasks)
            for subserver in plan.subservers
        ]

    def to_subserver(self, message: ToSubserver, model: int) -> str | None:
        """Look at a message to one model's subserver."""
        match message:
            case Admit():
                return self._admit(message)
            case Handoff():
                return self._handoff(message, model)
            case Windows():
                windows = message.windows
                return None if windows and _counts(windows, low=1) else "windows below 1, or none"
            case Active():
                return None if _counts([message.n]) else "a negative number of requests"
            case _:
                return None

    def to_front_end(self, message: ToFrontEnd) -> str | None:
        """Look at a message to the front end."""
        if not isinstance(message, Scores) and not 0 <= message.model < self.n:
            return f"model {message.model} of {self.n}"
        match message:
            case Commits():
                return next(filter(None, map(self._token, message.tokens)), None)
            case Scores():
                ids = [id_ for _, top in message.places for id_, _ in top]
                return None if message.start >= 1 and self._known(ids) else "ids or a start beyond"
            case Held():
                return None if _counts(message.requests) else "a negative request"
            case Gated():
                return None if _counts([message.waiting]) else "a negative number of requests"
            case Tally():
                return self._tally(message)
            case Report():
                return self._report(message)
            case _:
                return None

    def _admit(self, message: Admit) -> str | None:
        n_tokens = len(message.prompt) + len(message.output)
        if not _counts([message.request]):
            return "a negative request"
        if not message.prompt or n_tokens > self.context:
            return f"{n_tokens} tokens of prompt and output, in a context of {self.context}"
        if not (self._known(message.prompt) and self._known(message.output)):
            return "tokens that are not in the vocabulary"
        if len(message.epochs) != self.n or len(message.params) != len(self.plan.params):
            return f"{len(message.epochs)} epochs and {len(message.params)} params"
        if len(message.queues) not in (0, self.n) or not _counts(message.queues):
            return "queues of other models than the plan's"
        if message.state.position != len(message.output):
            return f"position {message.state.position} after {len(message.output)} tokens"
        return self._state(message.state) or sampling_fault(message.sampling, self.size)

    def _handoff(self, message: Handoff, model: int) -> str | None:
        if not self._resumes[model]:
            return "a hand-off to a model that takes none"
        if message.state.owner != model:
            return f"a hand-off to model {message.state.owner}"
        if not _counts([message.request, message.start]) or not self._known(message.tokens):
            return "tokens or places that do not exist"
        end = message.start + len(message.tokens)
        if end > self.context or len(message.seen) != self.n or not _counts(message.seen, high=end):
            return "more than there can be of a sequence"
        if len(message.queues) not in (0, self.n) or not _counts(message.queues):
            return "queues of other models than the plan's"
        return self._state(message.state)

    def _state(self, state: RouteState) -> str | None:
        models = [state.owner] if state.home is None else [state.owner, state.home]
        if not _counts(models, high=self.n - 1):
            return f"models {models} of {self.n}"
        if len(state.counts) != self.n or not _counts(state.counts):
            return "counts of other models than the plan's"
        if len(state.vars) != len(self.plan.vars) or len(state.windows) > self.n:
            return f"{len(state.vars)} variables and windows of {len(state.windows)} models"
        untils = len(self.plan.programs[state.owner].untils)
        if state.until is not None and not 0 <= state.until < untils:
            return f"`until` {state.until} of {untils}"
        numbers = [state.position, state.switches, state.since_switch, state.tried]
        return None if _counts(numbers) else f"counters {numbers}"

    def _token(self, token: Token) -> str | None:
        if not 0 <= token.model < self.n:
            return f"model {token.model} of {self.n}"
        ids = [token.token, *(id_ for id_, _ in token.top)]
        if not self._known(ids) or token.prompt:
            return "ids that are not in the vocabulary, or a prompt"
        rules = len(self.plan.programs[token.model].rules)
        if token.rule is not None and not 0 <= token.rule < rules:
            return f"rule {token.rule} of {rules}"
        if not 1 <= token.state.position <= self.context:
            return f"position {token.state.position}"
        return self._state(token.state)

    def _tally(self, tally: Tally) -> str | None:
        if len(tally.delays) != len(DELAY_BOUNDS_MS) + 1:
            return f"{len(tally.delays)} buckets of delays"
        numbers = [tally.steps, tally.n_active, tally.window, tally.waiting]
        numbers += [tally.entered, tally.ended, tally.ended_tokens]
        numbers += [*tally.launches.values(), *tally.batch_sizes.values(), *tally.delays]
        if not _counts(numbers) or not _counts(tally.batch_sizes, low=1):
            return "negative counts"
        if not _times([tally.delay_sum_ms, *(time.median_ms for time in tally.times)]):
            return "times that are none"
        if not _counts([t.n for t in tally.times]) or not _counts([t.size for t in tally.times], 1):
            return "negative counts"
        for move in tally.moves:
            homes = (move.home, move.left, move.target_home, move.target_left)
            if not _counts([move.target], high=self.n - 1) or not _counts(homes, low=-1):
                return "moves to models that do not exist"
            if max(move.home, move.target_home) >= self.n or not _counts([move.n, move.kept]):
                return "moves to models that do not exist"
        return None

    def _report(self, report: Report) -> str | None:
        numbers = [report.running, report.pending, report.free, report.kept, report.preempted]
        numbers += [report.steps, report.prefix_asked, report.prefix_found]
        if not _counts(numbers) or not _counts([report.pages], low=1):
            return "negative counts"
        if report.free + report.kept > report.pages:
            return "more pages than there are"
        for peer, rule, n in report.handoffs:
            if not _counts([peer], high=self.n - 1) or not _counts([rule], low=-1) or n < 0:
                return "hand-offs to models that do not exist"
        if not _counts(n for each in report.captured for n in each):
            return "negative counts"
        if not set(report.eager) <= set(EAGER) or not _counts(report.eager.values()):
            return "steps for reasons that do not exist, or negative ones"
        if not set(report.phases) <= set(PHASES) or not _times(report.phases.values()):
            return "times of phases that do not exist, or negative ones"
        return None

    def _known(self, ids: Sequence[int]) -> bool:
        return not ids or (min(ids) >= 0 and max(ids) < self.size)


def sampling_fault(sampling: Sampling, size: int) -> str | None:
    """Return what of a request's sampling cannot be, for a vocabulary of `size`; a client may read it."""
    if not 0 <= sampling.seed < 2**64:
        return "seed exceeds 64 bits"
    if not 0 <= sampling.temperature < math.inf:
        return f"temperature is {sampling.temperature}"
    if not 0 < sampling.top_p <= 1 or not 0 <= sampling.min_p <= 1:
        return f"top_p is {sampling.top_p} and min_p {sampling.min_p}"
    if not 0 <= sampling.top_k <= MOST_TOP_K:
        return f"top_k is {sampling.top_k}"
    least = 1 if sampling.prompt_logprobs is None else 0
    if not least <= sampling.max_tokens <= MOST:
        return f"max_tokens is {sampling.max_tokens}, below {least} or without end"
    if sampling.top_logprobs < 0 or (sampling.prompt_logprobs or 0) < 0:
        return "a negative number of log probabilities"
    penalties = (sampling.presence_penalty, sampling.frequency_penalty)
    if not all(map(math.isfinite, penalties)) or not 0 < sampling.repetition_penalty < math.inf:
        return f"the penalties are {penalties} and {sampling.repetition_penalty}"
    if any(not 0 <= id_ < size for id_ in sampling.logit_bias):
        return "logit_bias names an id that is not in the vocabulary"
    if any(not math.isfinite(bias) for bias in sampling.logit_bias.values()):
        return "a bias is no finite number"
    return None


def _counts(numbers: Iterable[int], low: int = 0, high: int = MOST) -> bool:
    known = tuple(numbers)
    return not known or (min(known) >= low and max(known) <= high)


def _times(numbers: Iterable[float]) -> bool:
    return all(0 <= number < math.inf for number in numbers)
