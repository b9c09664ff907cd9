"""One subserver as a process of its own: `python -m tokenrouter.runtime.process DIRECTORY MODEL EPOCH`.

The directory is private to one front end: it holds `boot.json` and the sockets. The process reads its weights, says Ready
and serves until it is told to drain, or until the front end is gone: the kernel ends it with its parent, and a look at
the parent's id now and then covers what the kernel does not see.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import time
from pathlib import Path

import msgspec
import torch

from tokenrouter.errors import TokenRouterError
from tokenrouter.plan.structs import Plan
from tokenrouter.runtime import load
from tokenrouter.runtime.checks import MessageCheck
from tokenrouter.runtime.line import TABLE, Line
from tokenrouter.runtime.logs import configure, since, told
from tokenrouter.runtime.messages import Failed, Gated, Handoff, Held
from tokenrouter.runtime.placing import places
from tokenrouter.runtime.settings import Boot, Settings
from tokenrouter.runtime.subserver import Subserver
from tokenrouter.runtime.transport import (
    FRONT_END,
    Message,
    Sockets,
    endpoint,
    parse_for_subserver,
)
from tokenrouter.runtime.turns import FILE, Turns, in_turn

log = logging.getLogger("tokenrouter")

IDLE_MS = 500.0  # between two looks at the parent
PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> int:
    """Serve one model until the end; returns the exit status."""
    directory, model, epoch = Path(argv[0]), int(argv[1]), int(argv[2])
    boot = msgspec.json.decode((directory / "boot.json").read_bytes(), type=Boot)
    if not follow(boot.parent):
        return 0
    name = boot.plan.models[model].name
    configure(boot.settings.log_format, boot.settings.log_level, name, marked=True)
    if boot.settings.threads is not None:
        ranks = boot.plan.models[model].tensor_parallel
        torch.set_num_threads(max(1, boot.settings.threads // ranks))
    addresses = [FRONT_END, *range(len(boot.plan.models))]
    endpoints = {address: endpoint(directory, address) for address in addresses}
    sockets = Sockets(model, endpoints, bytes.fromhex(boot.key))
    post = Post(sockets, boot.plan, model)
    begun = time.monotonic()
    try:
        settings = on_device(boot.settings, boot.plan, model, 0)
        runner = load.load_runner(boot.plan, model, settings, directory)
        subserver = load.subserver(
            boot.plan, model, runner, post.send, now_ms, settings=settings, epoch=epoch
        )
        if subserver.masks is not None:
            subserver.masks.grammars.prepare()
            subserver.masks.go_aside()
    except (TokenRouterError, MemoryError, RuntimeError) as error:
        reason = str(error) if isinstance(error, TokenRouterError) else no_room(error, boot.plan)
        sockets.send(FRONT_END, Failed(model=model, epoch=epoch, reason=reason))
        sockets.close()
        log.error("%s", reason)
        return 1
    if runner.ranks is not None:
        runner.ranks.watch(end)
    log.info("loaded", extra=told(epoch=epoch, ms=since(begun)))
    post.subserver = subserver
    if settings.device == "cpu" and runner.ranks is None:
        n_models = len(boot.plan.models)
        if in_turn(boot.plan, settings):
            turn = Turns(directory / FILE)
            post.line = Line(turn, directory / TABLE, n_models, model, post.take_in)
    subserver.announce()
    serve(subserver, post, boot.parent)
    if runner.ranks is not None:
        runner.ranks.close()
    log.info("ended", extra=told(epoch=epoch))
    sockets.close()
    return 0


def on_device(settings: Settings, plan: Plan, model: int, rank: int) -> Settings:
    """Go to the GPU of a rank, with a stream of its own, where models run on GPUs; return the settings that name it."""
    if settings.device != "cuda":
        return settings
    gpu = places(plan, torch.cuda.device_count())[model][rank]
    torch.cuda.set_device(gpu)
    stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    torch.cuda.set_stream(stream)
    return msgspec.structs.replace(settings, device=f"cuda:{gpu}")


def end(reason: str) -> None:
    """End at once, with one line: a rank of this model is gone."""
    log.error("%s", reason)
    logging.shutdown()
    os._exit(1)


def no_room(error: MemoryError | RuntimeError, plan: Plan) -> str:
    """Return one line for a model that does not fit; raises the error where memory is not the matter."""
    words = str(error).lower()
    if not isinstance(error, MemoryError) and not ("memory" in words and "alloc" in words):
        raise error
    return (
        f"out of memory for the weights and a KV pool of {plan.memory.capacity_tokens} tokens; "
        "compile the policy with less memory, or choose a smaller --dtype"
    )


def follow(parent: int) -> bool:
    """End with the parent from now on, and leave ^C to it; False where it is gone already."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def now_ms() -> float:
    """Return the time on a clock that never goes back."""
    return time.monotonic() * 1000.0


