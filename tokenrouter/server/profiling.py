"""`trc profile`: every model of a plan timed, its policy counted, and where that was."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

from tokenrouter.machine import processor
from tokenrouter.models import ModelError
from tokenrouter.models.tokenizer import TextTokenizer
from tokenrouter.plan.structs import Plan
from tokenrouter.profile.structs import PROFILE_VERSION, Machine, Profile
from tokenrouter.runtime.counting import count
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.settings import Settings
from tokenrouter.runtime.timing import FULL, QUICK, step_times
from tokenrouter.runtime.turns import in_turn, share_of_cores
from tokenrouter.version import __version__

BUSY = 0.5  # load by core from which on a user is warned


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a user asked for."""

    prompts: list[str]
    name: str  # of the prompts
    chat: bool
    max_tokens: int
    temperature: float
    quick: bool
    dtype: str | None
    threads: int | None
    device: str = "cpu"  # or `cuda`


def profile(plan: Plan, base: Path, wanted: Wanted, say: Callable[[str], None]) -> Profile:
    """Return what was measured; raises TokenRouterError. `say` is told of progress."""
    began, load = time.monotonic(), os.getloadavg()[0]
    prompts = _encoded(plan, base, wanted)
    cores = len(os.sched_getaffinity(0))
    if load > BUSY * cores:
        say(
            f"other work runs here (load {load:.1f} on {cores} cores): times will be longer than those of a quiet machine"
        )
    threads = wanted.threads or share_of_cores(len(plan.models))
    settings = Settings(
        base=str(base), dtype=wanted.dtype, threads=threads, windows="off", device=wanted.device
    )
    turns = in_turn(plan, settings)
    if turns:
        say(
            f"the models share {cores} cores: they step in turn, as in the server, each with {threads} threads"
        )
    say(f"running the policy on {len(prompts)} prompts, up to {wanted.max_tokens} tokens each")
    torch.set_num_threads(min(cores, threads * len(plan.models)))  # one model runs at a time here
    engine = Engine(plan, base, dtype=wanted.dtype, windows="off", device=wanted.device)
    sampling = Sampling(max_tokens=wanted.max_tokens, temperature=wanted.temperature)
    ways, unread = count(engine, prompts, sampling, wanted.name)
    del engine  # its models would lie beside those that are timed
    if wanted.device == "cuda":
        torch.cuda.empty_cache()
    models = step_times(plan, settings, QUICK if wanted.quick else FULL, unread, sampling, say)
    return Profile(
        profile_version=PROFILE_VERSION,
        producer=f"tokenrouter {__version__}",
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        program_hash=plan.program_hash,
        max_active=plan.windows.max_active,
        quick=wanted.quick,
        seconds=round(time.monotonic() - began, 1),
        machine=machine(threads, load, in_turn=turns),
        models=models,
        ways=ways,
    )


def _encoded(plan: Plan, base: Path, wanted: Wanted) -> list[list[int]]:
    """Return the prompts as token ids, through the chat template where there is one."""
    tokenizer = TextTokenizer.of(plan, base)
    if wanted.chat:
        try:
            return [
                tokenizer.apply_chat_template([{"role": "user", "content": prompt}])
                for prompt in wanted.prompts
            ]
        except ModelError:
            pass  # a model without a template continues texts
    return [tokenizer.encode(prompt) for prompt in wanted.prompts]


def machine(threads: int, load: float, *, in_turn: bool) -> Machine:
    """Return what this machine is."""
    return Machine(
        processor=processor(),
        cores=len(os.sched_getaffinity(0)),
        threads=threads,
        device="cpu",
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=str(torch.__version__),
        load=round(load, 2),
        in_turn=in_turn,
    )
