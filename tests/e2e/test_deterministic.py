"""Deterministic mode, float32: the logits of a text are equal to the bit, alone and in a crowd, whole and in chunks.

So a request is equal to the bit in everything that is told of it, whatever surrounds it, whatever its client wishes of the
choice, and also where the subserver that wrote it died on the way.
"""

from collections import defaultdict

import pytest

from tests.e2e.compare import requests
from tests.e2e.serving import Conditions, serve
from tests.e2e.test_exact import POLICIES
from tokenrouter.runtime.shaping import is_shaped

CONDITIONS = (
    Conditions(),
    Conditions(order=1, capacity=96, chunk=3, windows=1),
    Conditions(order=2, deaths=2, chunk=16, prefill="lazy", crowd=3),
)


def told(completion):
    """All that a client could see of a request."""
    return [
        (t.token, t.model, t.rule, t.logprob, t.signals, t.state, t.finish)
        for t in completion.tokens
    ]


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_a_request_is_equal_to_the_bit_alone_and_in_a_crowd(compiled, decoders, path):
    plan = compiled(path)
    models = decoders(plan.models, "float32", deterministic=True)
    wanted = requests(12, seed=5, most=16, wishes=True)
    assert sum(is_shaped(request.sampling) for request in wanted) >= 6
    bits = defaultdict(dict)
    alone = serve(plan, wanted, Conditions(crowd=1), models, bits)

    for conditions in CONDITIONS:
        served = serve(plan, wanted, conditions, models, bits)

        for one, other in zip(alone.completions, served.completions, strict=True):
            assert told(one) == told(other)
    assert sum(map(len, bits.values())) > 50
