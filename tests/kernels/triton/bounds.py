"""Holds kernels in the interpreter to the tensors that they were given: no load or store may touch anything else.

A view is exact: what lies between its rows, or beyond its last one, is not part of it. What is read and written of each tensor is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from triton.runtime import interpreter


class OutOfBoundsError(AssertionError):
    """A kernel touched what it was not given."""


class Memory:
    """The interpreter's own loads and stores, behind a check of their addresses."""

    def __init__(self, real) -> None:
        self.real = real
        self.tensors: list[torch.Tensor] = []
        self._counts: Counter[tuple[str, int]] = Counter()  # elements, by where their tensor begins

    def loaded(self, tensor: torch.Tensor) -> int:
        """Return how many elements of a tensor were loaded, each as often as it was."""
        return self._counts["load", tensor.data_ptr()]

    def stored(self, tensor: torch.Tensor) -> int:
        """Return how many elements of a tensor were stored, likewise."""
        return self._counts["store", tensor.data_ptr()]

    def __getattr__(self, name: str):
        return getattr(self.real, name)

    def load(self, pointers, mask, other, dtype):
        self._check(pointers, mask, "load")
        return self.real.load(pointers, mask, other, dtype)

    def store(self, pointers, values, mask):
        self._check(pointers, mask, "store")
        return self.real.store(pointers, values, mask)

    def atomic_rmw(self, operation, pointers, values, mask, order):
        self._check(pointers, mask, "atomic operation")
        return self.real.atomic_rmw(operation, pointers, values, mask, order)

    def _check(self, pointers, mask, what: str) -> None:
        wanted = np.broadcast_to(mask, pointers.shape).astype(bool)
        addresses = pointers[wanted].astype(np.int64)
        known = np.zeros(addresses.shape, dtype=bool)
        found: dict[int, np.ndarray] = {}
        for tensor in self.tensors:
            inside = _inside(tensor, addresses)
            found[tensor.data_ptr()] = found.get(tensor.data_ptr(), inside) | inside
        for at, inside in found.items():
            known |= inside
            self._counts[what, at] += int(inside.sum())
        if not known.all():
            raise OutOfBoundsError(
                f"{what} of {int((~known).sum())} elements that no argument holds"
            )


def _inside(tensor: torch.Tensor, addresses: np.ndarray) -> np.ndarray:
    """Return which addresses are those of a tensor's elements."""
    rest = addresses - tensor.data_ptr()
    known = rest >= 0
    if not tensor.numel():
        return np.zeros_like(known)
    width = tensor.element_size()
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True), reverse=True):
        if size == 1 or stride == 0:
            continue
        at = rest // (stride * width)
        known &= at < size
        rest = rest - at * (stride * width)
    return known & (rest == 0)


@contextmanager
def checked() -> Iterator[Memory]:
    """Check all that kernels do meanwhile."""
    memory = Memory(interpreter._interpreter)
    prepared = interpreter.GridExecutor._init_args_hst

    def prepare(self, args, kwargs):
        memory.tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        return prepared(self, args, kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_interpreter", memory)
        patch.setattr(interpreter.GridExecutor, "_init_args_hst", prepare)
        yield memory
