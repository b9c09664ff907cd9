"""A process that steps one model on demand: `python -m tokenrouter.runtime.stepping BOOT MODEL`.

The orders are lines of JSON on stdin, the answers lines on stdout. `spin` steps until the next order comes, which is how
one model is kept busy while another is timed. Where models step in turn the two then alternate, and `after` times the steps that
follow the other's, from the end of that one on: passing the turn and caches full of another model's weights are in it.
"""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path
from types import TracebackType
from typing import Literal

import msgspec
import torch

from tokenrouter.errors import TokenRouterError
from tokenrouter.runtime.line import TABLE, Line
from tokenrouter.runtime.messages import Handoff, Sampling
from tokenrouter.runtime.process import follow, on_device
from tokenrouter.runtime.settings import Boot
from tokenrouter.runtime.stepper import Stepper
from tokenrouter.runtime.transport import FRONT_END, Message, Sockets, endpoint
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


class InLine:
    """A model's place in line while it is timed, as it is in the server: what a step has to say leaves at its end, and the next in turn waits for it.

    Hand-offs of others are thrown away: requests come back to a timed model at once, made up.
    """

    def __init__(self, directory: Path, n_models: int, model: int, key: bytes) -> None:
        addresses = [FRONT_END, *range(n_models)]
        endpoints = {address: endpoint(directory, address) for address in addresses}
        self.sockets = Sockets(model, endpoints, key)
        self.turns = Turns(directory / FILE)
        self.line = Line(self.turns, directory / TABLE, n_models, model, self._throw_away)

    @property
    def since(self) -> float | None:
        """When the turn of another ended that came right before, s."""
        return self.turns.since

    def send(self, receiver: int, message: Message) -> None:
        """Lay a message by until the turn ends."""
        if isinstance(message, Handoff):
            self.line.sent(receiver)
        self.sockets.keep(receiver, message)

    def __enter__(self) -> None:
        """Wait for one's turn, and for what has been handed over."""
        self.turns.__enter__()
        self.line.complete()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Say what there is to say, and let another one step."""
        self.sockets.flush()
        self.turns.__exit__(kind, error, trace)

    def _throw_away(self, wait_ms: float) -> None:
        if wait_ms:
            self.sockets.wait(wait_ms)
        for _ in self.sockets.receive():
            self.line.took()


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
            directory, n = Path(argv[0]).parent, len(boot.plan.models)
            stepper.turn = InLine(directory, n, model, bytes.fromhex(boot.key))
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
