"""From what a generation shows to the objects of the OpenAI surface, whole or chunk by chunk.

Text and chat completions differ in the shape of a choice and in nothing else.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

from msgspec import UNSET, UnsetType

from tokenrouter.plan.structs import Plan
from tokenrouter.server.admission import Work
from tokenrouter.server.generation import Generation, Progress
from tokenrouter.server.replies import (
    AnswerMessage,
    ChatChoice,
    ChatPiece,
    Choice,
    CompletionTokensDetails,
    Delta,
    Reply,
    RouteReport,
    RuleCount,
    TextChoice,
    TracedToken,
    Usage,
    encode,
)
from tokenrouter.server.transcript import Transcript, Written

Surface = Literal["text", "chat"]


@dataclass(eq=False, slots=True)
class Answer:
    """The answer to one request in the making."""

    surface: Surface
    name: str  # the model that the client asked for
    plan: Plan
    work: Work
    generation: Generation
    created: int
    id: str = ""
    _opened: set[int] = field(default_factory=set)  # choices whose first chunk is sent

    def __post_init__(self) -> None:
        prefix = "cmpl" if self.surface == "text" else "chatcmpl"
        self.id = f"{prefix}-{secrets.token_hex(16)}"

    async def whole(self) -> Reply:
        """Return the answer when all choices have finished."""
        texts = [""] * len(self.work.jobs)
        traces: list[list[Written]] = [[] for _ in self.work.jobs]
        async with aclosing(self.generation.run()) as run:
            async for choice, shown in run:
                texts[choice] += shown.text
                traces[choice] += shown.tokens
        choices = [self._choice(i, text, traces[i]) for i, text in enumerate(texts)]
        return self._reply(choices, self.usage())

    async def events(self, with_usage: bool) -> AsyncGenerator[bytes, None]:
        """Yield the chunks of a stream, encoded."""
        usage: UnsetType | None = None if with_usage else UNSET
        async with aclosing(self.generation.run()) as run:
            async for progress in run:
                shown = progress.shown
                if shown.text or shown.finish or (self.work.traced and shown.tokens):
                    yield encode(self._reply([self._piece(progress)], usage))
        if with_usage:
            yield encode(self._reply([], self.usage()))

    def usage(self) -> Usage:
        """Return the tokens that count so far."""
        written = [t.n_tokens for t in self.generation.transcripts]
        by_model = {
            model.name: sum(t.by_model[i] for t in self.generation.transcripts)
            for i, model in enumerate(self.plan.models)
        }
        return Usage(
            prompt_tokens=self.work.n_prompt_tokens,
            completion_tokens=sum(written),
            total_tokens=self.work.n_prompt_tokens + sum(written),
            completion_tokens_details=CompletionTokensDetails(tokens_by_model=by_model),
        )

    def _reply(self, choices: list[Choice], usage: Usage | UnsetType | None) -> Reply:
        if self.surface == "text":
            kind: Literal["text_completion", "chat.completion", "chat.completion.chunk"]
            kind = "text_completion"
        else:
            whole = choices and isinstance(choices[0], ChatChoice)
            kind = "chat.completion" if whole else "chat.completion.chunk"
        return Reply(
            id=self.id,
            object=kind,
            created=self.created,
            model=self.name,
            seed=self.work.seed,
            choices=choices,
            usage=usage,
        )

    def _choice(self, index: int, text: str, trace: list[Written]) -> Choice:
        transcript = self.generation.transcripts[index]
        finish = transcript.finish or "length"  # a choice of no tokens never started
        route = self._report(index, transcript, trace)
        if self.surface == "text":
            return TextChoice(index=index, text=text, finish_reason=finish, route=route)
        message = AnswerMessage(content=text)
        return ChatChoice(index=index, message=message, finish_reason=finish, route=route)

    def _piece(self, progress: Progress) -> Choice:
        index, (text, tokens, finish) = progress
        route: RouteReport | UnsetType = UNSET
        if finish:
            route = self._report(index, self.generation.transcripts[index], tokens)
        elif self.work.traced:
            route = RouteReport(trace=self._trace(tokens))
        if self.surface == "text":
            return TextChoice(index=index, text=text, finish_reason=finish, route=route)
        role: Literal["assistant"] | UnsetType = UNSET if index in self._opened else "assistant"
        self._opened.add(index)
        delta = Delta(role=role, content=text)
        return ChatPiece(index=index, delta=delta, finish_reason=finish, route=route)

    def _report(self, index: int, transcript: Transcript, tokens: Sequence[Written]) -> RouteReport:
        by_rule = sorted(
            transcript.by_rule.items(), key=lambda item: (item[0][0], item[0][1] is None, item[0])
        )
        return RouteReport(
            seed=self.work.jobs[index].sampling.seed,
            handoffs=transcript.handoffs,
            tokens_by_model={
                model.name: transcript.by_model[i] for i, model in enumerate(self.plan.models)
            },
            tokens_by_rule=[self._rule(model, rule, n) for (model, rule), n in by_rule],
            trace=self._trace(tokens) if self.work.traced else UNSET,
        )

    def _rule(self, model: int, rule: int | None, n: int) -> RuleCount:
        lines = {(r.model, r.rule): r.line for r in self.plan.provenance.rules}
        name = self.plan.models[model].name
        line = None if rule is None else lines.get((model, rule))
        return RuleCount(model=name, rule=rule, line=line, tokens=n)

    def _trace(self, tokens: Sequence[Written]) -> list[TracedToken]:
        return [
            TracedToken(
                id=token.token,
                text=text,
                model=self.plan.models[token.model].name,
                rule=token.rule,
                logprob=token.logprob,
                signals=token.signals,
            )
            for token, text in tokens
        ]
