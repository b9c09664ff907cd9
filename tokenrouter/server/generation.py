"""All choices of one request on their way through the runtime, in the order in which their tokens come.

INVARIANT: whoever leaves the iteration, for whatever reason, leaves no request of this generation in the runtime.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple

from tokenrouter.runtime.client import Client, Ticket
from tokenrouter.runtime.errors import RequestRefused, SubserverLost
from tokenrouter.runtime.messages import Place, Token
from tokenrouter.server.admission import Job, Work
from tokenrouter.server.detokenize import Detokenizer
from tokenrouter.server.errors import (
    ApiError,
    bad_request,
    failed,
    not_ready,
    overloaded,
    timed_out,
)
from tokenrouter.server.stops import StopMatcher
from tokenrouter.server.transcript import Shown, Transcript

_log = logging.getLogger("tokenrouter.server")


class Progress(NamedTuple):
    """One step of one choice."""

    choice: int
    shown: Shown


class Generation:
    """The choices of one request; iterated once."""

    def __init__(
        self, client: Client, work: Work, new_detokenizer: Callable[[list[int]], Detokenizer]
    ) -> None:
        self._client = client
        self._work = work
        self.transcripts = [
            Transcript(new_detokenizer(job.prompt if work.echoes else []), StopMatcher(work.stops))
            for job in work.jobs
        ]
        self.places: list[list[Place]] = [[] for _ in work.jobs]  # of the prompts, where asked for
        self._queue: asyncio.Queue[Progress | ApiError] = asyncio.Queue()
        self.on_token: Callable[[int, Token], None] | None = None  # is given choice and token

    async def run(self) -> AsyncGenerator[Progress, None]:
        """Yield what each token shows, until every choice has finished; raises ApiError."""
        tasks: list[asyncio.Task[None]] = []
        tickets: list[Ticket] = []
        timer = self._timer(tickets)
        try:
            for choice, job in enumerate(self._work.jobs):
                scores = job.sampling.prompt_logprobs is not None
                if job.sampling.max_tokens == 0 and not scores:
                    self._queue.put_nowait(Progress(choice, Shown("", [], "length")))
                    continue
                ticket = self._submit(job)
                tickets.append(ticket)
                tasks.append(asyncio.create_task(self._follow(choice, ticket)))
            left = len(self._work.jobs)
            while left:
                progress = await self._queue.get()
                if isinstance(progress, ApiError):
                    raise progress
                left -= progress.shown.finish is not None
                yield progress
        finally:
            if timer is not None:
                timer.cancel()
            for task in tasks:
                task.cancel()
            for ticket in tickets:
                self._client.abort(ticket.request)
            await asyncio.gather(*tasks, return_exceptions=True)

    def _timer(self, tickets: list[Ticket]) -> asyncio.TimerHandle | None:
        """End all choices when the time of the request is over, also where nobody reads the answer."""
        seconds = self._work.seconds
        if seconds is None:
            return None

        def end() -> None:
            self._queue.put_nowait(timed_out(seconds))
            for ticket in tickets:
                self._client.abort(ticket.request, "timeout")

        return asyncio.get_running_loop().call_at(self._work.ends, end)

    def _submit(self, job: Job) -> Ticket:
        try:
            return self._client.submit(
                job.prompt,
                job.sampling,
                self._work.params,
                dict(self._work.metadata),
                traced=self._work.traced,
                priority=self._work.priority,
            )
        except RequestRefused as error:
            raise self._refusal(error) from error
        except SubserverLost as error:
            raise failed(str(error)) from error

    async def _follow(self, choice: int, ticket: Ticket) -> None:
        """Put every token of one choice into the queue, and what ends it early."""
        transcript = self.transcripts[choice]
        try:
            async for token in ticket:
                self.places[choice] = self.places[choice] or token.prompt
                if self._work.jobs[choice].sampling.max_tokens == 0:  # only the prompt counts
                    self._queue.put_nowait(Progress(choice, Shown("", [], "length")))
                    return
                shown = transcript.feed(token)
                if self.on_token is not None:
                    self.on_token(choice, token)
                if transcript.stopped_by_text:
                    self._client.abort(ticket.request, "stop")
                self._queue.put_nowait(Progress(choice, shown))
                if shown.finish:
                    return
        except RequestRefused as error:
            self._queue.put_nowait(self._refusal(error))
        except SubserverLost as error:
            self._queue.put_nowait(failed(str(error)))
        except Exception:  # noqa: BLE001 - whoever waits on the queue must hear of our mistakes too
            _log.exception("a choice failed")
            self._queue.put_nowait(failed("the server failed; its log says how"))
        else:
            self._queue.put_nowait(failed("the request was ended before it was finished"))

    def _refusal(self, error: RequestRefused) -> ApiError:
        match error.kind:
            case "overloaded":
                return overloaded(str(error))
            case "closing":
                return not_ready(str(error))
            case "too_long":
                return bad_request(str(error), self._work.field, "context_length_exceeded")
            case "invalid":
                return bad_request(str(error), self._work.guide)
