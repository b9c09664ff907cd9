"""Two models on few cores: which threads, where, and in how many processes.

    python benchmarks/placement.py [--requests 1 4 8] [--tokens 48] [--rounds 3] [--dtype float32] [--policy chance] [--ways one "in turn"]

    one        one thread a model, wherever the kernel puts it
    pinned     likewise, and each model's process is kept on a core of its own
    in turn    as many threads a model as there are cores, and one model steps at a time (what `trc serve` does on two cores)
    together   one process that runs a step of each model in turn, on all cores

All in turn in every round, in the other order every second one; tokens/s of all requests from the first admission to the last token,
medians and spread. `chance` hands a third of small's tokens over and half of large's back, `ping_pong` hands every token over.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import torch

from tokenrouter.compiler.compile import compile_policy
from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.client import Client
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.messages import Sampling

MODELS = """route 1
model small {{ use "demo:small"  dtype {dtype}  cost 1 }}
model large {{ use "demo:large"  dtype {dtype}  cost 2.7 }}
"""
POLICIES = {
    "chance": """
policy by_chance {
  start small
  at small { when chance < 35% -> retry large  otherwise -> commit }
  at large { when chance < 50% -> commit then small  otherwise -> commit }
}
""",
    "ping_pong": """
policy ping_pong {
  start small
  at small { otherwise -> commit then large }
  at large { otherwise -> commit then small }
}
""",
}
PROMPT = 96  # tokens

Load = list[list[int]]
Way = Callable[[Plan, Load, Sampling], Awaitable[float]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 4, 8], metavar="N")
    parser.add_argument("--tokens", type=int, default=48, metavar="N", help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="(%(default)s)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--policy", default="chance", choices=list(POLICIES))
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "placement.route"
        text = MODELS.format(dtype=args.dtype) + POLICIES[args.policy]
        file.write_text(text, encoding="utf-8")
        plan = compile_policy(file)
    sampling = Sampling(max_tokens=args.tokens, ignore_eos=True)
    source = random.Random(0)
    print(f"{args.policy}, {args.dtype}, tokens/s:")
    for n in args.requests:
        found: dict[str, list[float]] = {name: [] for name in args.ways}
        for at in range(args.rounds):
            load = [[source.randrange(1000, 40000) for _ in range(PROMPT)] for _ in range(n)]
            for name in args.ways[:: -1 if at % 2 else 1]:
                found[name].append(asyncio.run(WAYS[name](plan, load, sampling)))
        for name, rates in found.items():
            spread = f"({min(rates):.1f} to {max(rates):.1f})"
            print(f"{n:3} requests, {name:9} {statistics.median(rates):6.1f}  {spread}", flush=True)


async def one(plan: Plan, load: Load, sampling: Sampling) -> float:
    """One thread a model."""
    return await served(plan, load, sampling, threads=1)


async def pinned(plan: Plan, load: Load, sampling: Sampling) -> float:
    """One thread a model, on a core of its own."""
    return await served(plan, load, sampling, threads=1, pin=True)


async def in_turn(plan: Plan, load: Load, sampling: Sampling) -> float:
    """All cores for each model, in turn."""
    return await served(plan, load, sampling, threads=os.cpu_count() or 1)


async def served(
    plan: Plan, load: Load, sampling: Sampling, *, threads: int, pin: bool = False
) -> float:
    """Return tokens/s of subservers in processes of their own."""
    client = Client(plan, threads=threads)
    await client.start()
    cores = sorted(os.sched_getaffinity(0))
    for at, model in enumerate(client.status().models if pin else []):
        for thread in Path(f"/proc/{model.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {cores[at % len(cores)]})

    async def write() -> None:
        async def read(prompt: list[int]) -> None:
            async for _ in client.submit(prompt, sampling):
                pass

        await asyncio.gather(*(read(prompt) for prompt in load))

    await write()  # pages are touched, and prompts known
    begun = time.perf_counter()
    await write()
    took = time.perf_counter() - begun
    await client.close()
    return len(load) * sampling.max_tokens / took


async def together(plan: Plan, load: Load, sampling: Sampling) -> float:
    """Both models in this process."""
    torch.set_num_threads(os.cpu_count() or 1)
    engine = Engine(plan)
    engine.generate(load, sampling)
    begun = time.perf_counter()
    engine.generate(load, sampling)
    return len(load) * sampling.max_tokens / (time.perf_counter() - begun)


WAYS: dict[str, Way] = {"one": one, "pinned": pinned, "in turn": in_turn, "together": together}


if __name__ == "__main__":
    main()
