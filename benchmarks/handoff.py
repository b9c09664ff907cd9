"""What a hand-off and its return cost beside a step of the small model.

    python benchmarks/handoff.py [--tokens 256] [--repeat 3]

The demo pair in processes of its own, as `trc serve` runs it, without HTTP. `ping pong` hands every token over, so that
two tokens are one hand-off and one return; `small alone` never does. The cost of a round trip is the wall time of two tokens of ping pong
less the time in both models: messages, queues, waking up, gates, batches, drawing, signals and rules of both steps. Medians, ms.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tokenrouter.compiler.compile import compile_policy
from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.client import Client
from tokenrouter.runtime.messages import Sampling

MODELS = """route 1
model small {{ use "demo:small"  dtype {dtype}  cost 1 }}
model large {{ use "demo:large"  dtype {dtype}  cost 2.7 }}
"""
PING_PONG = """
policy ping_pong {
  start small
  at small { otherwise -> commit then large }
  at large { otherwise -> commit then small }
}
"""
SMALL_ALONE = """
policy small_alone {
  start small
  at small { otherwise -> commit }
}
"""
PROMPT = 96  # tokens
WARM = 16  # tokens that are not counted


class Spent(NamedTuple):
    """What was spent so far."""

    wall_s: float
    steps: list[int]  # by model
    model_s: list[float]  # in the model
    beside_s: list[float]  # in the other phases but waiting


class Round(NamedTuple):
    """One measurement, ms of a step by model."""

    wall: float  # of one token
    model: list[float]
    beside: list[float]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=256, metavar="N", help="(%(default)s)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="(%(default)s)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    args = parser.parse_args()
    alone = asyncio.run(rounds(plan_of(SMALL_ALONE, args.dtype), args))
    both = asyncio.run(rounds(plan_of(PING_PONG, args.dtype), args))
    small = statistics.median(each.wall for each in alone)
    trips = [2 * each.wall - sum(each.model) for each in both]
    trip, own = statistics.median(trips), statistics.median(sum(each.beside) for each in both)
    at_small, at_large = (statistics.median(each.model[at] for each in both) for at in (0, 1))
    print(f"{args.dtype}: a step of small alone {small:.2f}")
    print(f"a hand-off and its return {trip:.2f} ({min(trips):.2f} to {max(trips):.2f})")
    print(f"    of which in the two steps {own:.2f}, between them {trip - own:.2f}")
    print(f"    the models meanwhile: small {at_small:.2f}, large {at_large:.2f}")
    print(f"ratio {trip / small:.2f}")


def plan_of(policy: str, dtype: str) -> Plan:
    """Return the plan of a policy over the demo pair."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "handoff.route"
        file.write_text(MODELS.format(dtype=dtype) + policy, encoding="utf-8")
        return compile_policy(file)


async def rounds(plan: Plan, args: argparse.Namespace) -> list[Round]:
    """Return the measurements."""
    client = Client(plan)
    await client.start()
    source = random.Random(0)
    found = [await one(client, args.tokens, source) for _ in range(args.repeat)]
    await client.close()
    return found


async def one(client: Client, tokens: int, source: random.Random) -> Round:
    """Let a request write, and return what its tokens took once it wrote."""
    prompt = [source.randrange(1000, 40000) for _ in range(PROMPT)]
    ticket = client.submit(prompt, Sampling(max_tokens=WARM + tokens, ignore_eos=True))
    for _ in range(WARM):
        await anext(ticket)
    then = await spent(client)
    for _ in range(tokens - 2):  # while it still writes
        await anext(ticket)
    now = await spent(client)
    async for _ in ticket:
        pass
    steps = [b - a for a, b in zip(then.steps, now.steps, strict=True)]

    def of_step(then_s: list[float], now_s: list[float]) -> list[float]:
        return [1e3 * (b - a) / max(1, n) for a, b, n in zip(then_s, now_s, steps, strict=True)]

    wall = 1e3 * (now.wall_s - then.wall_s) / (tokens - 2)
    return Round(wall, of_step(then.model_s, now.model_s), of_step(then.beside_s, now.beside_s))


async def spent(client: Client) -> Spent:
    """Return what the subservers tell."""
    reports = await client.peek()
    model = [report.phases["model"] for report in reports]
    busy = [sum(s for phase, s in r.phases.items() if phase != "wait") for r in reports]
    beside = [b - m for b, m in zip(busy, model, strict=True)]
    return Spent(time.perf_counter(), [report.steps for report in reports], model, beside)


if __name__ == "__main__":
    main()
