"""A candidate for each row of a step: drawn from its own request's stream, so that nobody else's presence matters."""

from __future__ import annotations

import tokenrouter_kernels as kernels
import torch

from tokenrouter.runtime.row import Key, Output, Row

LOGPROB: Key = ("logprob", ())


def sample(output: Output, rows: list[Row], model: int, signals: list[Key]) -> None:
    """Give each row of an output, all of them and in order, its candidate and the candidate's log probability.

    `signals` are those that the tasks to come will read; the log probability shares their work.
    """
    assert len(rows) == len(output.logits), (len(rows), len(output.logits))
    sampling = [row.sequence.sampling for row in rows]
    if all(each.temperature == 0 for each in sampling):
        output.tokens = kernels.greedy(output.logits)
    else:
        device = output.logits.device
        params = [(each.temperature, each.top_k, each.top_p, each.min_p) for each in sampling]
        positions = [row.sequence.state.position for row in rows]
        uniforms = kernels.uniform(
            kernels.seeds([each.seed for each in sampling], device),
            torch.tensor(positions, device=device),
            model,
            kernels.SAMPLE,
        )
        shapes = kernels.SamplingParams.of(params, device)
        output.tokens = kernels.sample(output.logits, shapes, uniforms)
    output.compute([LOGPROB, *signals])
    tokens, logprobs = output.tokens.tolist(), output.figure(LOGPROB).tolist()
    for row, token, logprob in zip(rows, tokens, logprobs, strict=True):
        row.token, row.logprob = token, logprob
    _name_the_likeliest(output, rows)


def _name_the_likeliest(output: Output, rows: list[Row]) -> None:
    """Give each row that asks for them its most likely tokens; banned ones are none of them."""
    most = max((row.sequence.sampling.top_logprobs for row in rows), default=0)
    if most == 0:
        return
    dtype = torch.promote_types(output.logits.dtype, torch.float32)
    logprobs = torch.log_softmax(output.logits.to(dtype), dim=-1)
    values, ids = logprobs.topk(min(most, logprobs.shape[-1]), dim=-1)  # [B, most]
    for row, row_ids, row_values in zip(rows, ids.tolist(), values.tolist(), strict=True):
        found = [(i, v) for i, v in zip(row_ids, row_values, strict=True) if v > float("-inf")]
        row.top = found[: row.sequence.sampling.top_logprobs]
