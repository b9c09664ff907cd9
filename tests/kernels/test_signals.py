"""Signals in torch against their formulas in plain Python, with banned ids, and their independence of the batch."""

import math

import pytest
import torch
from scipy.special import digamma
from tokenrouter_kernels.signals import signal, signals

INF = math.inf
ALL = [
    ("entropy", ()),
    ("entropy_norm", ()),
    ("varentropy", ()),
    ("maxprob", ()),
    ("margin", ()),
    ("mass", (3,)),
    ("mass", (1000,)),
    ("logprob", ()),
    ("rank", ()),
    ("column", (2,)),
    ("aleatoric", (4,)),
    ("epistemic", (4,)),
]


def by_definition(name, args, x, candidate):
    top = max(x)
    total = sum(math.exp(v - top) for v in x)
    p = [math.exp(v - top) / total for v in x]
    surprise = [(q, -math.log(q)) for q in p if q > 0]
    entropy = sum(q * s for q, s in surprise)
    ordered = sorted(p, reverse=True)
    match name:
        case "entropy":
            return entropy
        case "entropy_norm":
            return entropy / math.log(len(x))
        case "varentropy":
            return sum(q * (s - entropy) ** 2 for q, s in surprise)
        case "maxprob":
            return ordered[0]
        case "margin":
            return ordered[0] - ordered[1]
        case "mass":
            return sum(ordered[: args[0]])
        case "logprob":
            return x[candidate] - top - math.log(total)
        case "rank":
            return 1 + sum((-v, i) < (-x[candidate], candidate) for i, v in enumerate(x))
        case "column":
            return 1 / (1 + math.exp(-x[args[0]]))
    evidence = [max(v, 1e-6) for v in sorted(x, reverse=True)[: args[0]]]
    whole = sum(evidence)
    if name == "epistemic":
        return args[0] / (whole + args[0])
    return -sum(e / whole * (digamma(e + 1) - digamma(whole + 1)) for e in evidence)


def some_logits(rows, size, dtype=torch.float32):
    torch.manual_seed(1)
    logits = (
        (4 * torch.randn(rows, size)).round(decimals=1).to(dtype)
    )  # rounded, so that ties occur
    logits[0, 1::2] = -INF
    logits[0, 2] = -3.0
    logits[1, :] = -INF
    logits[1, 2] = 0.5
    logits[2, :] = 700.0  # exp of it overflows
    logits[3, :] = -700.0
    return logits


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("name", "args"), ALL)
@pytest.mark.parametrize("size", [5, 323])
def test_a_signal_is_its_formula_also_where_ids_are_banned(name, args, size, dtype):
    logits = some_logits(9, size, dtype)
    candidates = torch.tensor([2, 2, 4, 0, 1, 2, 3, 4, 0])

    got = signal(name, args, logits, candidates)

    assert got.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    expected = [
        by_definition(name, args, row, c)
        for row, c in zip(logits.double().tolist(), candidates.tolist(), strict=True)
    ]
    torch.testing.assert_close(
        got.double(), torch.tensor(expected, dtype=torch.float64), rtol=2e-5, atol=2e-5
    )


def test_signals_asked_for_together_are_those_asked_for_alone():
    logits = some_logits(6, 101)
    candidates = torch.tensor([2, 2, 0, 1, 50, 100])

    together = signals(ALL, logits, candidates)

    for name, args in ALL:
        assert torch.equal(together[name, args], signal(name, args, logits, candidates)), name


@pytest.mark.parametrize("vocabulary", [323, 49152, 50001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_row_alone_has_the_bits_that_it_has_in_a_crowd(vocabulary, dtype, two_threads):
    torch.manual_seed(2)
    padded = 5 * torch.randn(9, vocabulary + 7, dtype=dtype)
    logits, candidates = padded[:, :vocabulary], torch.arange(9)

    crowd = signals(ALL, logits, candidates)

    for i in range(9):
        alone = signals(ALL, logits[i : i + 1], candidates[i : i + 1])
        for key in ALL:
            assert torch.equal(alone[key], crowd[key][i : i + 1]), key


def test_a_vocabulary_of_one_is_sure_of_itself():
    found = signals(
        [("entropy", ()), ("entropy_norm", ()), ("margin", ()), ("mass", (5,))],
        torch.tensor([[3.0]]),
        torch.tensor([0]),
    )

    assert [float(v) for v in found.values()] == [0.0, 0.0, 1.0, 1.0]


def test_padding_rows_of_the_head_never_matter_once_cut_off():
    logits = torch.tensor([[0.0, 1.0, 2.0, 99.0]])

    got = signal("maxprob", (), logits[:, :3], torch.tensor([0]))

    assert float(got) == pytest.approx(math.exp(2) / (1 + math.e + math.exp(2)), rel=1e-6)
