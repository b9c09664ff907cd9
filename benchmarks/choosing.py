"""What comes of logits beside a step of the model: candidates, their log probabilities and signals, by number of rows.

    python benchmarks/choosing.py                           in compiled kernels, where this machine has them
    TOKENROUTER_NATIVE=0 python benchmarks/choosing.py      in torch

V = 49152, one thread, logits as spread as a language model's; medians, ms of a step.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import tokenrouter_kernels as kernels
import torch

VOCABULARY = 49152
ROWS = (1, 4, 8, 16)
STEPS = 60


def main() -> None:
    """Time and print."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    torch.set_num_threads(1)
    print(f"{'rows':42} {'  '.join(f'{n:6}' for n in ROWS)}")
    for name, work in WORK.items():
        print(f"{name:42} {'  '.join(f'{timed(work, n):6.2f}' for n in ROWS)}")


def timed(work: Callable[[torch.Tensor], object], rows: int) -> float:
    """Return the median time of some work over fresh logits."""
    torch.manual_seed(0)
    some = [4 * torch.randn(rows, VOCABULARY) for _ in range(4)]
    took = []
    for at in range(STEPS):
        begun = time.perf_counter()
        work(some[at % len(some)])
        took.append(1000 * (time.perf_counter() - begun))
    return statistics.median(took[len(some) :])


def greedy(logits: torch.Tensor) -> None:
    """The likeliest ids with their log probabilities and entropies."""
    kernels.signals([("logprob", ()), ("entropy", ())], logits, kernels.greedy(logits))


def draws(top_k: int, top_p: float) -> Callable[[torch.Tensor], object]:
    """Return what draws at temperature 1."""

    def draw(logits: torch.Tensor) -> None:
        rows = len(logits)
        params = kernels.SamplingParams.of([(1.0, top_k, top_p, 0.0)] * rows)
        at = torch.arange(rows)
        uniforms = kernels.uniform(kernels.seeds(list(range(rows))), at, 0, kernels.SAMPLE)
        tokens = kernels.sample(logits, params, uniforms)
        kernels.signals([("logprob", ()), ("entropy", ())], logits, tokens)

    return draw


WORK = {
    "greedy, log probability, entropy": greedy,
    "drawn, log probability, entropy": draws(0, 1.0),
    "drawn with top_k 40, the same": draws(40, 1.0),
    "drawn with top_p 0.9, the same": draws(0, 0.9),
}


if __name__ == "__main__":
    main()
