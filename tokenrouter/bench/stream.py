"""One request as a streamed text completion of an OpenAI-compatible server."""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec

from tokenrouter.bench.http import BenchError, Http
from tokenrouter.bench.sample import Ask, Job, Sample

DATA = b"data: "
DONE = b"[DONE]"


class _Details(msgspec.Struct):
    tokens_by_model: dict[str, int] | None = None


class _Usage(msgspec.Struct):
    completion_tokens: int
    prompt_tokens: int
    completion_tokens_details: _Details | None = None


class _Route(msgspec.Struct):
    handoffs: int | None = None


class _Choice(msgspec.Struct):
    text: str = ""
    route: _Route | None = None


class _Error(msgspec.Struct):
    message: str = "no reason was given"


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: _Error | None = None


_decode = msgspec.json.Decoder(_Chunk).decode


@dataclass(eq=False, slots=True)
class Stream:
    """Streamed completions of one server."""

    http: Http
    ask: Ask

    async def __call__(self, job: Job) -> Sample:
        """Send one request and read its stream to the end."""
        body = {**self.ask.fields(job), "stream": True, "stream_options": {"include_usage": True}}
        sample = Sample(started=time.perf_counter())
        try:
            async for line in self.http.lines("/completions", body):
                if line.startswith(DATA):
                    _take(sample, line[len(DATA) :].strip(), time.perf_counter())
        except BenchError as error:
            sample.error = str(error)
        sample.ended = time.perf_counter()
        if sample.error is None and not sample.arrivals:
            sample.error = "the stream held no output"
        return sample


def _take(sample: Sample, data: bytes, now: float) -> None:
    if data == DONE:
        return
    try:
        chunk = _decode(data)
    except msgspec.MsgspecError as error:
        sample.error = f"a chunk of the stream is not as OpenAI's: {error}"
        return
    if chunk.error is not None:
        sample.error = chunk.error.message
    for choice in chunk.choices:
        sample.arrivals.append(now)
        if choice.route is not None and choice.route.handoffs is not None:
            sample.handoffs = choice.route.handoffs
    if chunk.usage is not None:
        sample.tokens = chunk.usage.completion_tokens
        sample.prompt_tokens = chunk.usage.prompt_tokens
        details = chunk.usage.completion_tokens_details
        sample.by_model = None if details is None else details.tokens_by_model
