"""What a client saw of one request, and what is asked for in one."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One request: token ids or text, and how much is written."""

    prompt: list[int] | str
    max_tokens: int
    seed: int = 0


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What all requests of a run have in common."""

    model: str | None = None  # name that the server serves
    temperature: float = 0.0
    ignore_eos: bool = True
    params: dict[str, float | bool] = {}  # dials of the policy

    def fields(self, job: Job) -> dict[str, Any]:
        """Return the body of a text completion."""
        body: dict[str, Any] = {
            "prompt": job.prompt,
            "max_tokens": job.max_tokens,
            "temperature": self.temperature,
            "seed": job.seed,
        }
        if self.model is not None:
            body["model"] = self.model
        if self.ignore_eos:
            body["ignore_eos"] = True
        if self.params:
            body["route"] = {"params": self.params}
        return body


class Sample(msgspec.Struct, kw_only=True):
    """One request as its client saw it; times in seconds on one monotonic clock."""

    started: float
    arrivals: list[float] = []  # when each piece of output came
    ended: float = 0.0
    tokens: int = 0  # of output
    prompt_tokens: int = 0
    handoffs: int | None = None  # None where the server does not tell
    by_model: dict[str, int] | None = None  # output tokens by the model that wrote them
    error: str | None = None  # why it failed
    ids: list[int] = []  # the output, where it is known by id


class Asker(Protocol):
    """One way to have a request answered."""

    async def __call__(self, job: Job) -> Sample:
        """Return what came of a job; a failure is a sample with an error."""
        ...
