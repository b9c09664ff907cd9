"""`trc compile --assume`: known shares of rules in place of assumed ones, one by one or from a trace."""

import json

import pytest

from tests.compiler.irs import automaton, cmp, r2r, r_stitch, retry, then
from tests.factories import save_bench
from tokenrouter import cli
from tokenrouter.compiler.assume import check
from tokenrouter.compiler.chain import flow, shares
from tokenrouter.compiler.expr import SignalOf
from tokenrouter.errors import UsageError
from tokenrouter.plan.io import read

POLICY = """route 1
model small { use "small" }
model large { use "large" }
policy p {
  start { when prompt_tokens > 100 -> large  otherwise -> small }
  at small { when entropy > 2 -> borrow large for 1  otherwise -> commit }
  at large { otherwise -> commit then small }
}
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    bench = save_bench(tmp_path_factory.mktemp("bench"))
    path = bench.root / "p.route"
    path.write_text(bench.text(POLICY), encoding="utf-8")
    return path


def compiled(policy, tmp_path, *given):
    words = [word for text in given for word in ("--assume", str(text))]
    out = tmp_path / "plan.json"
    assert cli.main(["compile", str(policy), "--max-active", "6", "-o", str(out), *words]) == 0
    return read(out)


def test_a_given_share_moves_what_is_expected_and_the_rest_keeps_its_proportion():
    found = flow(r2r(), {"small": {0: 0.1}})

    assert found.shares == pytest.approx([0.9, 0.1])
    three = automaton(
        ("a", (cmp(SignalOf("entropy"), ">", 2), retry("b")), (cmp(SignalOf("chance"), "<", 0.5), then("b")), (None, then("b"))),
        ("b", (None, then("a"))),
    )  # fmt: skip
    assert shares(three)[0] == pytest.approx([0.25, 0.375, 0.375])
    assert shares(three, {"a": {1: 0.6}})[0] == pytest.approx([0.16, 0.6, 0.24])


def test_shares_of_a_rule_that_is_sure_leave_the_others_none():
    assert shares(r_stitch(), {"large": {1: 1.0}}) == [[0.25, 0.75], [0.0, 1.0]]


def test_rules_of_which_nothing_is_assumed_share_the_rest_alike():
    always = automaton(("a", (cmp(SignalOf("chance"), "<", 1), then("b")), (None, then("b"))), ("b", (None, then("a"))))  # fmt: skip

    assert shares(always, {"a": {0: 0.5}})[0] == pytest.approx([0.5, 0.5])


def test_estimates_windows_and_prefill_follow_and_the_meaning_does_not(policy, tmp_path):
    assumed = compiled(policy, tmp_path)
    known = compiled(policy, tmp_path, "small.0=1%", "start.0=0")

    assert known.program_hash == assumed.program_hash
    assert known.estimates.rules[0] == [0.01, 0.99]
    assert known.estimates.start == [0.0, 1.0]
    assert known.estimates.by_model[1].share == pytest.approx(0.01, abs=0.002)
    assert known.windows.table != assumed.windows.table
    assert (
        known.estimates.loads[0].by_model[1].utilisation
        < assumed.estimates.loads[0].by_model[1].utilisation
    )


def test_shares_are_counted_in_a_trace_and_one_that_is_told_goes_first(policy, tmp_path):
    tokens = [("small", 1), ("large", None), ("small", 1), ("small", 1), ("large", None)]
    lines = [
        {"position": at, "ms": 10.0 * at, "token": {"model": model, "rule": rule}}
        for at, (model, rule) in enumerate(tokens)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")

    counted = compiled(policy, tmp_path, tmp_path / "t.jsonl")
    told = compiled(policy, tmp_path, tmp_path / "t.jsonl", "small.0=30%")

    assert counted.estimates.rules == [[0.4, 0.6], [1.0]]
    assert counted.estimates.source == "assumed"
    assert told.estimates.rules[0] == [0.3, 0.7]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["small.2=10%"], "`small` has rules 0 to 1"),
        (["larg.0=10%"], "no model `larg`; there are `start`, `small`, `large`"),
        (["small.0=70%", "small.1=0.4"], "sum to 1.1, which is above 1"),
        (["small.0=70%", "small.1=0.2"], "sum to 0.9, not 1"),
        (["small.0=1.1"], "write it as MODEL.RULE=SHARE"),
        (["small=0.1"], "write it as MODEL.RULE=SHARE"),
        (["small.0=e"], "write it as MODEL.RULE=SHARE"),
    ],
)
def test_a_share_that_cannot_be_is_refused_in_a_line(policy, capsys, given, message):
    words = [word for text in given for word in ("--assume", text)]

    assert cli.main(["compile", str(policy), *words]) == 2
    err = capsys.readouterr().err
    assert message in err and len(err.splitlines()) == 1


def test_a_model_without_rules_is_given_none():
    with pytest.raises(UsageError, match="`large` has no rules"):
        check(r2r(), {"large": {0: 0.5}})
