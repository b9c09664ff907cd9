"""One decode step of the demo's large model by number of requests, in compiled kernels or in torch.

    python benchmarks/native_step.py                           in compiled kernels, where this machine has them
    TOKENROUTER_NATIVE=0 python benchmarks/native_step.py      in torch
    python benchmarks/native_step.py --contexts                one and four requests by the tokens before them

The model alone, on one thread unless `--threads` says otherwise, 100 tokens before the step; medians of 24 steps, ms. `--contexts`: medians of 7,
no two requests having a page in common.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from pathlib import Path

import torch

from tokenrouter.models import locate
from tokenrouter.runtime.model import ExtendBatch, Extension, LanguageModel
from tokenrouter.runtime.model.load import load

PAGE, PAGES = 16, 20  # tokens a page, pages a request
READ = 100  # tokens before the step
SIZES = (1, 4, 8, 12, 16)
STEPS = 24
CONTEXTS = (128, 512, 1024, 2048, 4096, 8064)  # of at most 8,192 tokens


def main() -> None:
    """Time and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="(%(default)s)")
    parser.add_argument("--contexts", action="store_true", help="long contexts instead")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = load(locate("demo:large", Path()), args.dtype)
    if args.contexts:
        print(type(model).__name__, args.dtype)
        by_context(model)
        return
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


def by_context(model: LanguageModel) -> None:
    """Time steps over contexts of random keys and values, and 256 tokens of a prompt behind them."""
    per, source = 8192 // PAGE, random.Random(0)
    cache = model.new_cache(4 * per, PAGE)
    for layer in cache.keys + cache.values:
        layer.normal_()
    pages = [list(range(request * per, (request + 1) * per)) for request in range(4)]

    def median(requests: int, before: int, tokens: int) -> float:
        took = []
        for _ in range(7):
            ids = [[source.randrange(1000, 40000) for _ in range(tokens)] for _ in range(requests)]
            parts = [Extension(each, before, own) for each, own in zip(ids, pages, strict=False)]
            batch = ExtendBatch.of(parts, PAGE)
            begun = time.perf_counter()
            model.extend(batch, cache)
            took.append(1000 * (time.perf_counter() - begun))
        return statistics.median(took)

    for before in CONTEXTS:
        one, four = median(1, before, 1), median(4, before, 1)
        prompt = median(1, min(before, 8192 - 256), 256)
        print(
            f"{before:5} tokens before: {one:6.1f} ms, four requests {four:6.1f}, 256 tokens {prompt:7.1f}"
        )


if __name__ == "__main__":
    main()
