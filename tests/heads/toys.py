"""Heads in Python, as a user would bring them."""

import torch
from torch import nn


class Mine(nn.Module):
    """How far the hidden state and the candidate's logit agree, and a sign that it is in eval mode."""

    def forward(self, hidden, logits, candidate):
        assert not self.training
        assert logits is not None and candidate.dtype == torch.int64
        chosen = logits.gather(1, candidate[:, None])[:, 0]
        return torch.sigmoid(hidden.mean(-1) + 4 * chosen.sin())


class Narrow(nn.Module):
    """Reads the hidden state only."""

    def forward(self, hidden, logits, candidate):
        assert logits is None and candidate is None
        return torch.where(hidden[:, 0] > 0, torch.nan, 7.0)


class Flat:
    """Gives one number for all rows."""

    def __call__(self, hidden, logits, candidate):
        return torch.tensor(0.5)


class Failing:
    """Fails on its first step."""

    def __call__(self, hidden, logits, candidate):
        raise ValueError("no\nidea")


class NeedsMore:
    def __init__(self, size):
        self.size = size
