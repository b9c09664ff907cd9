"""One of the ranks that share a model, the first excepted: `python -m tokenrouter.runtime.rank`.

What it needs comes through stdin, from the first rank (`tokenrouter.runtime.ranks`): its boot, then what to read in each step. It knows
nothing of requests, rules and peers. It ends when its stdin does.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec
import torch

from tokenrouter.errors import TokenRouterError
from tokenrouter.runtime import load
from tokenrouter.runtime.logs import configure
from tokenrouter.runtime.model.parallel import Group
from tokenrouter.runtime.process import follow, no_room, on_device
from tokenrouter.runtime.ranks import SIZE, Loaded, RankBoot, Read

log = logging.getLogger("tokenrouter")


def main() -> int:
    """Serve one part of a model until the end; returns the exit status."""
    first = frame(sys.stdin.buffer)
    if not first:
        return 0
    boot = msgspec.json.decode(first, type=RankBoot)
    if not follow(boot.parent):
        return 0
    settings, name = boot.settings, boot.plan.models[boot.model].name
    configure(settings.log_format, settings.log_level, f"{name}.{boot.rank}", marked=True)
    size = boot.plan.models[boot.model].tensor_parallel
    torch.set_num_threads(max(1, (settings.threads or torch.get_num_threads()) // size))
    group = Group(boot.rank, size, Path(boot.meeting))
    try:
        settings = on_device(settings, boot.plan, boot.model, boot.rank)
        runner = load.load_part(boot.plan, boot.model, settings, group)
    except (TokenRouterError, MemoryError, RuntimeError) as error:
        reason = str(error) if isinstance(error, TokenRouterError) else no_room(error, boot.plan)
        tell(Loaded(error=reason))
        return 1
    tell(Loaded())
    group.connect(torch.device(settings.device))
    if runner.graphs is not None:
        # All ranks capture the same steps in the same order: on GPUs they meet in the sums of each.
        runner.graphs.prepare()
    decode = msgspec.msgpack.Decoder(Read).decode
    while data := frame(sys.stdin.buffer):
        step = decode(data)
        try:
            runner.read(step.extensions, hidden=step.hidden)
        except RuntimeError as error:
            if os.getppid() == boot.parent:
                log.error("%s", " ".join(str(error).split())[:300])
            return 1
    return 0


def frame(pipe: BinaryIO) -> bytes:
    """Return the next frame; empty at the end."""
    size = pipe.read(SIZE)
    return pipe.read(int.from_bytes(size, "little")) if len(size) == SIZE else b""


def tell(answer: Loaded) -> None:
    """Write the one answer."""
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    status = main()
    logging.shutdown()
    os._exit(status)
