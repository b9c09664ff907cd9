"""Where a subserver's time went between two looks at a server's `/metrics`, by phase of its step."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from tokenrouter.bench.http import BenchError, Http

MODEL, WAIT = "model", "wait"
_PHASE = re.compile(
    r'tokenrouter_phase_seconds_total\{model="([^"]*)",phase="([^"]*)"\} (\S+)', re.ASCII
)
_STEPS = re.compile(r'tokenrouter_steps_total\{model="([^"]*)"\} (\S+)', re.ASCII)


class Breakdown(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one model and what they took."""

    model: str
    steps: float
    seconds: dict[str, float]  # by phase, in the order of a step; `wait` is the time without work

    @property
    def busy_s(self) -> float:
        """Seconds with something to do."""
        return sum(s for phase, s in self.seconds.items() if phase != WAIT)

    @property
    def share_beside_model(self) -> float:
        """Share of the busy time that is not the model's."""
        busy = self.busy_s
        return (busy - self.seconds.get(MODEL, 0.0)) / busy if busy else 0.0

    def ms(self, phase: str) -> float:
        """Return milliseconds of a phase in a step, the mean."""
        return 1e3 * self.seconds[phase] / self.steps if self.steps else 0.0


async def spent(http: Http) -> list[Breakdown]:
    """Return the time by model since each subserver's start; raises BenchError where the server does not tell it."""
    status, text = await http.text("/metrics", base=http.root)
    found = parse(text) if status == 200 else []
    if not found:
        raise BenchError(
            f"{http.url}: /metrics (status {status}) tells no phases; --breakdown needs `trc serve`"
        )
    return found


def parse(text: str) -> list[Breakdown]:
    """Return what an exposition tells."""
    steps = {name: float(n) for name, n in _STEPS.findall(text)}
    seconds: dict[str, dict[str, float]] = {}
    for name, phase, value in _PHASE.findall(text):
        seconds.setdefault(name, {})[phase] = float(value)
    return [
        Breakdown(model=name, steps=steps.get(name, 0.0), seconds=of)
        for name, of in seconds.items()
    ]


def between(before: Sequence[Breakdown], after: Sequence[Breakdown]) -> list[Breakdown]:
    """Return what was spent meanwhile; a model that started anew counts from its start."""
    was = {one.model: one for one in before}
    found = []
    for one in after:
        old = was.get(one.model)
        if old is None or old.steps > one.steps:
            found.append(one)
            continue
        seconds = {phase: s - old.seconds.get(phase, 0.0) for phase, s in one.seconds.items()}
        found.append(Breakdown(model=one.model, steps=one.steps - old.steps, seconds=seconds))
    return found


def together(runs: Sequence[Sequence[Breakdown]]) -> list[Breakdown]:
    """Return the sum of several runs, by model."""
    total: dict[str, Breakdown] = {}
    for run in runs:
        for one in run:
            old = total.get(one.model)
            if old is None:
                total[one.model] = one
                continue
            seconds = {phase: s + old.seconds.get(phase, 0.0) for phase, s in one.seconds.items()}
            total[one.model] = Breakdown(
                model=one.model, steps=one.steps + old.steps, seconds=seconds
            )
    return list(total.values())
