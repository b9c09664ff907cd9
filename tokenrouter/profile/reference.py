"""Step times of a model on a stated machine, where none were measured: the analytic estimate.

    L(b) = layers * overhead + max(weight bytes / bandwidth, 2 * parameters * b / rate) + b * context * KV bytes / bandwidth

INVARIANT: nothing of this machine enters, so that a plan and its hashes are the same wherever it is compiled. Windows
depend on the ratio of the models' times far more than on the times; a profile gives both.
"""

from __future__ import annotations

from typing import NamedTuple

from tokenrouter.plan.structs import Model

CONTEXT = 512  # tokens that a request of the estimate has read
WIDTH = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


class Reference(NamedTuple):
    """A class of machines."""

    text: str  # as plans name it
    bandwidth: float  # bytes/s
    rate: float  # floating-point operations/s
    overhead_ms: float  # of a layer, whatever its size


REFERENCES = {
    "cpu": Reference("a stated CPU: 20 GB/s, 200 GFLOP/s, 0.1 ms a layer", 20e9, 200e9, 0.1),
    "gpu": Reference("a stated GPU: 2 TB/s, 200 TFLOP/s, 0.03 ms a layer", 2e12, 200e12, 0.03),
}


def step_ms(model: Model, machine: Reference, sizes: int) -> list[float]:
    """Return L(b) for b = 1..sizes, ms, to four digits."""
    width = WIDTH[model.dtype]
    weights = model.weight_bytes or _parameters(model) * width
    out = []
    for b in range(1, sizes + 1):
        reading = weights / machine.bandwidth
        computing = 2 * weights / width * b / machine.rate
        cache = b * CONTEXT * model.kv_bytes_per_token / machine.bandwidth
        ms = model.layers * machine.overhead_ms + 1000 * (max(reading, computing) + cache)
        out.append(float(f"{ms:.4g}"))
    return out


def _parameters(model: Model) -> int:
    """Return about how many parameters a decoder of this shape has, where its weights are not at hand."""
    return 12 * model.layers * model.hidden_size**2 + model.vocab_size * model.hidden_size
