"""One decode step of the demo's large model by number of requests, in compiled kernels or in torch.

    python benchmarks/native_step.py                           in compiled kernels, where this machine has them
    TOKENROUTER_NATIVE=0 python benchmarks/native_step.py      in torch
    python benchmarks/native_step.py --contexts                one and four requests by the tokens before them
    python benchmarks/native_step.py --against DIR             in turn with the kernels of another checkout

The model alone, on one thread unless `--threads` says otherwise, 100 tokens before the step; medians of 24 steps, ms. `--contexts`: medians of 7,
no two requests having a page in common. `--against`: steps of either, three at a time, in one process over the same weights, so that a machine whose
speed wanders slows both; medians and least of them, and how many times as fast ours are.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import statistics
import time
from pathlib import Path

import torch
from tokenrouter_kernels.native import build

from tokenrouter.models import locate
from tokenrouter.runtime.model import ExtendBatch, Extension, LanguageModel
from tokenrouter.runtime.model.kv import KVCache
from tokenrouter.runtime.model.load import load
from tokenrouter.runtime.model.native import NativeDecoder, Scratch

PAGE, PAGES = 16, 20  # tokens a page, pages a request
READ = 100  # tokens before the step
SIZES = (1, 4, 8, 12, 16)
STEPS = 24
TURNS = 12  # of three steps, with other kernels
CONTEXTS = (128, 512, 1024, 2048, 4096, 8064)  # of at most 8,192 tokens

source = random.Random(0)  # of tokens


def main() -> None:
    """Time and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="(%(default)s)")
    parser.add_argument("--contexts", action="store_true", help="long contexts instead")
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = load(locate("demo:large", Path()), args.dtype)
    if args.against is not None:
        if not isinstance(model, NativeDecoder):
            parser.error("--against: there are no compiled kernels here")
        try:
            other = by(model, args.against / "kernels" / "tokenrouter_kernels" / "native")
        except (build.NativeError, OSError) as error:
            parser.error(f"--against: {error}")
        print(type(model).__name__, args.dtype)
        in_turn(model, other)
        return
    if args.contexts:
        print(type(model).__name__, args.dtype)
        by_context(model)
        return
    most = max(SIZES)
    cache = model.new_cache(most * PAGES, PAGE)
    pages = [[request + at * most for at in range(PAGES)] for request in range(most)]

    def step(requests: int, start: int, tokens: int) -> float:
        return timed(model, cache, pages[:requests], start, tokens)

    print(type(model).__name__, args.dtype)
    first = statistics.median(step(1, 0, READ) for _ in range(5))
    for request in range(most):
        model.extend(ExtendBatch.of([Extension([5] * READ, 0, pages[request])], PAGE), cache)
    print(f"{READ} tokens of a prompt: {first:.0f} ms")
    for n in SIZES:
        print(f"{n:3} requests: {statistics.median(step(n, READ, 1) for _ in range(STEPS)):.1f} ms")


def timed(
    model: LanguageModel, cache: KVCache, pages: list[list[int]], start: int, tokens: int
) -> float:
    """Return the time of one step, ms: so many random tokens of each request, whose pages are given, after `start` others."""
    parts = [
        Extension([source.randrange(1000, 40000) for _ in range(tokens)], start, own)
        for own in pages
    ]
    batch = ExtendBatch.of(parts, PAGE)
    begun = time.perf_counter()
    model.extend(batch, cache)
    return 1000 * (time.perf_counter() - begun)


def by(model: NativeDecoder, sources: Path) -> NativeDecoder:
    """Return a model of the same weights by other kernels, which must read weights in the same order."""
    less = build.LESS[os.environ.get("TOKENROUTER_NATIVE") or "1"]
    library = build.load(less, sources)
    kinds = range(3)
    if [library.tr_depth(kind) for kind in kinds] != [
        model.library.tr_depth(kind) for kind in kinds
    ]:
        raise build.NativeError(f"`{sources}` packs weights in another order")
    return dataclasses.replace(model, library=library, scratch=Scratch(library), places={})


def in_turn(ours: NativeDecoder, other: NativeDecoder) -> None:
    """Time steps of two models in turn."""
    loads = [(n, READ, 1) for n in SIZES] + [(max(SIZES), READ, 6), (1, 0, READ)]
    most = max(SIZES)
    pages = [[request + at * most for at in range(PAGES)] for request in range(most)]
    sides = [(model, model.new_cache(most * PAGES, PAGE)) for model in (ours, other)]

    def step(side: int, requests: int, start: int, tokens: int) -> float:
        return timed(*sides[side], pages[:requests], start, tokens)

    took: dict[tuple[int, ...], tuple[list[float], list[float]]] = {}
    for side in (0, 1):
        step(side, most, 0, READ)
    for turn in range(TURNS):
        for one in loads:
            lists = took.setdefault(one, ([], []))
            for side in (0, 1) if turn % 2 else (1, 0):
                lists[side].extend(step(side, *one) for _ in range(3))
    for (requests, start, tokens), (own, others) in took.items():
        what = (
            f"{requests:3} requests, {tokens} tokens each"
            if start
            else f"{tokens} tokens of a prompt"
        )
        middle, least = statistics.median(own), min(own)
        print(
            f"{what:30}: {middle:6.1f} ({least:.1f}) ms, other {statistics.median(others):6.1f} ({min(others):.1f}), "
            f"{statistics.median(others) / middle:.2f} ({min(others) / least:.2f}) times as fast"
        )


def by_context(model: LanguageModel) -> None:
    """Time steps over contexts of random keys and values, and 256 tokens of a prompt behind them."""
    per = 8192 // PAGE
    cache = model.new_cache(4 * per, PAGE)
    for layer in cache.keys + cache.values:
        layer.normal_()
    pages = [list(range(request * per, (request + 1) * per)) for request in range(4)]

    def median(requests: int, before: int, tokens: int) -> float:
        took = (timed(model, cache, pages[:requests], before, tokens) for _ in range(7))
        return statistics.median(took)

    for before in CONTEXTS:
        one, four = median(1, before, 1), median(4, before, 1)
        prompt = median(1, min(before, 8192 - 256), 256)
        print(
            f"{before:5} tokens before: {one:6.1f} ms, four requests {four:6.1f}, 256 tokens {prompt:7.1f}"
        )


if __name__ == "__main__":
    main()
