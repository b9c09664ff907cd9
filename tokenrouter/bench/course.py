"""Where the servers of a benchmark come from: a URL, or a plan that is served here, with or without a comparison."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tokenrouter.bench.dispatch import Dispatcher
from tokenrouter.bench.http import Http
from tokenrouter.bench.report import BASELINE, ROUTED, Level, Result
from tokenrouter.bench.run import Bench, Say, Settings, name_of, result
from tokenrouter.bench.sample import Asker
from tokenrouter.bench.servers import started
from tokenrouter.bench.single import single
from tokenrouter.bench.stream import Stream
from tokenrouter.models.tokenizer import TextTokenizer
from tokenrouter.plan.io import write
from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.turns import cores


async def against_url(settings: Settings, url: str, key: str | None, say: Say) -> Result:
    """Measure a server that runs already."""
    http = Http(url, key)
    try:
        name = settings.ask.model or await name_of(http)
        ask = msgspec.structs.replace(settings.ask, model=name)
        rows = await Bench(settings, http, {ROUTED: Stream(http, ask)}, say).measure()
        return result(settings, url, name, rows, None)
    finally:
        await http.close()


@dataclass(frozen=True, kw_only=True)
class Served:
    """A plan that the benchmark serves itself."""

    plan: Plan
    path: Path
    baseline: bool
    options: list[str]  # of `trc serve`
    asked: int | None = None  # threads of each model, on both sides

    @contextlib.contextmanager
    def plans(self) -> Iterator[list[tuple[str, Path]]]:
        """Give the files to serve: the plan, then each model alone where there is a baseline."""
        files = [(f"the server of {self.path.name}", self.path)]
        with tempfile.TemporaryDirectory(prefix="trc-bench-") as directory:
            for at, model in enumerate(self.plan.models if self.baseline else []):
                path = Path(directory) / f"{model.name}.json"
                write(self._absolute(single(self.plan, at)), path)
                files.append((f"the server of `{model.name}` alone", path))
            yield files

    def _absolute(self, plan: Plan) -> Plan:
        """Return a plan whose models are found from any folder."""
        base = self.path.resolve().parent
        models = [
            msgspec.structs.replace(model, use=str(base / model.use))
            if (base / model.use).exists()
            else model
            for model in plan.models
        ]
        return msgspec.structs.replace(plan, models=models)

    def threads(self, levels: Sequence[Level] = ()) -> list[list[str]]:
        """Return the options of each server: the plan's takes turns where cores are few, and ordinary servers, which cannot, share the cores.

        Where no load has more than one client, only one ordinary server works at a time, and each has all cores.
        """
        if self.asked is not None or not self.baseline:
            own = [] if self.asked is None else ["--threads", str(self.asked)]
            return [own] * (1 + len(self.plan.models) * self.baseline)
        n = len(self.plan.models)
        lonely = bool(levels) and all(level.concurrency == 1 for level in levels)
        each = cores() if lonely else max(1, cores() // n)
        return [[], *[["--threads", str(each)]] * n]


async def of_plan(settings: Settings, served: Served, say: Say) -> Result:
    """Serve a plan, measure it, and the comparison beside it where it is asked for."""
    with served.plans() as plans:
        say(f"starting {len(plans)} server{'s' if len(plans) > 1 else ''}")
        with started(plans, served.options, served.threads(settings.levels)) as servers:
            https = [Http(url) for _, url in servers]
            try:
                return await _measured(settings, served, https, say)
            finally:
                for http in https:
                    await http.close()


async def _measured(settings: Settings, served: Served, https: list[Http], say: Say) -> Result:
    routed, *alone = https
    sides: dict[str, Asker] = {ROUTED: Stream(routed, settings.ask)}
    dispatcher = None
    if served.baseline:
        tokenizer = TextTokenizer.of(served.plan, served.path.resolve().parent)
        dispatcher = Dispatcher(served.plan, tokenizer, alone, settings.ask)
        sides[BASELINE] = dispatcher
    bench = Bench(settings, routed, sides, say)
    rows = await bench.measure()
    same = None if dispatcher is None else await bench.agreement(dispatcher)
    return result(settings, served.path.name, served.plan.policy, rows, same)
