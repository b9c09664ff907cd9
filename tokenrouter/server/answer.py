"""From what a generation shows to the objects of the OpenAI surface, whole or chunk by chunk.

Text and chat completions differ in the shape of a choice and in nothing else.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal, TypedDict

from msgspec import UNSET, UnsetType

from tokenrouter.server.admission import Work
from tokenrouter.server.detokenize import Detokenizer
from tokenrouter.server.generation import Generation, Progress
from tokenrouter.server.logprobs import LogprobWriter, joined
from tokenrouter.server.replies import (
    AnswerMessage,
    ChatChoice,
    ChatChunk,
    ChatLogprobs,
    ChatPiece,
    ChatReply,
    Delta,
    Finish,
    Reply,
    RouteReport,
    TextChoice,
    TextLogprobs,
    TextReply,
    Usage,
    encode,
)
from tokenrouter.server.report import Reporter
from tokenrouter.server.transcript import Shown, Written

Surface = Literal["text", "chat"]


class Head(TypedDict):
    """The fields that all replies share."""

    id: str
    created: int
    model: str
    seed: int
    usage: Usage | UnsetType | None


@dataclass(eq=False, slots=True)
class Answer:
    """The answer to one request in the making."""

    surface: Surface
    name: str  # the model that the client asked for
    reporter: Reporter
    work: Work
    generation: Generation
    logprobs: list[LogprobWriter]  # by choice
    id_to_bytes: Callable[[int], bytes]
    created: int
    id: str = ""
    _opened: set[int] = field(default_factory=set)  # choices whose first chunk is sent

    def __post_init__(self) -> None:
        prefix = "cmpl" if self.surface == "text" else "chatcmpl"
        self.id = f"{prefix}-{secrets.token_hex(16)}"

    async def whole(self) -> Reply:
        """Return the answer when all choices have finished."""
        texts = [""] * len(self.work.jobs)
        tokens: list[list[Written]] = [[] for _ in self.work.jobs]
        async with aclosing(self.generation.run()) as run:
            async for choice, shown in run:
                texts[choice] += shown.text
                tokens[choice] += shown.tokens
        done = [
            Shown(*each, self._finish(i)) for i, each in enumerate(zip(texts, tokens, strict=True))
        ]
        if self.surface == "text":
            choices = [self._text_choice(Progress(i, shown)) for i, shown in enumerate(done)]
            return TextReply(choices=choices, **self._head(self.usage()))
        return ChatReply(
            choices=[
                ChatChoice(
                    index=i,
                    message=AnswerMessage(content=shown.text),
                    finish_reason=shown.finish,
                    logprobs=self._chat_logprobs(i, shown.tokens),
                    route=self._route(i, shown.tokens),
                )
                for i, shown in enumerate(done)
            ],
            **self._head(self.usage()),
        )

    async def events(self, with_usage: bool) -> AsyncGenerator[bytes, None]:
        """Yield the chunks of a stream, encoded."""
        usage: UnsetType | None = None if with_usage else UNSET
        told = self.work.traced or self.work.n_top_logprobs is not None
        async with aclosing(self.generation.run()) as run:
            async for progress in run:
                shown = progress.shown
                unopened = self.work.echoes and progress.choice not in self._opened
                if unopened or shown.text or shown.finish or (told and shown.tokens):
                    yield encode(self._chunk([progress], usage))
        if with_usage:
            yield encode(self._chunk([], self.usage()))

    def _chunk(self, steps: list[Progress], usage: Usage | UnsetType | None) -> Reply:
        if self.surface == "text":
            return TextReply(choices=[self._text_choice(s) for s in steps], **self._head(usage))
        return ChatChunk(choices=[self._piece(s) for s in steps], **self._head(usage))

    def usage(self) -> Usage:
        """Return the tokens that count so far."""
        return self.reporter.usage(self.work.n_prompt_tokens, self.generation.transcripts)

    def _head(self, usage: Usage | UnsetType | None) -> Head:
        return {
            "id": self.id,
            "created": self.created,
            "model": self.name,
            "seed": self.work.seed,
            "usage": usage,
        }

    def finish_reasons(self) -> list[Finish | None]:
        """Return why each choice has ended; None where it has not."""
        return [transcript.finish for transcript in self.generation.transcripts]

    def _finish(self, index: int) -> Finish:
        return self.generation.transcripts[index].finish or "length"  # no token was asked for

    def _text_choice(self, progress: Progress) -> TextChoice:
        index, (text, tokens, finish) = progress
        prompt, of_prompt = self._echo(index)
        n_top = self.work.n_top_logprobs
        told = None if n_top is None else self.logprobs[index].text(tokens, n_top > 0)
        return TextChoice(
            index=index,
            text=prompt + text,
            finish_reason=finish,
            logprobs=joined(of_prompt, told) if of_prompt and told else told,
            route=self._progress_route(progress),
        )

    def _echo(self, index: int) -> tuple[str, TextLogprobs | None]:
        """Return what a choice begins with, once: its prompt where the request asks for it."""
        if not self.work.echoes or index in self._opened:
            return "", None
        self._opened.add(index)
        prompt, n_top = self.work.jobs[index].prompt, self.work.n_top_logprobs
        detokenizer = Detokenizer(self.id_to_bytes)
        texts = [detokenizer.feed(id_) for id_ in prompt]
        if self.work.jobs[index].sampling.max_tokens == 0:
            texts[-1] += detokenizer.flush()  # else the answer goes on with the character
        of_prompt = None
        if n_top is not None:
            places = self.generation.places[index]
            of_prompt = self.logprobs[index].echo(prompt, texts, places, n_top > 0)
        return "".join(texts), of_prompt

    def _piece(self, progress: Progress) -> ChatPiece:
        index, (text, tokens, finish) = progress
        role: Literal["assistant"] | UnsetType = UNSET if index in self._opened else "assistant"
        self._opened.add(index)
        return ChatPiece(
            index=index,
            delta=Delta(role=role, content=text),
            finish_reason=finish,
            logprobs=self._chat_logprobs(index, tokens),
            route=self._progress_route(progress),
        )

    def _chat_logprobs(self, index: int, tokens: list[Written]) -> ChatLogprobs | None:
        return None if self.work.n_top_logprobs is None else self.logprobs[index].chat(tokens)

    def _progress_route(self, progress: Progress) -> RouteReport | UnsetType:
        """Return the totals with the finish, the tokens before it where they are asked for."""
        index, (_, tokens, finish) = progress
        if finish:
            return self._route(index, tokens)
        return RouteReport(trace=self.reporter.trace(tokens)) if self.work.traced else UNSET

    def _route(self, index: int, tokens: list[Written]) -> RouteReport:
        return self.reporter.route(
            self.work.jobs[index].sampling.seed,
            self.generation.transcripts[index],
            tokens if self.work.traced else None,
        )
