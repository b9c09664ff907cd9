"""A ragged batch over paged keys and values as the device sees it: three tensors, and two numbers that the host knows.

Results depend on none of the host's numbers, only the size of the grid does; so a captured graph gives them room, and
requests that are not there have length 0.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tokenrouter_kernels.ragged import Ragged


class Paged(NamedTuple):
    """R requests, T new tokens in all, P pages a request at most."""

    offsets: Tensor  # [R + 1] int32: rows of the batch by request
    lengths: (
        Tensor  # [R] int32: context lengths, the new tokens included; 0 where there is no request
    )
    page_table: Tensor  # [R, P] int32
    page_size: int
    most_new: int  # no request has more new tokens

    @classmethod
    def of(cls, ragged: Ragged) -> Paged:
        """Return the layout of a batch, made once a step."""
        found = ragged.made.get(cls)
        if found is None:
            table = ragged.page_table.to(torch.int32)

            def tensor(values: list[int]) -> Tensor:
                return torch.tensor(values, dtype=torch.int32, device=table.device)

            most_new = max(ragged.count(request) for request in range(ragged.requests))
            found = ragged.made[cls] = cls(
                tensor(ragged.offsets), tensor(ragged.lengths), table, ragged.page_size, most_new
            )
        assert isinstance(found, cls)
        return found

    @property
    def room(self) -> int:
        """Tokens that the pages of a request can hold."""
        return self.page_table.shape[1] * self.page_size
