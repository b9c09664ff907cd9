"""Tensor parallelism: one model, its heads and feed-forward shared by the ranks of a group.

    each rank:   y = sum over ranks of out_r(attention_r(qkv_r(x)))      and the same of down_r(silu(gate_r) * up_r)
    logits:      each rank has its rows of the head; their logits are put side by side

Between the sums every rank holds the same x, so norms, rotary angles and the embedding are whole on each, and a rank's pages hold
its own heads only. Where bits must not depend on the batch (deterministic mode), parts are added in rank order: a ring adds
an element in an order that depends on where it lies.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from tokenrouter.runtime.model.linears import Linear
from tokenrouter.runtime.model.weights import Weights

PATIENCE = timedelta(minutes=10)  # of a rank for the others, in one operation

_BY_ROWS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")  # fmt: skip
_BY_COLUMNS = ("self_attn.o_proj", "mlp.down_proj")


class Group:
    """The ranks of one model, and this one among them. They meet at a file that only this user can reach."""

    def __init__(self, rank: int, size: int, meeting: Path) -> None:
        assert 0 <= rank < size, (rank, size)
        self.rank = rank
        self.size = size
        self.meeting = meeting
        self._backend: Any = None  # None before `connect`

    def connect(self, device: torch.device) -> None:
        """Meet the others; all must call it. NCCL joins GPUs, Gloo processors."""
        # Not torch's default group, so that several models can share a process.
        c10d: Any = dist
        store = c10d.FileStore(str(self.meeting), self.size)
        if device.type == "cuda":
            torch.cuda.set_device(device)
            options = c10d.ProcessGroupNCCL.Options()
            self._backend = c10d.ProcessGroupNCCL(store, self.rank, self.size, options)
        else:
            options = c10d.ProcessGroupGloo._Options()
            options._devices = [c10d.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
            options._timeout = PATIENCE
            self._backend = c10d.ProcessGroupGloo(store, self.rank, self.size, options)

    def sum(self, x: Tensor, *, in_order: bool = False) -> Tensor:
        """Return the sum over all ranks, the same on each; x is given up."""
        if in_order:
            parts = self._all(x)
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            return total
        self._backend.allreduce([x]).wait()
        return x

    def beside(self, x: Tensor, width: int) -> Tensor:
        """Return the ranks' columns side by side, cut to `width`: [S, K] -> [S, width]."""
        return torch.cat(self._all(x), -1)[:, :width]

    def _all(self, x: Tensor) -> list[Tensor]:
        x = x.contiguous()
        parts = [torch.empty_like(x) for _ in range(self.size)]
        self._backend.allgather([parts], [x]).wait()
        return parts

    def summed(self, linear: Linear, *, in_order: bool) -> Linear:
        """Return a linear layer whose inputs the ranks share."""
        return lambda x: self.sum(linear(x), in_order=in_order)

    def rows(self, weight: Tensor) -> Tensor:
        """Return this rank's rows of the head; the last rank has zeros where rows run out."""
        each = -(-weight.shape[0] // self.size)
        mine = weight[self.rank * each : (self.rank + 1) * each]
        return functional.pad(mine, (0, 0, 0, each - mine.shape[0]))

    def joined(self, head: Linear, width: int) -> Linear:
        """Return a head of which each rank has its rows."""
        return lambda x: self.beside(head(x), width)


class Shard:
    """What one rank reads of a model's weights."""

    def __init__(self, whole: Weights, group: Group) -> None:
        self.whole = whole
        self.group = group

    def names(self) -> set[str]:
        """Return the names of all tensors; a bias behind a sum is the first rank's."""
        names = self.whole.names()
        if self.group.rank == 0:
            return names
        return {n for n in names if not (n.endswith(".bias") and _part(n) in _BY_COLUMNS)}

    def get(self, name: str) -> Tensor:
        """Return this rank's part of one tensor."""
        tensor = self.whole.get(name)
        if _part(name) in _BY_ROWS:
            return self._mine(tensor, 0)
        if _part(name) in _BY_COLUMNS and not name.endswith(".bias"):
            return self._mine(tensor, 1)
        return tensor

    def _mine(self, tensor: Tensor, axis: int) -> Tensor:
        n, rest = divmod(tensor.shape[axis], self.group.size)
        assert not rest, (tensor.shape, self.group.size)
        return tensor.narrow(axis, self.group.rank * n, n)


def _part(name: str) -> str:
    """Return the part of a layer that a weight belongs to: `self_attn.q_proj` of `model.layers.0.self_attn.q_proj.weight`."""
    return ".".join(name.split(".")[-3:-1])
