"""The course of a benchmark: warm up, measure each level and repeat on each side in turn, compare, report.

Sides take turns within every repeat, with the same requests, so that whatever else the machine does meets both. While one
side is measured the other's processes sleep.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenrouter import machine as this
from tokenrouter.bench import load
from tokenrouter.bench.breakdown import Breakdown, between, spent, together
from tokenrouter.bench.figures import Figures, Slo, figures
from tokenrouter.bench.http import BenchError, Http
from tokenrouter.bench.prompts import Lengths, cycled, from_file, synthetic
from tokenrouter.bench.report import ROUTED, Agreement, Level, Result, Row, ratios
from tokenrouter.bench.sample import Ask, Asker, Job

Say = Callable[[str], None]
COMPARED = 8  # requests whose tokens are compared between sides


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is measured."""

    levels: list[Level]
    requests: int  # each level and repeat
    repeat: int = 1
    warmup: int = 2
    lengths: Lengths
    prompts: Path | None = None  # instead of synthetic ones
    seed: int = 0
    ask: Ask
    slo: Slo | None = None
    breakdown: bool = False  # look where the routed server's steps spend their time


@dataclass(eq=False)
class Bench:
    """One benchmark over one or two sides."""

    settings: Settings
    http: Http  # of the routed server, whose tokenizer makes the prompts
    sides: dict[str, Asker]
    say: Say
    _runs: dict[tuple[str, Level], list[Figures]] = field(default_factory=dict)
    _spent: dict[Level, list[list[Breakdown]]] = field(default_factory=dict)

    async def measure(self) -> list[Row]:
        """Return the figures of all levels, repeats and sides; raises BenchError where nothing is answered."""
        chosen = self.settings
        await self._warm_up()
        for repeat in range(chosen.repeat):
            for place, level in enumerate(chosen.levels):
                jobs = await self.jobs(chosen.requests, 1 + repeat * len(chosen.levels) + place)
                for side in self._order(repeat):
                    run = await self._looked_at(side, level, jobs, repeat)
                    self._runs.setdefault((side, level), []).append(run)
        return [
            Row(
                side=side,
                level=level,
                runs=self._runs[side, level],
                breakdown=together(self._spent.get(level, [])) if side == ROUTED else [],
            )
            for level in chosen.levels
            for side in self.sides
        ]

    def _order(self, repeat: int) -> list[str]:
        """Return the sides, the other one first in every second repeat."""
        return list(self.sides) if repeat % 2 == 0 else list(self.sides)[::-1]

    async def _warm_up(self) -> None:
        for side, ask in self.sides.items():
            for job in await self.jobs(self.settings.warmup, 0):
                sample = await ask(job)
                if sample.error is not None:
                    raise BenchError(f"{side}: {sample.error}")

    async def jobs(self, n: int, part: int) -> list[Job]:
        """Return the requests of one part of the run; no two parts share a synthetic prompt."""
        chosen = self.settings
        if n == 0:
            return []
        if chosen.prompts is not None:
            return cycled(from_file(chosen.prompts, chosen.lengths.output), n)
        return await synthetic(self.http, n, chosen.lengths, chosen.seed * 10_007 + part)

    async def _looked_at(
        self, side: str, level: Level, jobs: Sequence[Job], repeat: int
    ) -> Figures:
        """Run one side, and note where its subservers' time goes where that is asked for."""
        if side != ROUTED or not self.settings.breakdown:
            return await self._run(side, level, jobs, repeat)
        before = await spent(self.http)
        run = await self._run(side, level, jobs, repeat)
        self._spent.setdefault(level, []).append(between(before, await spent(self.http)))
        return run

    async def _run(self, side: str, level: Level, jobs: Sequence[Job], repeat: int) -> Figures:
        done = 0

        def tick() -> None:
            nonlocal done
            done += 1
            if done % max(1, len(jobs) // 4) == 0 and done < len(jobs):
                self.say(f"  {side} {level.name}: {done} of {len(jobs)}")

        ask = self.sides[side]
        if level.rate is not None:
            seed = self.settings.seed + repeat
            samples = await load.opened(ask, jobs, level.rate, seed, tick)
        else:
            samples = await load.closed(ask, jobs, level.concurrency or 1, tick)
        run = figures(samples, self.settings.slo)
        if not run.requests:
            raise BenchError(
                f"{side}: no request was answered; the first failure: {run.first_error}"
            )
        self.say(
            f"{side} {level.name}, repeat {repeat + 1} of {self.settings.repeat}: "
            f"{run.tokens_per_s:.1f} tokens/s, {run.failed} failed"
        )
        return run

    async def agreement(self, other: Asker) -> Agreement | None:
        """Compare the tokens of some requests with those that the routed server names; None where sampling forbids."""
        if self.settings.ask.temperature != 0:
            return None
        places: list[int | None] = []
        for job in await self.jobs(min(COMPARED, self.settings.requests), 1):
            body = self.settings.ask.fields(job)
            body["route"] = {**body.get("route", {}), "trace": True}
            answer = await self.http.ask("/completions", body)
            routed = [token["id"] for token in answer["choices"][0]["route"]["trace"]]
            sample = await other(job)
            if sample.error is not None:
                raise BenchError(f"baseline: {sample.error}")
            places.append(first_difference(routed, sample.ids))
        return Agreement(compared=len(places), same=places.count(None), first_difference=places)


def first_difference(one: Sequence[int], two: Sequence[int]) -> int | None:
    """Return where two outputs part; None where they are the same."""
    for at, (a, b) in enumerate(zip(one, two, strict=False)):
        if a != b:
            return at
    return None if len(one) == len(two) else min(len(one), len(two))


def result(
    settings: Settings, target: str, policy: str, rows: list[Row], same: Agreement | None
) -> Result:
    """Return what is reported."""
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    return Result(
        target=target,
        policy=policy,
        machine=machine(),
        started=now.replace("+00:00", "Z"),
        settings={
            "requests": settings.requests,
            "repeat": settings.repeat,
            "warmup": settings.warmup,
            "prompts": "synthetic" if settings.prompts is None else settings.prompts.name,
            "prompt_tokens": None if settings.prompts is not None else settings.lengths.prompt,
            "shared_tokens": None if settings.prompts is not None else settings.lengths.shared,
            "output_tokens": settings.lengths.output,
            "temperature": settings.ask.temperature,
            "ignore_eos": settings.ask.ignore_eos,
            "seed": settings.seed,
            **{f"set.{name}": value for name, value in settings.ask.params.items()},
        },
        slo=settings.slo,
        rows=rows,
        ratios=ratios(rows),
        agreement=same,
    )


def machine() -> str:
    """Return what the figures hold for."""
    return f"{this.machine()}, load {os.getloadavg()[0]:.1f}"


async def name_of(http: Http) -> str:
    """Return the name of what a server serves; raises BenchError."""
    status, answer = await http.json("/models")
    models = answer.get("data") if isinstance(answer, dict) else None
    if status != 200 or not models:
        raise BenchError(f"{http.url}: /models answers {status} and names no model")
    return str(models[0]["id"])
