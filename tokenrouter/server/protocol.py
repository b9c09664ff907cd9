"""The requests of the OpenAI surface, as they come over HTTP.

msgspec, as at every other border of ours: one pass reads the JSON strictly (no NaN, no lone surrogate, no 1e400, no
`true` for a number) and says where it is wrong. Three kinds of fields, so that nothing is ever ignored in silence:

* fields that do something;
* fields that never change an answer and are accepted as they are: `NO_EFFECT`;
* fields of OpenAI's that are not supported: accepted only at a value that asks for nothing, `NEUTRAL`.

Any other field is refused by name. `null` means the default everywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from tokenrouter.server.errors import bad_request

MAX_CHOICES = 128  # n times the number of prompts
MAX_STOPS = 64
MAX_STOP_CHARS = 1024
MAX_STOP_IDS = 256
MAX_METADATA = 32
MAX_METADATA_CHARS = 1024
MAX_TOP_LOGPROBS = 20
MAX_BIASES = 1024
MAX_PRIORITY = 1000
MAX_TIMEOUT_S = 86_400
SEED_LOW, SEED_HIGH = -(2**63), 2**64 - 1

NO_EFFECT = (
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "parallel_tool_calls",
)

NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "length_penalty": (1,),
    "suffix": ("",),
    "best_of": (1,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "reasoning_effort": (),
    "verbosity": (),
    "min_tokens": (0,),
}

TopLogprobs = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOP_LOGPROBS)]
Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]
Bias = Annotated[float, msgspec.Meta(ge=-100, le=100)]
Metadata = dict[str, str | float | bool]


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a stream holds beside the text."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class JsonSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schema under a name; `strict` has no effect, since it is always kept to."""

    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None  # None is any object
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the answer must be."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class RouteOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ours: how this one request is routed, and whether the answer says so token by token."""

    params: dict[str, float | bool] | None = None
    metadata: Metadata | None = None
    trace: bool | None = None


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What text and chat completions have in common."""

    model: str | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1)] | None = None  # -1 and 0 are off
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0, le=10)] | None = None
    logit_bias: dict[int, Bias] | None = None
    response_format: ResponseFormat | None = None
    regex: str | None = None
    grammar: str | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: Annotated[int, msgspec.Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0, le=MAX_TIMEOUT_S)] | None = None  # seconds
    route: RouteOptions | None = None

    user: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    parallel_tool_calls: bool | None = None

    length_penalty: Any = None
    min_tokens: Any = None

    @property
    def stops(self) -> list[str]:
        """The stop strings as a list."""
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else self.stop

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with a chunk that holds the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def n_top_logprobs(self) -> int | None:
        """The most likely tokens to name with each; None where no log probabilities are asked for."""
        return None

    @property
    def echoes(self) -> bool:
        """Whether the answer begins with the prompt."""
        return False

    @property
    def traces(self) -> bool:
        """Whether the answer holds model, rule and signals of each token."""
        return bool(self.route and self.route.trace)


class CompletionRequest(GenerationRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/completions`."""

    prompt: str | list[str | int | list[int]]
    logprobs: TopLogprobs | None = None  # 0 tells of the tokens themselves

    echo: bool | None = None
    suffix: Any = None
    best_of: Any = None

    @property
    def n_top_logprobs(self) -> int | None:
        """As many as `logprobs` says."""
        return self.logprobs

    @property
    def echoes(self) -> bool:
        """As `echo` says."""
        return bool(self.echo)

    def prompts(self) -> list[str | list[int]]:
        """The prompts, one or several, as text or as token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        kinds = {type(item) for item in self.prompt}
        if kinds == {int}:
            return [[item for item in self.prompt if isinstance(item, int)]]
        if len(kinds) != 1:
            what = "is an empty list" if not kinds else "mixes text, ids and lists of ids"
            raise bad_request(f"`prompt` {what}", "prompt")
        if (self.n or 1) * len(self.prompt) > MAX_CHOICES:
            raise bad_request(f"`n` times the number of prompts exceeds {MAX_CHOICES}", "prompt")
        return [item for item in self.prompt if not isinstance(item, int)]


class ContentPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a message; text is the only kind that is supported."""

    type: str
    text: str | None = None
    # Of other kinds; named so that the refusal speaks of the kind.
    image_url: Any = None
    input_audio: Any = None
    video_url: Any = None
    file: Any = None
    refusal: Any = None


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One turn. An assistant's message may be sent back as the client library dumps it."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    refusal: Any = None
    annotations: Any = None
    audio: Any = None
    function_call: Any = None
    tool_calls: Any = None
    tool_call_id: Any = None

    def text(self, at: int) -> str:
        """The content as text; `at` is the message's place, for the refusal."""
        where = f"messages[{at}].content"
        for field in ("refusal", "annotations", "audio", "function_call", "tool_calls"):
            if getattr(self, field):
                raise bad_request(f"`{field}` of a message is not supported", f"messages[{at}]")
        if self.content is None:
            raise bad_request("a message without content is not supported", where)
        if isinstance(self.content, str):
            return self.content
        for part in self.content:
            if part.type != "text" or part.text is None:
                raise bad_request(f"content of type `{part.type}` is not supported", where)
        return "".join(part.text or "" for part in self.content)


