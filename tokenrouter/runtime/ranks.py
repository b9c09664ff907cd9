"""The first rank of a subserver whose model several ranks share: it has the scheduler and the pages' book, the others follow.

The others are processes of `tokenrouter.runtime.rank`, children of this one. Each step they are told, through their stdin, what to read;
then all compute together and meet in the sums of the model's layers (`tokenrouter.runtime.model.parallel`). They wait at the pipe and not in a
sum, so an idle model waits for ever. They end with this process, and their end is its end: a model with a part missing
is no model, and the front end starts the whole subserver again.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from tokenrouter.errors import TokenRouterError
from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.model import ExtendOutput, Extension
from tokenrouter.runtime.model.parallel import Group
from tokenrouter.runtime.settings import Settings
from tokenrouter.runtime.waiting import environment

PATIENCE_S = 5.0  # for a process to end, once its end of a connection is gone
SIZE = 4  # bytes of a frame's length


class RankLost(TokenRouterError):  # noqa: N818
    """A rank has ended, and its model with it."""


class RankBoot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a rank needs to load its part."""

    plan: Plan
    model: int
    rank: int
    meeting: str  # the file where the ranks meet
    settings: Settings
    parent: int  # process id of the first rank


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """One step: what to read, and whether the hidden state is asked for."""

    extensions: Sequence[Extension]
    hidden: bool


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's only answer: it has its part, or why not."""

    error: str = ""


class Reader(Protocol):
    """What reads a batch's tokens on one rank."""

    def __call__(self, extensions: Sequence[Extension], *, hidden: bool) -> ExtendOutput:
        """Read them into this rank's pages."""
        ...


class _Follower(NamedTuple):
    rank: int
    process: subprocess.Popen[bytes]


class Ranks:
    """The ranks of one model as the first of them sees them."""

    def __init__(
        self, plan: Plan, model: int, settings: Settings, directory: Path | None = None
    ) -> None:
        """Start the others; `directory` is one that only this user can enter, made here where there is none."""
        self.name = plan.models[model].name
        size = plan.models[model].tensor_parallel
        own = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="trc-")) if directory is None else directory
        handle = tempfile.mkdtemp(prefix=f"ranks-{model}-", dir=self.directory)
        self.group = Group(0, size, Path(handle) / "meeting")
        # Each goes to a GPU of its own.
        settings = msgspec.structs.replace(settings, device=settings.device.partition(":")[0])
        self.followers: list[_Follower] = []
        self._closing = threading.Event()
        self._ended = threading.Lock()
        self._on_end: Callable[[str], None] | None = None
        self._end = weakref.finalize(
            self, _close, self.followers, self._closing, self.directory if own else Path(handle)
        )
        for rank in range(1, size):
            boot = RankBoot(
                plan=plan,
                model=model,
                rank=rank,
                meeting=str(self.group.meeting),
                settings=settings,
                parent=os.getpid(),
            )
            self.followers.append(_Follower(rank, _start(boot)))

    def wait(self) -> None:
        """Return when every other rank has its part; raises RankLost where one has not."""
        for rank, process in self.followers:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise self._lost()
            answer = msgspec.json.decode(line, type=Loaded)
            if answer.error:
                self.close()
                raise RankLost(f"rank {rank} of `{self.name}`: {answer.error}")

    def watch(self, end: Callable[[str], None]) -> None:
        """Call `end` with one line, from another thread and once, when a rank has ended; it must not return."""
        self._on_end = end
        for follower in self.followers:
            threading.Thread(target=self._watch, args=(follower,), daemon=True).start()

    def _watch(self, follower: _Follower) -> None:
        follower.process.wait()
        if not self._closing.is_set():
            self._tell(_how(follower, self.name))

    def _tell(self, reason: str) -> None:
        assert self._on_end is not None
        with self._ended:  # never left: one line is enough
            self._on_end(reason)

    def lead(self, read: Reader, extensions: Sequence[Extension], *, hidden: bool) -> ExtendOutput:
        """Read a batch on all ranks and return what it gave; raises RankLost."""
        frame = msgspec.msgpack.encode(Read(extensions=extensions, hidden=hidden))
        try:
            for _, process in self.followers:
                assert process.stdin is not None
                process.stdin.write(len(frame).to_bytes(SIZE, "little") + frame)
                process.stdin.flush()
            return read(extensions, hidden=hidden)
        except (OSError, RuntimeError) as error:
            lost = self._lost(error)
            if self._on_end is not None:
                self._tell(str(lost))
            raise lost from error

    def _lost(self, error: Exception | None = None) -> RankLost:
        """Return who is lost; raises `error` where nobody is."""
        gone = _gone(self.followers)
        if gone is None and error is not None:
            raise error
        self.close()
        return RankLost(
            f"a rank of `{self.name}` is silent" if gone is None else _how(gone, self.name)
        )

    def close(self) -> None:
        """End the other ranks."""
        self._end()


def _start(boot: RankBoot) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tokenrouter.runtime.rank"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdin is not None
    frame = msgspec.json.encode(boot)
    process.stdin.write(len(frame).to_bytes(SIZE, "little") + frame)
    process.stdin.flush()
    return process


def _gone(followers: list[_Follower]) -> _Follower | None:
    """Return a rank that has ended, after a while for one that is about to; None where all run."""
    deadline = threading.Event()
    for _ in range(int(PATIENCE_S / 0.05)):
        for follower in followers:
            if follower.process.poll() is not None:
                return follower
        deadline.wait(0.05)
    return None


def _how(follower: _Follower, name: str) -> str:
    status = follower.process.returncode
    try:
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
    except ValueError:
        how = f"signal {-status}"
    return f"rank {follower.rank} of `{name}` ended ({how}), and the model with it"


def _close(followers: list[_Follower], closing: threading.Event, directory: Path) -> None:
    """Let the other ranks end, by force where they do not."""
    closing.set()
    for _, process in followers:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what was not written any more
                    pipe.close()
    for _, process in followers:
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    shutil.rmtree(directory, ignore_errors=True)
