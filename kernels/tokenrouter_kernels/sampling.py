"""Sampling: one token a row from its logits, its own parameters and one uniform draw.

    order    ids by (logit descending, id ascending)
    p        softmax(logits / temperature), in float64, along that order
    kept     a prefix of the order: the first top_k; of that, renormalised, the shortest prefix whose sum reaches top_p (at
             least one id); of that the ids with p >= min_p * p_max
    token    the first id whose running sum of p exceeds u * (sum over the kept), else the last one kept

Temperature 0 takes the largest logit, ties to the lowest id. A banned id has logit -inf and probability 0.

Row by row: no result depends on the other rows of the batch, to the bit.

Sorting a vocabulary costs more than a small model's step, and most draws fall among the likeliest ids: only these are put in
order, and the whole vocabulary for the rows that they do not decide.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tokenrouter_kernels.reduce import row_sum

HEAD = 256  # likeliest ids that are put in order first


class SamplingParams(NamedTuple):
    """One value a row, each [B] on the device of the logits."""

    temperature: Tensor  # float64; 0 is greedy
    top_k: Tensor  # int64; 0 is off
    top_p: Tensor  # float64; 1 is off
    min_p: Tensor  # float64; 0 is off

    @classmethod
    def of(
        cls,
        rows: list[tuple[float, int, float, float]],
        device: torch.device | str = "cpu",
    ) -> SamplingParams:
        """Return the parameters of rows given as (temperature, top_k, top_p, min_p)."""
        temperature, top_k, top_p, min_p = zip(*rows, strict=True) if rows else ((), (), (), ())
        return cls(
            torch.tensor(temperature, dtype=torch.float64, device=device),
            torch.tensor(top_k, dtype=torch.int64, device=device),
            torch.tensor(top_p, dtype=torch.float64, device=device),
            torch.tensor(min_p, dtype=torch.float64, device=device),
        )


def greedy(logits: Tensor) -> Tensor:
    """Return the id of the largest logit, ties to the lowest: [B, V] -> [B] int64."""
    # `argmax` promises no order among ties; the first True of a comparison with the maximum does.
    return (logits == logits.amax(-1, keepdim=True)).to(torch.uint8).argmax(-1)


def sample(logits: Tensor, params: SamplingParams, uniforms: Tensor) -> Tensor:
    """Return a token a row: logits [B, V] over the real vocabulary, uniforms [B] float64 -> [B] int64."""
    tokens = greedy(logits)
    drawn = (params.temperature > 0).nonzero().flatten()
    if drawn.numel():
        rows = SamplingParams(*(values[drawn] for values in params))
        tokens[drawn] = _draw(logits[drawn], rows, uniforms[drawn])
    return tokens


def _draw(logits: Tensor, params: SamplingParams, uniforms: Tensor) -> Tensor:
    if logits.shape[-1] <= 2 * HEAD:
        return _draw_whole(logits, params, uniforms)
    tokens, decided = _draw_head(logits, params, uniforms)
    rest = (~decided).nonzero().flatten()
    if rest.numel():
        rows = SamplingParams(*(values[rest] for values in params))
        tokens[rest] = _draw_whole(logits[rest], rows, uniforms[rest])
    return tokens


def _draw_head(logits: Tensor, params: SamplingParams, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Return tokens, and of which rows the HEAD likeliest ids decide."""
    vocabulary = logits.shape[-1]
    ids = logits.topk(HEAD, dim=-1).indices.sort(dim=-1).values
    z, at = logits.gather(1, ids).sort(dim=-1, descending=True, stable=True)
    order, z = ids.gather(1, at), z.double()
    weight = torch.exp((z - z[:, :1]) / params.temperature[:, None])
    sums = weight.cumsum(-1)

    def sum_of(n: Tensor) -> Tensor:
        """Return the sum of the first n, or of all; of no meaning between."""
        return torch.where(
            n <= HEAD, sums.gather(1, (n.clamp(max=HEAD) - 1)[:, None]).squeeze(1), everything
        )

    top_k = torch.where(params.top_k > 0, params.top_k, vocabulary).clamp(max=vocabulary)
    everything = sums[:, -1]
    if bool((top_k > HEAD).any()):
        everything = row_sum(torch.exp((logits.double() - z[:, :1]) / params.temperature[:, None]))
    # A count of HEAD + 1 is one that the head does not tell.
    within = (sums < (params.top_p * sum_of(top_k))[:, None]).sum(-1) + 1
    kept = torch.where(params.top_p < 1, torch.minimum(top_k, within), top_k)
    likely = (weight >= params.min_p[:, None]).sum(-1)
    likely = torch.where(likely == HEAD, HEAD + 1, likely)
    kept = torch.where(params.min_p > 0, torch.minimum(kept, likely), kept)
    chosen = (sums <= (uniforms * sum_of(kept))[:, None]).sum(-1)
    chosen = torch.minimum(chosen, kept - 1)
    # Among ids that equal the head's last, others may be missing.
    sure = chosen < (z > z[:, -1:]).sum(-1)
    decided = (
        sure & ((kept <= HEAD) | (kept == vocabulary)) & ((top_k <= HEAD) | (top_k == vocabulary))
    )
    return order.gather(1, chosen.clamp(max=HEAD - 1)[:, None]).squeeze(1), decided


def _draw_whole(logits: Tensor, params: SamplingParams, uniforms: Tensor) -> Tensor:
    vocabulary = logits.shape[-1]
    z, order = logits.sort(dim=-1, descending=True, stable=True)
    z = z.double()
    weight = torch.exp((z - z[:, :1]) / params.temperature[:, None])
    sums = weight.cumsum(-1)  # of unnormalised weights; the first is 1

    top_k = torch.where(params.top_k > 0, params.top_k, vocabulary).clamp(max=vocabulary)
    kept = top_k
    nucleus = params.top_p * sums.gather(1, (kept - 1)[:, None]).squeeze(1)
    within = (sums < nucleus[:, None]).sum(-1) + 1
    kept = torch.where(params.top_p < 1, torch.minimum(kept, within), kept)
    likely = (weight >= params.min_p[:, None]).sum(-1)  # p / p_max is the weight itself
    kept = torch.minimum(kept, likely)

    total = sums.gather(1, (kept - 1)[:, None]).squeeze(1)
    # Ids of weight 0 stand last, where u * total < total never leads.
    at = (sums <= (uniforms * total)[:, None]).sum(-1)
    at = torch.minimum(at, kept - 1)
    return order.gather(1, at[:, None]).squeeze(1)
