"""The solved windows of a policy's models, where a profile is near: compiled beside the editor, of the text on the disk.

A profile is near if it lies beside the policy as `NAME.profile.json` or `profile.json`. `trc compile` solves the windows in a
process of its own, when the policy is opened or saved, so no key waits for it; windows are shown as long as the policy means
what was compiled.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from tokenrouter.dsl import hir
from tokenrouter.dsl.load import load
from tokenrouter.errors import TokenRouterError

LONGEST = 120.0  # seconds that a compiler may take
_SHOWN = 4  # windows that a hint names


@dataclass(frozen=True, slots=True)
class Solved:
    """The windows by model, of one policy as it was compiled."""

    policy: hir.Policy
    windows: Mapping[str, tuple[int, ...]]
    origin: str  # what they were solved for


@dataclass(eq=False, slots=True)
class Solver:
    """What was solved of each file, by path; one process runs at a time."""

    solved: dict[str, Solved] = field(default_factory=dict)
    of: dict[str, object] = field(
        default_factory=dict
    )  # by path: the files that were compiled, as they were
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)

    def hints(self, path: str, policies: Iterable[hir.Policy]) -> Mapping[str, tuple[str, str]]:
        """Return by model what its hint says and what it adds, where the policy means what was compiled."""
        known = self.solved.get(path)
        if known is None or known.policy not in tuple(policies):
            return {}
        return {
            model: (f" {told(row)}", f"{full(row)}\n\n{known.origin}")
            for model, row in known.windows.items()
        }

    async def look(self, path: str, sets: Mapping[str, str]) -> bool:
        """Solve the windows of a file where a profile is near; return whether hints are others now."""
        profile = near(path)
        if profile is None:
            self.of.pop(path, None)
            return self.solved.pop(path, None) is not None
        async with self.alone:
            now = (_stamp(path), _stamp(str(profile)), dict(sets))
            if self.of.get(path) == now:
                return False
            self.of[path] = now
            before = self.solved.pop(path, None)
            made = await _compiled(path, profile, sets)
            if made is not None:
                self.solved[path] = made
            return made is not None or before is not None

    def drop(self, path: str) -> None:
        """Forget a file."""
        self.of.pop(path, None)
        self.solved.pop(path, None)


def near(path: str) -> Path | None:
    """Return the profile that is near a policy."""
    file = Path(path)
    if file.suffix != ".route":
        return None
    beside = (file.with_name(f"{file.stem}.profile.json"), file.with_name("profile.json"))
    return next((profile for profile in beside if profile.is_file()), None)


def told(row: tuple[int, ...]) -> str:
    """Return the windows of a model for any number of active requests, in short: `window 1, 2 from N=4`."""
    runs = [
        (window, next(iter(places))[0])
        for window, places in groupby(enumerate(row), lambda p: p[1])
    ]
    parts = [f"{window}" if not at else f"{window} from N={at + 1}" for window, at in runs]
    return "window " + ", ".join([*parts[:_SHOWN], *(["..."] if len(parts) > _SHOWN else [])])


def full(row: tuple[int, ...]) -> str:
    """Return how many requests a batch waits for, by the number N of active ones."""
    return "a batch waits for " + ", ".join(
        f"{window} (N={at})" for at, window in enumerate(row, 1)
    )


def _stamp(path: str) -> object:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


async def _compiled(path: str, profile: Path, sets: Mapping[str, str]) -> Solved | None:
    """Return what the compiler solves; None where it refuses, which `trc compile` tells."""
    from tokenrouter.plan.io import read  # noqa: PLC0415 only files with a profile need it

    before = _stamp(path)
    with tempfile.TemporaryDirectory() as folder:
        plan = os.path.join(folder, "plan.json")
        settings = [part for name, value in sets.items() for part in ("--set", f"{name}={value}")]
        command = [
            sys.executable,
            "-m",
            "tokenrouter.cli",
            "compile",
            path,
            "--profile",
            str(profile),
        ]
        process = await asyncio.create_subprocess_exec(
            *command, *settings, "-o", plan,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            await asyncio.wait_for(process.wait(), LONGEST)
        except TimeoutError:
            return None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode or _stamp(path) != before:
            return None
        try:
            made, policy = read(plan), load(path, sets=sets, one=True).only()
        except TokenRouterError:
            return None
    rows = zip(made.models, made.windows.table, strict=True)
    origin = f"solved for {made.windows.machine}, by {profile.name}"
    if made.windows.note:
        origin += f"; {made.windows.note}"
    return Solved(policy, {model.name: tuple(row) for model, row in rows}, origin)
