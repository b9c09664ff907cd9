"""Specifications that several tests share, and random ones of every kind that the solvers take."""

import numpy as np
from msgspec.structs import replace

from tokenrouter.throughput.check import check
from tokenrouter.throughput.spec import BusyRates, Spec, SpecError

PAIR = {"step_ms": [6.0, 27.9], "p": [[0.65, 0.35], [1, 0]], "c": [[1, 0], [1, 0]]}


def pair(n, **other):
    """Return the system of the design page's check table."""
    return check(Spec(n=n, **(PAIR | other)))


def random_spec(seed, *, in_turn=False):
    """Return a checked specification whose chain is small; the kinds go round with the seed."""
    rng = np.random.default_rng(seed)
    while True:
        try:
            spec = _draw(rng, seed)
            return check(_in_turn(spec, rng, seed) if in_turn else spec)
        except SpecError:
            continue  # a model that is not reached, or nothing committed: draw again


def _in_turn(spec, rng, seed):
    """Return the same with models in turn; in two of three a step after another model's takes longer, or less long."""
    after = None
    if seed % 3:
        more = rng.integers(-1, 5, len(spec.step_ms))
        after = [
            [s + int(d) for s in steps] if isinstance(steps, list) else steps + int(d)
            for steps, d in zip(spec.step_ms, more, strict=True)
        ]
    return replace(spec, in_turn=True, busy=[], after_ms=after)


def _draw(rng, seed):
    n_models = int(rng.integers(1, 4))
    n = int(rng.integers(1, 7 - n_models))
    size = n_models + (seed % 4 == 1)
    model_of = [*range(n_models), *[n_models - 1] * (size - n_models)]
    p = rng.dirichlet(np.ones(size), size=size) * (rng.random((size, size)) < 0.7)
    p += np.eye(size)[rng.integers(0, size, size)] * 0.2
    p /= p.sum(axis=1, keepdims=True)
    c = rng.choice([0.0, 0.4, 1.0], size=(size, size), p=[0.3, 0.2, 0.5])
    steps = [float(rng.integers(2, 9)) for _ in range(n_models)]
    if seed % 3 == 1:
        steps = [[step + int(rng.integers(0, 3)) * b for b in range(n)] for step in steps]
    busy = []
    if seed % 5 == 2 and n_models > 1:
        busy = [BusyRates(models=[0, 1], rates=[0.5, 0.8])]
    windows = [1] * n_models
    for _ in range(int(rng.integers(0, n))):
        windows[rng.integers(0, n_models)] += 1
    return Spec(
        n=n,
        step_ms=steps,
        p=p.tolist(),
        c=c.tolist(),
        delta_ms=1.0,
        windows=windows,
        busy=busy,
        model_of=model_of,
        entry=rng.dirichlet(np.ones(size)).tolist(),
        mean_output_tokens=float(rng.integers(3, 40)) if seed % 2 else None,
    )
