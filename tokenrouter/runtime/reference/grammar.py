"""Which tokens a grammar allows next: asked anew of llguidance at each step, from the whole output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokenrouter.models.tokenizer import TextTokenizer
from tokenrouter.plan.structs import Plan

Allowed = Callable[[str, Sequence[int]], np.ndarray]  # grammar, output -> [V] bool


class _Spelled:
    bos_token_id = None

    def __init__(self, tokenizer: TextTokenizer, plan: Plan) -> None:
        self.encode = tokenizer.encode
        self.eos_token_id = plan.tokenizer.eos_ids[0]
        self.tokens = [tokenizer.id_to_bytes(id_) for id_ in range(plan.tokenizer.size)]
        self.special_token_ids = list(tokenizer.special_ids)

    def __call__(self, text: Any) -> list[int]:
        return self.encode(text if isinstance(text, str) else text.decode())


def allowed(plan: Plan, base: Path) -> Allowed:
    """Return the function from a grammar and an output to what may follow it."""
    from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper  # noqa: PLC0415

    spelled = TokenizerWrapper(_Spelled(TextTokenizer.of(plan, base), plan))
    ids = LLTokenizer(spelled, n_vocab=plan.tokenizer.size, eos_token=plan.tokenizer.eos_ids)

    def mask(grammar: str, output: Sequence[int]) -> np.ndarray:
        matcher = LLMatcher(ids, grammar)
        assert matcher.consume_tokens(list(output)), matcher.get_error()
        biases = np.frombuffer(matcher.compute_logit_bias(), np.uint8)[: plan.tokenizer.size] > 0
        for token in plan.tokenizer.eos_ids:
            biases[token] = matcher.is_accepting()
        return biases

    return mask
