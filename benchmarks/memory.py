"""The resident memory of a subserver with one model, where `--kv-budget` says nothing.

    python benchmarks/memory.py [--dtype bfloat16] [--model demo:large] [--tokens 36000]

After the start, after eight requests at once, and after so many tokens of prompts that nobody has sent before, which the prefix cache
would like to keep. MB, millions of bytes, of the model's process.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from pathlib import Path

from tokenrouter.compiler.compile import compile_policy
from tokenrouter.runtime.client import Client
from tokenrouter.runtime.messages import Sampling

POLICY = """route 1
model only {{ use "{model}"  dtype {dtype} }}
policy alone {{
  start only
  at only {{ otherwise -> commit }}
}}
"""
PROMPT = 2000  # tokens of those that nobody has sent before


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo:large", help="(%(default)s)")
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--tokens", type=int, default=36000, metavar="N", help="(%(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "memory.route"
        file.write_text(POLICY.format(model=args.model, dtype=args.dtype), encoding="utf-8")
        plan = compile_policy(file)
    print(f"{args.model} in {args.dtype}: {plan.memory.capacity_tokens} tokens of KV")
    asyncio.run(measure(Client(plan), args.tokens, plan.tokenizer.size))


async def measure(client: Client, tokens: int, vocabulary: int) -> None:
    """Print the memory at three moments."""
    await client.start()
    source = random.Random(0)

    async def write(n_prompt: int, n_output: int) -> None:
        prompt = [source.randrange(vocabulary) for _ in range(n_prompt)]
        async for _ in client.submit(prompt, Sampling(max_tokens=n_output, ignore_eos=True)):
            pass

    say(client, "after the start")
    await asyncio.gather(*(write(100, 128) for _ in range(8)))
    say(client, "after eight requests of 100 and 128 tokens")
    for _ in range(0, tokens, PROMPT):
        await write(PROMPT, 1)
    say(client, f"after {tokens} tokens of new prompts")
    (report,) = await client.inspect()
    print(f"of {report.pages} pages {report.kept} are kept, {report.free} free")
    await client.close()


def say(client: Client, when: str) -> None:
    """Print what the model's process has."""
    pid = client.status().models[0].pid
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    resident = next(line for line in lines if line.startswith("VmRSS"))
    print(f"{int(resident.split()[1]) * 1024 / 1e6:6.0f} MB  {when}", flush=True)


if __name__ == "__main__":
    main()
