"""A process that steps one model on demand: `python -m tokenrouter.runtime.stepping BOOT MODEL`.

The orders are lines of JSON on stdin, the answers lines on stdout. `spin` steps until the next order comes, which is how
one model is kept busy while another is timed. Where models step in turn the two then alternate, and `after` times the steps that
follow the other's, from the end of that one on: passing the turn and caches full of another model's weights are in it.
"""

from __future__ import annotations

import os
import select
import struct
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Literal

import msgspec
import torch

from tokenrouter.errors import TokenRouterError
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.process import follow, on_device
from tokenrouter.runtime.settings import Boot
from tokenrouter.runtime.stepper import Stepper
from tokenrouter.runtime.turns import FILE, Turns, in_turn


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What to do; batch and context are those of every kind but `stop`."""

    do: Literal["fits", "time", "after", "read", "spin", "stop"]
    batch: int = 1
    context: int = 1
    unread: tuple[int, ...] = (1,)  # tokens of others with which requests come back, each as often
    sampling: Sampling = Sampling()  # of all requests
    steps: int = 1  # to be timed
    most_ms: float = 0.0  # after which no further step is begun


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    error: str = ""  # one line, where the process ends
    fits: bool = True  # whether pool and context hold the batch
    ms: list[float] = []  # of each timed step
    dtype: str = ""  # that the model runs in


decode = msgspec.json.Decoder(Order).decode
WARM = 2  # steps that are not timed
LEAST = 4  # that are
VAIN = 16  # steps for each that is to be timed, where others do not come between
STAMP = struct.Struct("=qd")  # who stepped last, and when that ended


class Timed(Turns):
    """Turns that tell when a step of another ended which came right before one's own."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
        self._ended = os.open(path.with_suffix(".ended"), flags, 0o600)
        self.since: float | None = None  # s, on a clock that all processes share

    def __enter__(self) -> None:
        """Wait for one's turn."""
        super().__enter__()
        stamp = os.pread(self._ended, STAMP.size, 0)
        holder, ended = STAMP.unpack(stamp) if stamp else (os.getpid(), 0.0)
        self.since = None if holder == os.getpid() else ended

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let another one step, and tell it when this one ended."""
        os.pwrite(self._ended, STAMP.pack(os.getpid(), time.monotonic()), 0)
        super().__exit__(kind, error, trace)


def main(argv: list[str]) -> int:
    """Load one model and obey; returns the exit status."""
    boot = msgspec.json.decode(Path(argv[0]).read_bytes(), type=Boot)
    model = int(argv[1])
    if not follow(boot.parent):
        return 0
    if boot.settings.threads is not None:
        torch.set_num_threads(boot.settings.threads)
    try:
        settings = on_device(boot.settings, boot.plan, model, 0)
        stepper = Stepper(boot.plan, model, settings)
        if in_turn(boot.plan, settings):
            stepper.turn = Timed(Path(argv[0]).parent / FILE)
    except TokenRouterError as error:
        tell(Answer(error=str(error)))
        return 1
    tell(Answer(dtype=boot.settings.dtype or boot.plan.models[model].dtype))
    for line in iter(sys.stdin.buffer.readline, b""):
        order = decode(line)
        if order.do == "stop":
            break
        if order.do == "fits":
            tell(Answer(fits=stepper.fits(order.batch, order.context, order.unread)))
        elif order.do in ("time", "after"):
            tell(Answer(ms=timed(stepper, order)))
        elif order.do == "read":
            tell(Answer(ms=read(stepper, order)))
        else:
            spin(stepper, order)
    return 0


def tell(answer: Answer) -> None:
    """Write one answer."""
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


def timed(stepper: Stepper, order: Order) -> list[float]:
    """Return the times of steps under a load; a few at least, or none where no other steps between."""
    stepper.load(order.batch, order.context, order.unread, order.sampling)
    for _ in range(WARM):
        stepper.step()
    took: list[float] = []
    for _ in range(VAIN * max(LEAST, order.steps)):
        if len(took) >= LEAST and (len(took) >= order.steps or sum(took) >= order.most_ms):
            break
        ms = stepper.step()
        if stepper.followed == (order.do == "after"):
            took.append(ms)
    return took


def read(stepper: Stepper, order: Order) -> list[float]:
    """Return the times in which prompts of `context` tokens are read; a few at least."""
    stepper.read(order.context)
    took: list[float] = []
    while len(took) < LEAST or (len(took) < order.steps and sum(took) < order.most_ms):
        took.append(stepper.read(order.context))
    return took


def spin(stepper: Stepper, order: Order) -> None:
    """Step until another order waits; answers when the load is on, and again when it is off."""
    stepper.load(order.batch, order.context, order.unread, order.sampling)
    tell(Answer())
    while not select.select([sys.stdin.buffer], [], [], 0)[0]:
        stepper.step()
    tell(Answer())


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)
