"""Our engine with one model and no rules: scheduler, sampling, messages and all."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from worker import serve

import tokenrouter
from tokenrouter import Engine
from tokenrouter.runtime.messages import Sampling

POLICY = """route 1
model only {{ use "{model}" dtype bfloat16 quantize {quantize} }}
policy p {{ start only  at only {{ otherwise -> commit }} }}
"""


def main() -> None:
    """Load and serve."""
    model, quantize = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "only.route"
        file.write_text(POLICY.format(model=model, quantize=quantize))
        plan = tokenrouter.compile(file, max_active=16, kv_budget=256 << 20)
    engine = Engine(plan, Path("/"), max_batch_tokens=2048)

    def run(prompts: list[list[int]], tokens: int) -> tuple[float, float, list[list[int]]]:
        begun = time.perf_counter()
        sampling = Sampling(max_tokens=tokens, temperature=0.0, ignore_eos=True, seed=0)
        outputs = [engine.completions[engine.submit(p, sampling)] for p in prompts]
        while not all(output.tokens for output in outputs):
            engine.step()
        first = time.perf_counter()
        done = sum(len(output.tokens) for output in outputs)
        while engine.step():
            pass
        end = time.perf_counter()
        assert all(len(output.tokens) == tokens for output in outputs)
        assert done == len(prompts), "some wrote on before all had begun"
        return first - begun, end - first, [output.ids for output in outputs]

    serve(run)


main()
