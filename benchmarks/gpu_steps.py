"""Decode steps of real shapes with random weights: eagerly and as graphs, by the number of requests. Needs torch, triton and this repository."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from gpu_clock import Clock
from gpu_figures import Ceilings, StepTime

from tokenrouter.models.config import ModelConfig, read_config
from tokenrouter.models.dummy import tensors
from tokenrouter.models.locate import locate
from tokenrouter.runtime.graphs import Graphs
from tokenrouter.runtime.model import ExtendBatch, Extension, KVCache, LanguageModel
from tokenrouter.runtime.model.capture import capture_for
from tokenrouter.runtime.model.load import load
from tokenrouter.runtime.model.static import Bucket

PAGE, CONTEXT = 16, 1024
LARGE = ("qwen3-32b", "qwen3-8b")  # the first that fits
SPARE = 0.85  # of the free memory that weights and pages may take


def weight_bytes(config: ModelConfig) -> int:
    """Return the bytes of a shape's weights in bf16."""
    total = 0
    for shape in tensors(config).values():
        n = 1
        for side in shape:
            n *= side
        total += n
    return 2 * total


def read_bytes(config: ModelConfig) -> int:
    """Return the bytes of weights that one step reads: an embedding that is no head is looked up, not read."""
    rows = config.vocab_rows * config.hidden * 2
    return weight_bytes(config) - (0 if config.tied else rows)


def page_bytes(config: ModelConfig, requests: int) -> int:
    """Return the bytes of so many requests' pages."""
    return 2 * 2 * config.layers * config.kv_heads * config.head_dim * (CONTEXT + PAGE) * requests


def shapes(free: int, most: int) -> list[str]:
    """Return the shapes to measure: the small one, and the largest of the others that fits."""
    found = ["qwen3-0.6b"]
    for name in LARGE:
        config = read_config(locate(f"dummy:{name}", Path()))
        if weight_bytes(config) + page_bytes(config, most) < SPARE * free:
            return [*found, name]
    return found


def steps(
    name: str, device: torch.device, clock: Clock, ceilings: Ceilings, *, quick: bool
) -> Iterator[StepTime]:
    """Yield the times of one shape."""
    located = locate(f"dummy:{name}", Path())
    model = load(located, "bfloat16", device=device)
    config = read_config(located)
    weights_ms = 1000 * read_bytes(config) / ceilings.bytes_per_s
    sizes = [Bucket(n, 1) for n in ((1, 16) if quick else (1, 2, 4, 8, 16, 32, 64))]
    sizes += [Bucket(16, 4)]
    most = max(bucket.requests for bucket in sizes)
    pages = CONTEXT // PAGE + 1
    cache = model.new_cache(most * pages + 1, PAGE)
    graphs = Graphs(
        model,
        cache,
        capture_for(device),
        sizes,
        pages=pages,
        scratch=most * pages,
        hidden=False,
        device=device,
    )
    for bucket in sizes:
        batch = extensions(bucket, pages)
        yield StepTime(
            shape=name,
            requests=bucket.requests,
            tokens=bucket.tokens,
            context=CONTEXT,
            eager_ms=clock.ms(lambda batch=batch: eager(model, cache, batch, device)),
            graph_ms=clock.ms(lambda batch=batch: graphs.read(batch)),
            weights_ms=weights_ms,
        )


def eager(
    model: LanguageModel, cache: KVCache, batch: list[Extension], device: torch.device
) -> None:
    """Run one step as the runner does where no graph holds it."""
    model.extend(ExtendBatch.of(batch, PAGE, device), cache)


def extensions(bucket: Bucket, pages: int) -> list[Extension]:
    """Return requests at the end of their context."""
    requests, n = bucket
    return [
        Extension(list(range(n)), CONTEXT - n, list(range(at * pages, (at + 1) * pages)))
        for at in range(requests)
    ]
