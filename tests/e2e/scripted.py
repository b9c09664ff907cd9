"""Plans made by hand over models whose logits are written down, for the tests of the reference.

Vocabulary: ids 0..7, end of sequence 7. A scripted model writes what its function says for the ids so far.
"""

from collections.abc import Callable

import numpy as np

from tokenrouter.plan import structs as s
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.reference import Reference, Trace

SIZE, EOS = 8, 7
A, B, C = 0, 1, 2
STAY = s.Rule(when=None, keep=True, go=s.Stay())


def says(token: int, logit: float = 5.0) -> np.ndarray:
    """Logits that prefer one token, in a head with two rows of padding that would win."""
    row = np.zeros(SIZE + 2)
    row[token] = logit
    row[SIZE:] = 50.0
    return row


def model(name: str, context: int) -> s.Model:
    return s.Model(
        name=name,
        use=name,
        fingerprint=name,
        family="llama",
        dtype="float32",
        stop_ids=[EOS],
        prefill="lazy",
        vocab_size=SIZE + 2,
        context=context,
        layers=1,
        hidden_size=1,
        kv_bytes_per_token=1,
        weight_bytes=1,
    )


def make(programs: list[s.Program], start: s.Start | int = A, context: int = 99, **more) -> s.Plan:
    if isinstance(start, int):
        start = s.Start(rules=[s.StartRule(when=None, go=s.To(model=start))])
    n = len(programs)
    return s.Plan(
        plan_version=1,
        min_reader=1,
        producer="by hand",
        policy="test",
        program_hash="",
        tuning_hash="",
        models=[model("abc"[i], context) for i in range(n)],
        tokenizer=s.Tokenizer(digest="", size=SIZE, eos_ids=[EOS], template_from=0),
        start=start,
        programs=programs,
        subservers=[],
        windows=s.Windows(
            max_active=1, table=[[1]] * n, max_wait_ms=1.0, objective="throughput", source="none"
        ),
        memory=s.Memory(page_size=16, budget_bytes=1, capacity_tokens=1024),
        estimates=s.Estimates(source="assumed", by_model=[], cost_per_token=1.0),
        provenance=s.Provenance(source="", digest="", created=""),
        surface=s.Surface(),
        **more,
    )


def run(plan: s.Plan, *models: Callable[[list[int]], np.ndarray], prompt=(1, 2), **more) -> Trace:
    """The trace of one request; a model that is an int always says that token."""
    functions = [(lambda ids, m=m: says(m)) if isinstance(m, int) else m for m in models]
    metadata, params = more.pop("metadata", None), more.pop("params", None)
    sampling = Sampling(**({"max_tokens": 6} | more))
    return Reference(plan, models=functions).generate(list(prompt), sampling, params, metadata)


def const(value: float, unit: str = "count") -> s.Const:
    return s.Const(value=value, unit=unit)


def compare(left: s.Node, sign: str, right: float) -> list[s.Node]:
    return [left, const(right), s.Compare(sign=sign, left=0, right=1)]


def position(sign: str, n: float) -> list[s.Node]:
    return compare(s.Signal(name="position"), sign, n)


def borrow(model: int, n: float, keep: bool = False, until: int | None = None) -> s.Program:
    """Borrow at every position; n is node 0."""
    rules = [s.Rule(when=None, keep=keep, go=s.Borrow(model=model, most=0, until=until))]
    return s.Program(nodes=[const(n)], rules=rules)
