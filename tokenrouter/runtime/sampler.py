"""A candidate for each row of a step: drawn from its own request's stream, so that nobody else's presence matters."""

from __future__ import annotations

from typing import NamedTuple

import tokenrouter_kernels as kernels
import torch

from tokenrouter.runtime.grammar import GrammarError
from tokenrouter.runtime.masks import Masks
from tokenrouter.runtime.messages import Scores
from tokenrouter.runtime.row import Key, Output, Row
from tokenrouter.runtime.scheduler import Chunk
from tokenrouter.runtime.shaping import is_shaped, shaper_of

LOGPROB: Key = ("logprob", ())


def sample(output: Output, rows: list[Row], model: int, signals: list[Key]) -> None:
    """Give each row of an output, all of them and in order, its candidate and the candidate's log probability.

    `signals` are those that the tasks to come will read; the log probability shares their work.
    """
    assert len(rows) == len(output.logits), (len(rows), len(output.logits))
    sampling = [row.sequence.sampling for row in rows]
    logits = _shaped(output.logits, rows)
    if output.done is not None:
        output.tokens = output.done.tokens
        output.figures[LOGPROB] = output.done.logprobs
    elif all(each.temperature == 0 for each in sampling):
        known = output.looked
        output.tokens = kernels.greedy(logits) if known is None else known.ids
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
        output.tokens = kernels.sample(logits, shapes, uniforms)
    if output.done is None:
        output.compute([LOGPROB, *signals])
    tokens, logprobs = output.tokens.tolist(), output.figure(LOGPROB).tolist()
    for row, token, logprob in zip(rows, tokens, logprobs, strict=True):
        row.token, row.logprob = token, logprob
    _name_the_likeliest(output, rows)


class Shaped(NamedTuple):
    """Which rows of a batch can be sampled from, by place, and why others never can, by request. The rest are barred."""

    kept: list[int]
    refused: dict[int, str]


def shape(rows: list[Row], masks: Masks | None, device: torch.device) -> Shaped:
    """Give each row that asks for it its shaping, where what its grammar lets follow is known."""
    shaped = Shaped([], {})
    if masks is not None:
        masks.settle([row.sequence for row in rows])
    for at, row in enumerate(rows):
        sequence = row.sequence
        if sequence.barred:
            continue
        if is_shaped(sequence.sampling):
            try:
                allowed = None if masks is None else masks.of(sequence)
            except GrammarError as error:
                reason = f"the answer cannot follow its grammar any further: {error}"
                shaped.refused[sequence.request] = reason
                continue
            assert allowed is not None or not sequence.sampling.grammar, "no engine for grammars"
            shaper = shaper_of(sequence)
            shaper.read(sequence.tokens)
            row.shaping = shaper.shaping(device, allowed)
        shaped.kept.append(at)
    return shaped


def _shaped(raw: torch.Tensor, rows: list[Row]) -> torch.Tensor:
    """Return the logits that candidates are drawn from; a row that asks for nothing draws as from the raw ones."""
    if all(row.shaping is None for row in rows):
        return raw
    logits = raw.double() if raw.dtype != torch.float64 else raw.clone()
    for at, row in enumerate(rows):
        if row.shaping is not None:
            kernels.shape(logits[at], row.shaping)
    return logits


def scores(chunk: Chunk, logits: torch.Tensor, deferred: list[int]) -> Scores:
    """Return what the prompt's tokens of a chunk, and the one after it, were worth: logits [n, V] after each."""
    sequence = chunk.sequence
    start = chunk.start + 1
    targets = sequence.tokens[start : min(chunk.start + chunk.n + 1, sequence.n_prompt)]
    output = Output(logits[: len(targets)], None, deferred)
    output.tokens = torch.tensor(targets, dtype=torch.int64, device=logits.device)
    logprobs = output.figure(LOGPROB).tolist()
    most = sequence.sampling.prompt_logprobs or 0
    own = list(zip(targets, logprobs, strict=True))
    tops = _likeliest(output.logits, own, most) if most else [[] for _ in targets]
    places = list(zip(logprobs, tops, strict=True))
    return Scores(request=sequence.request, start=start, places=places)


def _name_the_likeliest(output: Output, rows: list[Row]) -> None:
    """Give each row that asks for them its most likely tokens; banned ones are none of them."""
    most = max((row.sequence.sampling.top_logprobs for row in rows), default=0)
    if most == 0:
        return
    own = [(row.token, row.logprob) for row in rows]
    for row, found in zip(rows, _likeliest(output.logits, own, most), strict=True):
        row.top = found[: row.sequence.sampling.top_logprobs]


def _likeliest(
    logits: torch.Tensor, own: list[tuple[int, float]], most: int
) -> list[list[tuple[int, float]]]:
    """Return the ids and log probabilities of the most likely tokens of each row, best first.

    `own` are a row's own token and its log probability, by which the others are measured: one number has one source.
    """
    values, ids = logits.double().topk(min(most, logits.shape[-1]), dim=-1)  # [B, most]
    found = []
    for row, (token, logprob) in enumerate(own):
        at = float(logits[row, token])
        if at == float("-inf"):  # a token of a prompt that nobody would write
            worth = torch.log_softmax(logits[row].double(), dim=-1)[ids[row]].tolist()
        else:
            worth = [value - at + logprob for value in values[row].tolist()]
        named = zip(ids[row].tolist(), worth, strict=True)
        found.append([(i, logprob if i == token else v) for i, v in named if v > float("-inf")])
    return found
