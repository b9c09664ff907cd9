"""A generated route kernel on the device: what it decides must be what torch's evaluation of the same program decides.

Plans are read by what pyproject.toml lists, so this case is left out, with a line that says so, where only torch and triton are there.
"""

from __future__ import annotations

from pathlib import Path

import torch
from gpu_cases import Case, Result

POLICY = """route 1
model small {{ use "dummy:{small}"  dtype bfloat16  cost 1 }}
model large {{ use "dummy:{large}"  dtype bfloat16  cost 10 }}
policy decided {{
  start small
  at small {{
    when chance < 0.2                             -> borrow large for 2
    when mass(10) > 0.0001 and rank > 12          -> retry large
    when mean(entropy, 4) > 1 and margin < 0.9 and position > 18 -> borrow large for 1
    otherwise                                     -> commit
  }}
  at large {{
    otherwise -> commit then small
  }}
}}
"""


def route(device: torch.device, small: str, large: str, rows: int, folder: Path) -> Case:
    """Decide for some rows by the kernel of a policy that reads five signals."""
    import tokenrouter
    from tokenrouter.runtime.kernel.router import CompiledRouter
    from tokenrouter.runtime.messages import RouteState, Sampling
    from tokenrouter.runtime.route import Router
    from tokenrouter.runtime.row import Output, Row
    from tokenrouter.runtime.scheduler import Chunk
    from tokenrouter.runtime.sequence import Sequence
    from tokenrouter.runtime.vocabulary import Vocabulary

    policy = folder / "decided.route"
    policy.write_text(POLICY.format(small=small, large=large), encoding="utf-8")
    plan = tokenrouter.compile(policy, max_active=16, kv_budget=1 << 30)
    vocabulary = Vocabulary(plan.tokenizer.size)
    size = plan.tokenizer.size
    logits = 2 * torch.randn(rows, size, device=device)
    tokens = logits.topk(64).indices[torch.arange(rows), torch.arange(rows) % 64]

    def asked() -> list[Row]:
        found = []
        for at in range(rows):
            state = RouteState(owner=0, position=3 * at, counts=[0, 0])
            sampling = Sampling(seed=at)
            sequence = Sequence(at, 4, [1] * 8, sampling, [], {}, state, [1, 1], [8, 8], False)
            row = Row(Chunk(sequence, 7, 1, True))
            row.at = at
            found.append(row)
        return found

    router = CompiledRouter(plan, 0, vocabulary, {}, device)
    inputs = type(router.inputs([]))(*(x.to(device) for x in router.inputs(asked())))

    def run() -> Result:
        decided, values = router.launch(logits, tokens, inputs)
        return decided[:, :3].double(), values

    def reference() -> Result:
        output = Output(logits, None, [])
        output.tokens = tokens
        taken = asked()
        for row in taken:
            row.output = output
        plain = Router(plan, 0, vocabulary, {})
        plain.evaluate(taken)
        plain.decide(taken)
        decisions = [row.decided() for row in taken]
        decided = [[d.rule, d.keep, -1 if d.target is None else d.target] for d in decisions]
        values = taken[0].values
        assert values is not None
        told = [torch.from_numpy(values.numbers(node)) for node in router.layout.values]
        return (
            torch.tensor(decided, dtype=torch.float64, device=device),
            torch.stack([column.double() for column in told], 1).to(device),
        )

    return Case(
        "route program",
        f"{rows} x {size}",
        run,
        reference,
        reference,
        logits.nbytes,
        tolerance=1e-4,
    )
