"""The answers of the OpenAI surface, and what routing adds to them.

Ours are `seed`, `route` of a choice, and `tokens_by_model` in the usage; OpenAI's clients keep fields they do not
know, so all three can be read from their objects. A field that is `UNSET` is left out of the JSON.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

Finish = Literal["stop", "length"]


class TracedToken(msgspec.Struct, frozen=True, kw_only=True):
    """One committed token; the joined texts of a choice's tokens are its text."""

    id: int
    text: str  # empty where the token only begins or continues a character, is special, or was cut away
    model: str
    rule: int | None  # of the model's program; null inside a borrowed stay
    line: int | None  # of the policy's source
    logprob: float  # of the token under the raw distribution of its model
    signals: dict[str, float]
    loads: list[dict[int, float]] | UnsetType = (
        UNSET  # load signals by step at this position, by node; only of policies that read them
    )


class RuleCount(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens that one rule let through; `rule` is null for those of borrowed stays."""

    model: str
    rule: int | None
    line: int | None  # in the policy's source
    tokens: int


class RouteReport(msgspec.Struct, frozen=True, kw_only=True):
    """How one choice was routed. In a stream the totals come with the finish reason."""

    seed: int | UnsetType = UNSET  # sent alone with this seed, the choice comes out the same
    handoffs: int | UnsetType = UNSET
    tokens_by_model: dict[str, int] | UnsetType = UNSET
    tokens_by_rule: list[RuleCount] | UnsetType = UNSET
    reproducible: bool | UnsetType = UNSET  # false where rules read load; left out otherwise
    trace: list[TracedToken] | UnsetType = UNSET  # only where the request asks for it


class CompletionTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Who wrote the completion tokens; every model of the plan is named."""

    tokens_by_model: dict[str, int]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of all choices together; a prompt counts once, whatever n is."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    completion_tokens_details: CompletionTokensDetails


class TopLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """One of the most likely tokens at a position."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """A token of a chat's answer."""

    token: str
    logprob: float
    bytes: list[int]  # of the token alone; a character may be spread over several
    top_logprobs: list[TopLogprob]  # best first


class ChatLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a chat's answer, or of a piece of it."""

    content: list[TokenLogprob]
    refusal: None = None


class TextLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a text completion, or of a piece of it; one entry a token in each list."""

    tokens: list[str]
    token_logprobs: list[
        float | None
    ]  # null for a prompt's first token, which nothing stands before
    top_logprobs: list[dict[str, float] | None] | None  # the token itself is always among them
    text_offset: list[int]  # characters of the choice's text before the token


class TextChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A choice of a text completion, whole or a piece of it."""

    index: int
    text: str
    finish_reason: Finish | None
    logprobs: TextLogprobs | None = None
    route: RouteReport | UnsetType = UNSET


class AnswerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a chat."""

    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A choice of a chat completion."""

    index: int
    message: AnswerMessage
    finish_reason: Finish | None
    logprobs: ChatLogprobs | None = None
    route: RouteReport | UnsetType = UNSET


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a chat answer; the first of a choice names the role."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChatPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A choice of a chat chunk."""

    index: int
    delta: Delta
    finish_reason: Finish | None
    logprobs: ChatLogprobs | None = None
    route: RouteReport | UnsetType = UNSET


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What whole answers and the chunks of a stream have in common."""

    id: str
    created: int
    model: str
    seed: int
    usage: Usage | UnsetType | None = (
        UNSET  # null in all chunks but the last, where it was asked for
    )


class TextReply(Reply, frozen=True, kw_only=True):
    """A text completion, whole or one chunk of it."""

    choices: list[TextChoice]
    object: Literal["text_completion"] = "text_completion"


class ChatReply(Reply, frozen=True, kw_only=True):
    """A whole chat completion."""

    choices: list[ChatChoice]
    object: Literal["chat.completion"] = "chat.completion"


class ChatChunk(Reply, frozen=True, kw_only=True):
    """One chunk of a chat completion."""

    choices: list[ChatPiece]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


class ParamCard(msgspec.Struct, frozen=True, kw_only=True):
    """A dial of the policy."""

    name: str
    unit: str
    value: float | bool
    low: float | None
    high: float | None


class RouteCard(msgspec.Struct, frozen=True, kw_only=True):
    """What the served policy consists of."""

    models: list[str]
    params: list[ParamCard]
    program_hash: str


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `/v1/models`: a policy is served under one name."""

    id: str
    created: int
    context: int  # most tokens of prompt and output together
    route: RouteCard
    object: Literal["model"] = "model"
    owned_by: str = "tokenrouter"


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /v1/models`."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


class Tokenized(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /tokenize`, under the names that vLLM's clients know."""

    count: int
    max_model_len: int  # most tokens of prompt and output together
    tokens: list[int]
    token_strs: list[str] | None = None  # where they are asked for


class Detokenized(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /detokenize`."""

    prompt: str


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /ready`: 200 with `ready`, else 503; a model is up or not."""

    status: Literal["ready", "not ready", "draining", "failed"]
    models: dict[str, bool]
    running: int  # requests that the models work on
    waiting: int  # requests that queue
    reason: str | None = None  # why nothing can be served any more


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /health`: the process answers."""

    status: Literal["ok"] = "ok"


class TraceLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `trc run --trace`: a token as in `route.trace`, its place, and when it was committed."""

    position: int  # in the output, from 0
    ms: float  # since the request was submitted
    token: TracedToken


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What `trc run --json` prints."""

    policy: str
    text: str
    finish_reason: Finish
    seconds: float  # without loading
    usage: Usage
    route: RouteReport


encode = msgspec.json.Encoder().encode
