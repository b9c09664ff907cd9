"""transformers' `generate`, all requests as one batch."""

from __future__ import annotations

import sys
import time

import torch
from transformers import AutoModelForCausalLM
from worker import serve


def main() -> None:
    """Load and serve."""
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=getattr(torch, sys.argv[2]))

    def generate(ids: torch.Tensor, tokens: int) -> tuple[float, list[list[int]]]:
        begun = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                min_new_tokens=tokens,
                max_new_tokens=tokens,
                do_sample=False,
                pad_token_id=0,
            )
        seconds = time.perf_counter() - begun
        assert out.shape[1] == ids.shape[1] + tokens
        return seconds, out[:, ids.shape[1] :].tolist()

    def run(prompts: list[list[int]], tokens: int) -> tuple[float, float, list[list[int]]]:
        ids = torch.tensor(prompts)
        first, _ = generate(ids, 1)
        whole, out = generate(ids, tokens)
        return first, whole - first, out

    serve(run)


main()