class Post:
    """What one subserver sends and is sent; the line of models in turn, where there is one, hears of hand-offs."""

    def __init__(self, sockets: Sockets, plan: Plan, model: int) -> None:
        self.sockets = sockets
        self.model = model
        self.check = MessageCheck(plan)
        self.subserver: Subserver | None = None
        self.line: Line | None = None
        self.ran = False  # a batch, in the last step

    def send(self, receiver: int, message: Message) -> None:
        """Lay a message by until all that a step has to say is said; who is out of a gate's reach is told before the batch runs.

        So is, where models step side by side, who waits at a gate: others count on it meanwhile.
        """
        if self.line is not None and isinstance(message, Handoff):
            self.line.sent(receiver)
        self.sockets.keep(receiver, message)
        if isinstance(message, Held) or (self.line is None and isinstance(message, Gated)):
            self.sockets.flush()

    def take_in(self, wait_ms: float = 0.0) -> None:
        """Give the subserver what has arrived; where that is nothing, wait for something so long."""
        assert self.subserver is not None
        if wait_ms:
            self.subserver.phases.at("wait")
            self.sockets.wait(wait_ms)
        self.subserver.phases.at("messages")
        for data in self.sockets.receive():
            message = parse_for_subserver(data, self.check, self.model)
            if message is None:
                continue
            if self.line is not None and isinstance(message, Handoff):
                self.line.took()
            self.subserver.receive(message)
        self.sockets.flush()

    def step(self) -> bool:
        """Let the subserver run a batch, in turn as many as are due; returns whether another may be due now."""
        assert self.subserver is not None
        if self.line is not None and self.due():
            self.subserver.phases.at("wait")
            self.ran = self.line.run(self._in_turn, self.due, self._leave)
            return False
        self.subserver.meter.passed_ms = None
        self.ran = self.subserver.step(launch=self.line is None)  # nobody steps out of turn
        self._leave()
        return self.ran

    def _in_turn(self) -> bool:
        assert self.subserver is not None and self.line is not None
        since = self.line.turns.since
        self.subserver.meter.passed_ms = None if since is None else now_ms() - 1e3 * since
        return self.subserver.step()

    def _leave(self) -> None:
        """Send what there is to say."""
        assert self.subserver is not None
        self.subserver.phases.at("messages")
        self.sockets.flush()
        self.subserver.phases.at("wait")

    def due(self) -> bool:
        """Return whether a batch can be formed now, as far as one can tell without forming it."""
        assert self.subserver is not None
        scheduler, gate, now = (
            self.subserver.scheduler,
            self.subserver.gate,
            self.subserver.now_ms(),
        )
        if self.subserver.masks is not None:  # whose mask has come is due
            self.subserver.masks.begin(scheduler.sequences.values(), now)
        if gate.peek(scheduler.gated(), now):
            return True
        return any(
            s.unseen and not s.barred and (s.prefilling or not s.owned)
            for s in scheduler.sequences.values()
        )


def serve(subserver: Subserver, post: Post, parent: int) -> None:
    """Take messages and run batches until drained or orphaned; waits only where there is nothing to do, and for its turn."""
    wait, again = 0.0, False
    while True:
        post.take_in(wait)
        wait = 0.0
        if post.step():
            continue
        if subserver.draining and subserver.is_empty:
            return
        if os.getppid() != parent:
            return
        opens = subserver.wait_ms()
        # What is due now was perhaps not yet at the look before. Where it does not run then either, it lacks pages, which only a
        # message can bring back.
        again = opens == 0.0 and (post.ran or not again)
        wait = 0.0 if again else IDLE_MS if not opens else min(opens, IDLE_MS)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    # Taking the interpreter apart with torch in it takes a second in which nothing is left to do.
    logging.shutdown()
    os._exit(status)
