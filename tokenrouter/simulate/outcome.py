"""From a simulation to its figures: an open run over arrivals, or a closed one of clients that ask again at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, stdev
from typing import Literal

import msgspec

from tokenrouter.simulate.arrivals import Arrival
from tokenrouter.simulate.events import Simulation

PARTS = 20  # stretches of a closed run, for the standard error
WARM_UP = 0.2  # of a closed run's tokens


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution over requests, ms."""

    mean: float
    p50: float
    p90: float
    p99: float


class ModelOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one model did."""

    name: str
    utilisation: float  # share of the time a batch was running
    mean_batch: float  # requests
    admission_delay: Spread | None  # time at the gate; None where no batch ran
    launches: dict[str, int]  # batches by reason, as in `runtime.gate`


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulation showed."""

    mode: Literal["open", "closed"]
    seconds: float  # simulated
    tokens_per_s: float
    stderr: float | None  # of `tokens_per_s`; None for an open run
    requests: int  # that ended
    offered_per_s: (
        float | None
    )  # requests that arrived, over the time of arrivals; None where closed
    mean_active: float
    mean_queue: float  # requests that wait for admission
    longest_queue: int
    latency: Spread | None  # from arrival to last token; None where no request ended
    first_token: Spread | None  # from arrival
    speed: float | None  # mean over requests of tokens/s from admission to last token
    kept_up: bool  # whether the queue was shorter than the places at the end of the arrivals
    models: list[ModelOutcome]


def spread(values: Sequence[float]) -> Spread | None:
    """Return mean and percentiles; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return Spread(mean=fmean(ordered), p50=at(0.5), p90=at(0.9), p99=at(0.99))


def open_run(simulation: Simulation, arrivals: Sequence[Arrival], names: Sequence[str]) -> Outcome:
    """Return what happens when these requests arrive, until the last has ended."""
    queued_at_end = 0

    def coming() -> Iterator[Arrival]:
        nonlocal queued_at_end
        yield from arrivals
        queued_at_end = len(simulation.queue)

    simulation.run(coming())
    last = arrivals[-1].at_ms
    offered = len(arrivals) / (last / 1000) if last > 0 else None
    return _outcome(
        simulation,
        names,
        simulation.now,
        offered=offered,
        kept_up=queued_at_end < max(1, simulation.max_active),
    )


def closed_run(simulation: Simulation, clients: int, tokens: int, names: Sequence[str]) -> Outcome:
    """Return what so many clients see that ask again at once, over about so many tokens after a warm-up."""
    for _ in range(clients):
        simulation.submit(simulation.length())
    _circulate(simulation, clients, int(tokens * WARM_UP))
    began = simulation.now
    simulation.forget()
    speeds = []
    for part in range(PARTS):
        since, before = simulation.now, simulation.tokens
        _circulate(simulation, clients, tokens * (part + 1) // PARTS)
        passed = simulation.now - since
        if passed > 0:
            speeds.append((simulation.tokens - before) / passed * 1000)
    stderr = stdev(speeds) / len(speeds) ** 0.5 if len(speeds) > 1 else None
    return _outcome(simulation, names, simulation.now - began, stderr=stderr, mode="closed")


def _circulate(simulation: Simulation, clients: int, tokens: int) -> None:
    while simulation.tokens < tokens:
        simulation.advance()
        while simulation.active + len(simulation.queue) < clients:
            simulation.submit(simulation.length())


def _outcome(
    simulation: Simulation,
    names: Sequence[str],
    ms: float,
    *,
    mode: Literal["open", "closed"] = "open",
    stderr: float | None = None,
    offered: float | None = None,
    kept_up: bool = True,
) -> Outcome:
    done = [request for request in simulation.done if request.first is not None]
    speeds = [r.written / (r.last - r.admitted) * 1000 for r in done if r.last > r.admitted]
    return Outcome(
        mode=mode,
        seconds=ms / 1000,
        tokens_per_s=simulation.tokens / ms * 1000,
        stderr=stderr,
        requests=len(simulation.done),
        offered_per_s=offered,
        mean_active=simulation.active_ms / ms,
        mean_queue=simulation.queue_ms / ms,
        longest_queue=simulation.longest_queue,
        latency=spread([r.last - r.arrived for r in done]),
        first_token=spread([r.first - r.arrived for r in done if r.first is not None]),
        speed=fmean(speeds) if speeds else None,
        kept_up=kept_up,
        models=[
            ModelOutcome(
                name=name,
                utilisation=server.busy / ms,
                mean_batch=server.through / server.batches if server.batches else 0.0,
                admission_delay=spread(server.delays),
                launches=dict(server.launches),
            )
            for name, server in zip(names, simulation.servers, strict=True)
        ],
    )
