"""From what a generation shows to the objects of the OpenAI surface, whole or chunk by chunk.

Text and chat completions differ in the shape of a choice and in nothing else.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

from msgspec import UNSET, UnsetType

from tokenrouter.server.admission import Work
from tokenrouter.server.generation import Generation, Progress
from tokenrouter.server.replies import (
    AnswerMessage,
    ChatChoice,
    ChatPiece,
    Choice,
    Delta,
    Reply,
    RouteReport,
    TextChoice,
    Usage,
    encode,
)
from tokenrouter.server.report import Reporter
from tokenrouter.server.transcript import Written

Surface = Literal["text", "chat"]


@dataclass(eq=False, slots=True)
class Answer:
    """The answer to one request in the making."""

    surface: Surface
    name: str  # the model that the client asked for
    reporter: Reporter
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
        return self.reporter.usage(self.work.n_prompt_tokens, self.generation.transcripts)

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
        finish = (
            self.generation.transcripts[index].finish or "length"
        )  # a choice of no tokens never started
        route = self._route(index, trace)
        if self.surface == "text":
            return TextChoice(index=index, text=text, finish_reason=finish, route=route)
        message = AnswerMessage(content=text)
        return ChatChoice(index=index, message=message, finish_reason=finish, route=route)

    def _piece(self, progress: Progress) -> Choice:
        index, (text, tokens, finish) = progress
        route: RouteReport | UnsetType = UNSET
        if finish:
            route = self._route(index, tokens)
        elif self.work.traced:
            route = RouteReport(trace=self.reporter.trace(tokens))
        if self.surface == "text":
            return TextChoice(index=index, text=text, finish_reason=finish, route=route)
        role: Literal["assistant"] | UnsetType = UNSET if index in self._opened else "assistant"
        self._opened.add(index)
        delta = Delta(role=role, content=text)
        return ChatPiece(index=index, delta=delta, finish_reason=finish, route=route)

    def _route(self, index: int, tokens: list[Written]) -> RouteReport:
        return self.reporter.route(
            self.work.jobs[index].sampling.seed,
            self.generation.transcripts[index],
            tokens if self.work.traced else None,
        )
