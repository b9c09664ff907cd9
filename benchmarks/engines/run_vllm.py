"""vLLM's CPU build, its offline engine."""

from __future__ import annotations

import sys
import time

from vllm import LLM, SamplingParams
from worker import serve


def main() -> None:
    """Load and serve."""
    engine = LLM(
        model=sys.argv[1],
        dtype=sys.argv[2],
        max_model_len=2048,
        max_num_seqs=16,
        enable_prefix_caching=False,
        disable_log_stats=True,
    )

    def generate(prompts: list[list[int]], tokens: int) -> tuple[float, list[list[int]]]:
        sampling = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
        begun = time.perf_counter()
        out = engine.generate([{"prompt_token_ids": p} for p in prompts], sampling, use_tqdm=False)
        seconds = time.perf_counter() - begun
        ids = [list(each.outputs[0].token_ids) for each in out]
        assert all(len(each) == tokens for each in ids)
        return seconds, ids

    def run(prompts: list[list[int]], tokens: int) -> tuple[float, float, list[list[int]]]:
        first, _ = generate(prompts, 1)
        whole, ids = generate(prompts, tokens)
        return first, whole - first, ids

    serve(run)


if __name__ == "__main__":
    main()
