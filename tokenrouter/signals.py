"""The catalogue of signals: name, type, range, and what a step must expose to compute one.

It is the one source for the resolver, the compiler, the runtime, the docs and every editor. Formulas speak of
p = softmax(raw logits over the real vocabulary), V its size, and the candidate: the token just sampled.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from math import inf
from typing import Literal

Unit = Literal["nats", "nats^2", "share", "prob", "number", "count", "ms", "bool", "text", "any"]
Needs = Literal["logits", "candidate", "state", "draw", "load"]
Argument = Literal["int", "model"]


@dataclass(frozen=True, slots=True)
class SignalKind:
    """One signal of the language."""

    name: str
    unit: Unit
    low: float
    high: float
    needs: Needs
    meaning: str
    args: tuple[Argument, ...] = ()
    in_start: bool = False  # whether `start` rules may read it, before any step


_ALL = (
    SignalKind("entropy", "nats", 0.0, inf, "logits", "Shannon entropy of p"),
    SignalKind("entropy_norm", "share", 0.0, 1.0, "logits", "entropy / ln V"),
    SignalKind("varentropy", "nats^2", 0.0, inf, "logits", "variance of -ln p under p"),
    SignalKind("maxprob", "prob", 0.0, 1.0, "logits", "largest probability"),
    SignalKind("margin", "prob", 0.0, 1.0, "logits", "largest minus second largest probability"),
    SignalKind(
        "mass", "prob", 0.0, 1.0, "logits", "probability of the k most likely tokens", ("int",)
    ),
    SignalKind(
        "column", "prob", 0.0, 1.0, "logits", "sigmoid of the raw logit of one id", ("int",)
    ),
    SignalKind(
        "aleatoric",
        "number",
        -inf,
        inf,
        "logits",
        "evidence-style uncertainty over the k largest raw logits",
        ("int",),
    ),
    SignalKind(
        "epistemic",
        "number",
        0.0,
        1.0,
        "logits",
        "k / (sum of the k largest raw logits + k)",
        ("int",),
    ),
    SignalKind("logprob", "nats", -inf, 0.0, "candidate", "ln p of the candidate"),
    SignalKind(
        "rank",
        "count",
        1.0,
        inf,
        "candidate",
        "1 + number of tokens with a larger raw logit, ties to the lower id",
    ),
    SignalKind(
        "chance", "prob", 0.0, 1.0, "draw", "a uniform draw keyed by (seed, position, model)"
    ),
    SignalKind(
        "position", "count", 0.0, inf, "state", "position of the candidate in the output, from 0"
    ),
    SignalKind(
        "since_switch",
        "count",
        0.0,
        inf,
        "state",
        "steps since arrival at this model, 0 on arrival",
    ),
    SignalKind("switches", "count", 0.0, inf, "state", "hand-offs so far"),
    SignalKind("prompt_tokens", "count", 0.0, inf, "state", "length of the prompt", (), True),
    SignalKind(
        "count", "count", 0.0, inf, "state", "committed tokens that a model wrote", ("model",)
    ),
    SignalKind(
        "share",
        "share",
        0.0,
        1.0,
        "state",
        "committed tokens that a model wrote / all; 0/0 is 0",
        ("model",),
    ),
    SignalKind("queue", "count", 0.0, inf, "load", "requests waiting at a model", ("model",), True),
    SignalKind("elapsed", "ms", 0.0, inf, "load", "time since admission"),
)

SIGNALS: dict[str, SignalKind] = {kind.name: kind for kind in _ALL}
CLASSES = ("code", "number", "word", "space", "newline", "punct", "special")
WINDOWS = ("mean", "ewma", "max")
CODE = frozenset("{}[]()<>=;_\\/|&^~@#$%*+`")  # signs of programs


def lexical_class(text: str) -> str:
    """Return the class of a token's text, its spaces at the ends left aside; '' where it has none.

    `newline` is white space with a line break in it, `space` other white space, `number` digits with marks inside,
    `word` letters with marks inside, `code` anything that holds a sign of programs, `punct` only other signs.
    """
    core = text.strip()
    if not core:
        return "" if not text else "newline" if "\n" in text or "\r" in text else "space"
    if "\ufffd" in core:
        return ""
    if any(c in CODE for c in core):
        return "code"
    bare = [c for c in core if c not in "'’-.,:"]
    if bare and all(c.isdigit() for c in bare):
        return "number"
    if bare and all(c.isalpha() or unicodedata.category(c).startswith("M") for c in bare):
        return "word"
    if all(unicodedata.category(c)[0] in "PS" for c in core):
        return "punct"
    return ""