class ChatRequest(GenerationRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/chat/completions`."""

    messages: list[Message]
    max_completion_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None

    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    modalities: Any = None
    audio: Any = None
    prediction: Any = None
    web_search_options: Any = None
    reasoning_effort: Any = None
    verbosity: Any = None

    @property
    def n_top_logprobs(self) -> int | None:
        """As many as `top_logprobs` says, where `logprobs` is set."""
        return (self.top_logprobs or 0) if self.logprobs else None


def turns(messages: list[Message]) -> list[dict[str, str]]:
    """Return a conversation as a chat template takes it."""
    if not messages:
        raise bad_request("`messages` is empty", "messages")
    return [_turn(at, message) for at, message in enumerate(messages)]


def _turn(at: int, message: Message) -> dict[str, str]:
    role = "system" if message.role == "developer" else message.role
    if role not in ("system", "user", "assistant"):
        known = "`system`, `developer`, `user` and `assistant`"
        raise bad_request(
            f"role `{role}` is not supported; there are {known}", f"messages[{at}].role"
        )
    return {"role": role, "content": message.text(at)}


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /tokenize`: a text, or a conversation as a chat would send it."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    add_special_tokens: bool | None = None  # true for a text, false for a conversation
    add_generation_prompt: bool | None = None  # true; of a conversation
    return_token_strs: bool | None = None  # false

    def text_or_turns(self) -> str | list[dict[str, str]]:
        """Return the one of the two that is there."""
        if (self.prompt is None) == (self.messages is None):
            raise bad_request("one of `prompt` and `messages` is needed", "prompt")
        if self.messages is None and self.add_generation_prompt is not None:
            field = "add_generation_prompt"
            raise bad_request(f"`{field}` needs `messages`", field)
        return turns(self.messages) if self.messages is not None else self.prompt or ""


class DetokenizeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /detokenize`."""

    model: str | None = None
    tokens: list[int]


Request = GenerationRequest | TokenizeRequest | DetokenizeRequest
R = TypeVar("R", bound=Request)
_PLACE = re.compile(r" - at (?:`key` in )?`\$\.?(.*)`$")
_UNKNOWN = re.compile(r"unknown field `(.*?)`")


def read(body: bytes, kind: type[R]) -> R:
    """Return the request; raise an `ApiError` that names the field where it is wrong."""
    try:
        request = msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from None
    except msgspec.DecodeError as error:
        raise bad_request(f"the body is not valid JSON: {_why(str(error), body)}") from None
    except RecursionError:
        raise bad_request("the body is nested too deeply") from None
    if isinstance(request, GenerationRequest):
        _check(request)
    return request


def _explained(message: str) -> Exception:
    place = _PLACE.search(message)
    field = place[1] if place else None
    text = _PLACE.sub("", message)
    if unknown := _UNKNOWN.search(text):
        name = f"{field}.{unknown[1]}" if field else unknown[1]
        return bad_request(f"unknown field `{name}`", name)
    text = text[:1].lower() + text[1:]
    return bad_request(f"`{field}`: {text}" if field else f"the body: {text}", field)


def _why(text: str, body: bytes) -> str:
    """Return what is wrong with a body; half a pair at the end of one is called a truncation by the decoder."""
    if "surrogate" not in text and not ("truncated" in text and _is_json_to_others(body)):
        return text
    return "a text holds half of a surrogate pair (as `\\ud83d` alone), which is no character"


def _is_json_to_others(body: bytes) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def _check(request: GenerationRequest) -> None:
    """Refuse what one field's type cannot say."""
    for field, neutral in NEUTRAL.items():
        value = getattr(request, field, None)
        if value is not None and not _asks_for_nothing(value, neutral):
            raise bad_request(f"`{field}` is not supported yet", field, "unsupported")
    if request.stream_options is not None and not request.stream:
        raise bad_request("`stream_options` needs `stream`", "stream_options")
    if request.stream_options is not None and request.stream_options.include_obfuscation:
        field = "stream_options.include_obfuscation"
        raise bad_request(f"`{field}` is not supported yet", field, "unsupported")
    if isinstance(request, ChatRequest) and request.top_logprobs and not request.logprobs:
        raise bad_request("`top_logprobs` needs `logprobs`", "top_logprobs")
    if request.seed is not None and not SEED_LOW <= request.seed <= SEED_HIGH:
        raise bad_request("`seed` exceeds 64 bits", "seed")
    if len(request.stops) > MAX_STOPS:
        raise bad_request(f"`stop` holds more than {MAX_STOPS} strings", "stop")
    for stop in request.stops:
        if not 0 < len(stop) <= MAX_STOP_CHARS:
            raise bad_request(f"a stop string has 1 to {MAX_STOP_CHARS} characters", "stop")
    if len(request.logit_bias or ()) > MAX_BIASES:
        raise bad_request(f"`logit_bias` holds more than {MAX_BIASES} ids", "logit_bias")
    if len(request.stop_token_ids or ()) > MAX_STOP_IDS:
        raise bad_request(f"`stop_token_ids` holds more than {MAX_STOP_IDS} ids", "stop_token_ids")


def _asks_for_nothing(value: object, neutral: tuple[object, ...]) -> bool:
    return any(
        value == each and isinstance(value, bool) == isinstance(each, bool) for each in neutral
    )
