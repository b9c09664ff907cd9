"""What is served: one plan under one name, its tokenizer, and the runtime that runs it.

The app asks it for everything, so that the same routes answer while models load, while they work and while the server
drains.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from tokenrouter.models.errors import ModelError
from tokenrouter.models.tokenizer import TextTokenizer
from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.client import Client
from tokenrouter.runtime.grammar import Grammars, give_way
from tokenrouter.server.admission import Limits, Work, check_prompt, prepare
from tokenrouter.server.answer import Answer
from tokenrouter.server.aside import LARGE, aside
from tokenrouter.server.counts import Counts
from tokenrouter.server.detokenize import Detokenizer
from tokenrouter.server.errors import bad_request, given_up, no_such_model, not_ready
from tokenrouter.server.generation import Generation
from tokenrouter.server.guided import Guide, compiled, guide
from tokenrouter.server.logprobs import LogprobWriter
from tokenrouter.server.protocol import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    GenerationRequest,
    TokenizeRequest,
    turns,
)
from tokenrouter.server.replies import (
    Detokenized,
    ModelCard,
    ParamCard,
    Readiness,
    RouteCard,
    Tokenized,
)
from tokenrouter.server.report import Reporter

DEFAULT_MAX_TOKENS = 16  # of a text completion, as OpenAI's
BODY_LIMIT_BYTES = 4 << 20
COMPILING = 1  # grammars at once
MAX_KNOWN = 64  # grammars that need not be compiled again to see that they can be
ENCODING = 2  # long texts at once


@dataclass(eq=False, slots=True)
class Service:
    """One plan, served under one name."""

    name: str
    plan: Plan
    tokenizer: TextTokenizer
    client: Client
    api_key: str | None = None
    body_limit_bytes: int = BODY_LIMIT_BYTES
    request_timeout_s: float | None = None  # that every request has; None is no limit
    cors_origins: tuple[str, ...] = ()  # of pages in browsers that may ask here
    created: int = field(default_factory=lambda: int(time.time()))
    draining: bool = False
    counts: Counts = field(default_factory=Counts)
    _grammars: Grammars = field(init=False)
    _compiling: ThreadPoolExecutor = field(
        default_factory=partial(ThreadPoolExecutor, COMPILING, "grammars", give_way)
    )
    _known_grammars: dict[Guide, str] = field(default_factory=dict)  # the oldest first
    _encoding: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, ENCODING))

    def __post_init__(self) -> None:
        self.client.watch = self.counts.watch
        tokenizer = self.plan.tokenizer
        self._grammars = Grammars(lambda: self.tokenizer, tokenizer.size, tokenizer.eos_ids)

    def check_ready(self) -> None:
        """Refuse while nothing can be served."""
        if self.draining:
            raise not_ready("the server is shutting down")
        failure = self.client.status().failure
        if failure is not None:
            raise given_up(f"{failure}; start the server again")
        if not self.client.ready:
            raise not_ready("the models are not ready yet; /ready tells when they are")

    def check_name(self, name: str | None) -> None:
        """Refuse a request for another model; one that names none gets the one there is."""
        if name not in (None, self.name):
            raise no_such_model(name or "", [self.name])

    @property
    def readiness(self) -> Readiness:
        """What `/ready` tells."""
        now = self.client.status()
        status: Literal["ready", "not ready", "draining", "failed"]
        status = "draining" if self.draining else "ready" if now.ready else "not ready"
        if now.failure is not None:
            status = "failed"
        return Readiness(
            status=status,
            models={model.name: model.ready for model in now.models},
            running=now.running,
            waiting=now.waiting,
            reason=now.failure,
        )

    @property
    def limits(self) -> Limits:
        """What bounds a request, as the running subservers know it."""
        client = self.client
        active = self.plan.windows.max_active
        return Limits(self.plan.tokenizer.size, client.longest, active, client.max_waiting)

    def card(self) -> ModelCard:
        """What `/v1/models` tells."""
        params = [
            ParamCard(name=p.name, unit=p.unit, value=p.value, low=p.low, high=p.high)
            for p in self.plan.params
        ]
        route = RouteCard(
            models=[model.name for model in self.plan.models],
            params=params,
            program_hash=self.plan.program_hash,
        )
        context = self.limits.context
        return ModelCard(id=self.name, created=self.created, context=context, route=route)

    @property
    def hidden(self) -> frozenset[int]:
        """Ids without text: special and end-of-sequence tokens."""
        return self.tokenizer.special_ids | set(self.plan.tokenizer.eos_ids)

    def _new_detokenizer(self, echoed: list[int]) -> Detokenizer:
        """Return what makes text of an answer; it goes on with the character that an echoed prompt ends in."""
        made = Detokenizer(self.tokenizer.id_to_bytes, self.hidden)
        if echoed:
            prompt = Detokenizer(self.tokenizer.id_to_bytes)
            for id_ in echoed:
                prompt.feed(id_)
            made.follows(prompt)
        return made

    async def encode(
        self,
        prompt: str | list[dict[str, str]],
        *,
        fits: bool,
        with_special: bool | None = None,  # None: for a text, since a template writes its own
        answers: bool = True,
    ) -> list[int]:
        """Return the ids of a text, or of a conversation through the chat template; refuse what has none.

        With `fits`, a text that no prompt could hold is refused before it is encoded; with `answers`, a conversation ends
        where the answer begins.
        """
        try:
            if isinstance(prompt, str):
                field, text = "prompt", prompt
            else:
                field = "messages"
                size = sum(len(turn["content"]) + len(turn) for turn in prompt)
                text = await aside(size, self.tokenizer.render, prompt, answers=answers)
            if with_special is None:
                with_special = isinstance(prompt, str)
            if fits:
                self._check_bytes(text, field)
            if len(text) < LARGE:
                return self.tokenizer.encode(text, with_special=with_special)
            async with self._encoding:
                return await aside(
                    len(text), self.tokenizer.encode, text, with_special=with_special
                )
        except ModelError as error:
            raise bad_request(
                str(error), "prompt" if isinstance(prompt, str) else "messages"
            ) from error

    def _check_bytes(self, text: str, field: str) -> None:
        context = self.limits.context
        most = context * self.tokenizer.longest
        if len(text.encode()) > most:
            message = f"the prompt has more than {most} bytes, which is more than the context of {context} tokens holds"
            raise bad_request(message, field, "context_length_exceeded")

    async def work(self, request: GenerationRequest) -> Work:
        """Return what a request asks of the runtime; its time runs from now on."""
        now = asyncio.get_running_loop().time()
        most = _max_tokens(request)
        if isinstance(request, ChatRequest):
            asked = await aside(len(request.messages), turns, request.messages)
            prompts, field = [await self.encode(asked, fits=True)], "messages"
        else:
            assert isinstance(request, CompletionRequest), request
            sent = await aside(len(request.prompt), request.prompts)
            prompts, field = [await self._ids(prompt, most) for prompt in sent], "prompt"
        guided = guide(request)
        grammar = "" if guided is None else await self._grammar(guided)
        size = sum(map(len, prompts)) + sum(map(len, request.stops))
        work = await aside(
            size,
            prepare,
            self.plan,
            self.limits,
            request,
            prompts,
            most,
            field,
            grammar,
            None if guided is None else guided.field,
        )
        limits = [s for s in (request.timeout, self.request_timeout_s) if s is not None]
        return work if not limits else replace(work, seconds=min(limits), ends=now + min(limits))

    async def _grammar(self, asked: Guide) -> str:
        """Return the grammar that the answer must follow, compiled once beside the event loop to see that it can be."""
        known = self._known_grammars.get(asked)
        if known is None:
            loop = asyncio.get_running_loop()
            known = await loop.run_in_executor(self._compiling, compiled, asked, self._grammars)
            self._known_grammars[asked] = known
            if len(self._known_grammars) > MAX_KNOWN:
                del self._known_grammars[next(iter(self._known_grammars))]
        return known

    async def _ids(self, prompt: str | list[int], max_tokens: int | None) -> list[int]:
        if not isinstance(prompt, str):
            return prompt
        ids = await self.encode(prompt, fits=True)
        check_prompt(self.limits, ids, max_tokens, "prompt")  # before the next one is encoded
        return ids

    async def tokenize(self, request: TokenizeRequest) -> Tokenized:
        """Return the ids that a prompt becomes."""
        tokens = await self.encode(
            request.text_or_turns(),
            fits=False,
            with_special=request.add_special_tokens,
            answers=request.add_generation_prompt is not False,
        )
        texts = None
        if request.return_token_strs:
            texts = [self.tokenizer.id_to_bytes(id_).decode("utf-8", "replace") for id_ in tokens]
        most = self.limits.context
        return Tokenized(count=len(tokens), tokens=tokens, max_model_len=most, token_strs=texts)

    def detokenize(self, request: DetokenizeRequest) -> Detokenized:
        """Return the text of ids, special tokens included."""
        size = self.plan.tokenizer.size
        if any(not 0 <= token < size for token in request.tokens):
            raise bad_request(f"a token id is outside 0..{size - 1}", "tokens")
        raw = b"".join(map(self.tokenizer.id_to_bytes, request.tokens))
        return Detokenized(prompt=raw.decode("utf-8", "replace"))

    def answer(self, request: GenerationRequest, work: Work) -> Answer:
        """Return the answer in the making; nothing is submitted before it is iterated."""
        return Answer(
            surface="text" if isinstance(request, CompletionRequest) else "chat",
            name=self.name,
            reporter=Reporter(self.plan),
            work=work,
            generation=Generation(self.client, work, self._new_detokenizer),
            logprobs=[LogprobWriter(self.tokenizer.id_to_bytes, self.hidden) for _ in work.jobs],
            id_to_bytes=self.tokenizer.id_to_bytes,
            created=int(time.time()),
        )


def _max_tokens(request: GenerationRequest) -> int | None:
    """Return the most tokens of each choice; None is all that is left of the context."""
    if isinstance(request, ChatRequest):
        both = {request.max_tokens, request.max_completion_tokens} - {None}
        if len(both) > 1:
            what = "`max_tokens` and `max_completion_tokens` differ; send one of them"
            raise bad_request(what, "max_completion_tokens")
        return both.pop() if both else None
    return DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens
