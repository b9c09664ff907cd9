"""Run a model over pages in the ways a scheduler would, and the same tokens through transformers."""

import json
from pathlib import Path

import torch

from tokenrouter.models import locate
from tokenrouter.runtime.model import ExtendBatch, Extension
from tokenrouter.runtime.model.load import load
from tokenrouter.runtime.model.native import NativeDecoder

PAGE = 4


def patch(path, **changes):
    """Change a saved model's config.json."""
    file = path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return path


def ours(path, dtype="float32", *, deterministic=False):
    return load(locate(str(path), Path()), dtype, deterministic=deterministic)


def native(path, dtype="bfloat16", **more):
    """Return the model as compiled kernels run it."""
    model = load(locate(str(path), path), dtype, **more)
    assert isinstance(model, NativeDecoder)
    return model


def error(got, expected):
    """Return the root of the mean squared difference."""
    return float((got.double() - expected.double()).square().mean().sqrt())


def theirs(path, dtype="float32", attention="sdpa"):
    """Return the model as transformers runs it; its `eager` attention takes softmax in float32 whatever the dtype."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=getattr(torch, dtype), attn_implementation=attention
    )
    return model.eval()


def all_logits(model, tokens):
    """Return transformers' logits after every token, all read at once: [T, V]."""
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0]


class Paged:
    """A model with a cache; each request's pages lie scattered among the others'."""

    def __init__(self, model, requests=8, longest=128):
        self.model = model
        per = -(-longest // PAGE)
        self.cache = model.new_cache(requests * per, PAGE)
        self.pages = [[request + at * requests for at in range(per)] for request in range(requests)]

    def extend(self, *parts, hidden=False, vocabulary=0):
        """Read (request, start, tokens) parts as one batch and return the output."""
        extensions = [
            Extension(tokens, start, self.pages[request]) for request, start, tokens in parts
        ]
        batch = ExtendBatch.of(extensions, PAGE, vocabulary=vocabulary)
        return self.model.extend(batch, self.cache, hidden=hidden)

    def logits(self, *parts):
        return self.extend(*parts).logits


def greedy(paged, request, prompt, n):
    """Return n tokens, decoded one at a time after a prompt read in chunks."""
    at = 0
    for size in (3, 1, 7, 128):
        if at < len(prompt):
            logits = paged.logits((request, at, prompt[at : at + size]))
            at += len(prompt[at : at + size])
    out = []
    for position in range(len(prompt), len(prompt) + n):
        out.append(int(logits[0].argmax()))
        logits = paged.logits((request, position, out[-1:]))
    return out
