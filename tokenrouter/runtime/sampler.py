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
