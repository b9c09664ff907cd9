"""Which GPU each rank of each model runs on, and how much KV all of them have room for.

    places     a plan's own (`Model.gpus`), else one GPU a rank in order, the least taken first: with fewer GPUs than ranks models share
    capacity   tokens that each pool holds: the most that fit on every GPU beside the weights that lie there

Every pool holds the same number of tokens, as in the plan: a request keeps its pages on each model that it has visited.

TokenRouterError
└── NoRoom      the GPUs that there are cannot hold the plan's models
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tokenrouter.errors import TokenRouterError
from tokenrouter.plan.structs import Plan

SHARE = 0.9  # of the free memory; activations, graphs and workspaces have the rest
WIDTH = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}  # bytes a value


class NoRoom(TokenRouterError):  # noqa: N818 - reads as what it says
    """Models that do not fit."""


def places(plan: Plan, gpus: int) -> list[list[int]]:
    """Return by model the GPU of each of its ranks; raises NoRoom where a plan names GPUs that are not there."""
    if gpus < 1:
        raise NoRoom("no GPU is there; serve with --device cpu")
    taken = Counter(gpu for model in plan.models for gpu in model.gpus)
    found = []
    for model in plan.models:
        ranks = model.tensor_parallel
        if ranks > gpus:
            raise NoRoom(
                f"`{model.name}` asks for {ranks} ranks, each on a GPU of its own, and there are {gpus}"
            )
        own = list(model.gpus)
        if own and (len(own) != ranks or len(set(own)) != ranks or not set(own) <= {*range(gpus)}):
            raise NoRoom(
                f"`{model.name}` is to run on GPUs {own}: {ranks} of the {gpus} that are there are needed"
            )
        if not own:
            own = sorted(range(gpus), key=lambda gpu: taken[gpu])[:ranks]
            taken.update(own)
        found.append(own)
    return found


def capacity(
    plan: Plan, placed: Sequence[Sequence[int]], free: Sequence[int], dtype: str | None = None
) -> int:
    """Return the tokens that each pool can hold, given the bytes that are free on each GPU; raises NoRoom."""
    fits: list[int] = []
    for gpu in sorted({gpu for own in placed for gpu in own}):
        here = [m for m, own in zip(plan.models, placed, strict=True) if gpu in own]
        scale = [WIDTH[dtype or m.dtype] / WIDTH[m.dtype] / m.tensor_parallel for m in here]
        weights = sum(m.weight_bytes * s for m, s in zip(here, scale, strict=True))
        token = sum(m.kv_bytes_per_token * s for m, s in zip(here, scale, strict=True))
        room = SHARE * free[gpu] - weights
        if room < token * plan.memory.page_size:
            names = " and ".join(f"`{m.name}`" for m in here)
            raise NoRoom(
                f"GPU {gpu} has {free[gpu] / 2**30:.1f} GiB free and {names} "
                f"weigh{'s' if len(here) == 1 else ''} {weights / 2**30:.1f} GiB: no room for KV pages; "
                "use more GPUs, `tensor_parallel`, or a smaller --dtype"
            )
        fits.append(int(room / token) if token else plan.memory.capacity_tokens)
    longest = plan.windows.max_active * plan.context
    size = plan.memory.page_size
    return min(min(fits) // size * size, -(-longest // size) * size)


def with_budget(
    plan: Plan, placed: Sequence[Sequence[int]], free: Sequence[int], dtype: str | None = None
) -> Plan:
    """Return the plan with the KV pools that its GPUs have room for."""
    tokens = capacity(plan, placed, free, dtype)
    used = tokens * sum(model.kv_bytes_per_token for model in plan.models)
    memory = msgspec.structs.replace(plan.memory, capacity_tokens=tokens, budget_bytes=used)
    return msgspec.structs.replace(plan, memory=memory)


def in_turns(plan: Plan, placed: Sequence[Sequence[int]]) -> str | None:
    """Return that some models take turns at their GPU, which their windows do not expect; None where none do."""
    default = str(Path(tempfile.gettempdir(), "nvidia-mps"))
    if Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or default, "control").exists():
        return None
    for gpu in sorted({gpu for own in placed for gpu in own}):
        here = [m for m, own in zip(plan.models, placed, strict=True) if gpu in own]
        if len(here) > 1:
            names = " and ".join(f"`{m.name}`" for m in here)
            return (
                f"{names} share GPU {gpu} and no Multi-Process Service is there: they take turns, "
                "which costs speed; `nvidia-cuda-mps-control -d` starts one (docs/gpu.md)"
            )
    return None


def free_memory() -> list[int]:
    """Return the free bytes of each GPU; asked by a process of its own, since a look costs its asker half a gigabyte there."""
    program = (
        "import json, torch; n = torch.cuda.device_count() if torch.cuda.is_available() else 0; "
        "print(json.dumps([torch.cuda.mem_get_info(at)[0] for at in range(n)]))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise NoRoom(f"the GPUs cannot be asked for their memory: {last}")
    found: list[int] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
