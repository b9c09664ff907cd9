"""One decode step of the demo's large model by number of requests, in compiled kernels or in torch.

    python benchmarks/native_step.py                           in compiled kernels, where this machine has them
    TOKENROUTER_NATIVE=0 python benchmarks/native_step.py      in torch

The model alone, on one thread unless `--threads` says otherwise, 100 tokens before the step; medians of 24 steps, ms.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from pathlib import Path

import torch

from tokenrouter.models import locate
from tokenrouter.runtime.model import ExtendBatch, Extension
from tokenrouter.runtime.model.load import load

PAGE, PAGES = 16, 20  # tokens a page, pages a request
READ = 100  # tokens before the step
SIZES = (1, 4, 8, 12, 16)
STEPS = 24


def main() -> None:
    """Time and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="(%(default)s)")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = load(locate("demo:large", Path()), args.dtype)
    most = max(SIZES)
    cache = model.new_cache(most * PAGES, PAGE)
    pages = [[request + at * most for at in range(PAGES)] for request in range(most)]
    source = random.Random(0)

    def step(requests: int, start: int, tokens: int) -> float:
        ids = [[source.randrange(1000, 40000) for _ in range(tokens)] for _ in range(requests)]
        parts = [Extension(each, start, own) for each, own in zip(ids, pages, strict=False)]
        batch = ExtendBatch.of(parts, PAGE)
        begun = time.perf_counter()
        model.extend(batch, cache)
        return 1000 * (time.perf_counter() - begun)

    print(type(model).__name__, args.dtype)
    first = statistics.median(step(1, 0, READ) for _ in range(5))
    for request in range(most):
        model.extend(ExtendBatch.of([Extension([5] * READ, 0, pages[request])], PAGE), cache)
    print(f"{READ} tokens of a prompt: {first:.0f} ms")
    for n in SIZES:
        print(f"{n:3} requests: {statistics.median(step(n, READ, 1) for _ in range(STEPS)):.1f} ms")


if __name__ == "__main__":
    main()
