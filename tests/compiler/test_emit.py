"""A plan is complete, sealed, holds together, and reads as text."""

import pytest

from tests.compiler.irs import (
    COMMIT,
    ENTROPY,
    MAXPROB,
    automaton,
    borrow,
    cmp,
    mix,
    r2r,
    r_stitch,
    retry,
    then,
)
from tests.compiler.plans import facts, plan_of, vocabulary
from tokenrouter.compiler.expr import SignalOf
from tokenrouter.compiler.memory import BudgetError
from tokenrouter.compiler.models import compare
from tokenrouter.plan.hash import hashes
from tokenrouter.plan.io import decode, encode
from tokenrouter.plan.show import show
from tokenrouter.plan.verify import verify

UNSURE = cmp(ENTROPY, ">", 2)
POLICIES = {
    "r_stitch": r_stitch(),
    "r2r": r2r(),
    "until": automaton(
        ("small", (UNSURE, borrow("large", 8, cmp(MAXPROB, ">", 0.9))), (None, COMMIT)), ("large",)
    ),
    "mixture": automaton(
        *((name, (None, mix(a=0.5, b=0.3, c=0.2))) for name in "abc"),
        start=mix(a=0.5, b=0.3, c=0.2)[1],
    ),
    "alone": automaton(("small", (None, COMMIT))),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_plan_holds_together_and_reads_back(name):
    plan = plan_of(POLICIES[name])

    assert verify(plan) == []
    assert decode(encode(plan).encode()) == plan
    assert (plan.program_hash, plan.tuning_hash) == hashes(plan)


@pytest.mark.parametrize("name", ["r_stitch", "until"])
def test_a_plan_can_be_reviewed(name, golden):
    golden(show(plan_of(POLICIES[name])))


def test_windows_are_one_for_every_number_of_requests():
    plan = plan_of(r_stitch(), max_active=7)

    assert plan.windows.table == [[1] * 7, [1] * 7]
    assert plan.windows.source == "none"


def test_the_kv_budget_is_split_so_that_every_pool_holds_as_many_tokens():
    token = 2 * (2 * 2 * 1 * 4 * 4)  # two models, keys and values, 2 layers, 1 head of 4, float32

    plan = plan_of(r_stitch(), kv_budget=token * 100, max_active=64)

    assert plan.memory.capacity_tokens == 96  # whole pages of 16
    assert [model.kv_bytes_per_token for model in plan.models] == [64, 64]


def test_no_pool_is_larger_than_all_requests_at_their_longest():
    assert plan_of(r_stitch(), kv_budget=1 << 30, max_active=3).memory.capacity_tokens == 3 * 128


def test_a_budget_below_one_page_is_refused_with_what_it_takes():
    with pytest.raises(BudgetError, match="takes 2048 bytes over all models; raise `--kv-budget`"):
        plan_of(r_stitch(), kv_budget=2047)


def test_a_model_that_is_rarely_reached_reads_no_prompt_at_admission():
    rare = cmp(SignalOf("chance"), "<", 0.0001)
    plan = plan_of(
        automaton(("small", (rare, then("large")), (None, COMMIT)), ("large", (None, COMMIT)))
    )

    assert [model.prefill for model in plan.models] == ["eager", "lazy"]
    assert [graph.tasks[0].prefill for graph in plan.subservers] == ["eager", "lazy"]
    assert [model.prefill for model in plan_of(r_stitch()).models] == ["eager", "eager"]


def test_the_meaning_is_the_same_under_any_tuning():
    one, other = plan_of(r_stitch()), plan_of(r_stitch(), max_active=9, max_wait_ms=5.0)

    assert one.program_hash == other.program_hash
    assert one.tuning_hash != other.tuning_hash


def told(a, b):
    auto = automaton(
        ("small", (UNSURE, retry("large")), (None, COMMIT)), ("large", (None, then("small")))
    )
    return [(d.code, d.severity, d.message) for d in compare(auto, [a, b])]


def test_models_of_one_vocabulary_are_fine_whatever_their_padding():
    assert told(facts(), facts(rows=96)) == []


def test_the_first_id_that_differs_is_named():
    table = list(vocabulary().tokens)
    table[17] = "é\n".encode()
    bad_bytes = [*table[:17], b"\xff\xfe", *table[18:]]

    assert told(facts(), facts(tokens=vocabulary(tuple(table)))) == [
        (
            "TR4101",
            "error",
            "the vocabularies of `small` and `large` differ: id 17 is `'t17'` in `small` and `'é\\n'` in `large`",
        )
    ]
    [(_, _, message)] = told(facts(), facts(tokens=vocabulary(tuple(bad_bytes))))
    assert "`b'\\xff\\xfe'` in `large`" in message
    [(_, _, shorter)] = told(facts(), facts(tokens=vocabulary(vocabulary().tokens[:-1])))
    assert "id 59 is `'t59'` in `small` and no token in `large`" in shorter


def test_a_token_that_is_control_in_one_model_only_is_a_difference():
    [(code, _, message)] = told(facts(), facts(tokens=vocabulary(special=(0, 2, 5))))

    assert code == "TR4101"
    assert message.endswith("id 5 is `'t5'` in `small` and `'t5'` (a control token) in `large`")


def test_other_ends_and_templates_are_warnings():
    assert [t[:2] for t in told(facts(), facts(stop_ids=(2, 3)))] == [("TR4102", "warning")]
    assert [t[:2] for t in told(facts(), facts(template=None))] == [("TR4103", "warning")]


def test_a_tokenizer_of_another_model_is_refused():
    assert [t[:2] for t in told(facts(), facts(rows=32))] == [("TR4104", "error")]


def test_the_union_of_ends_ends_a_request():
    plan = plan_of(r_stitch(), found=[facts("a", (2,)), facts("b", (3, 5))])

    assert plan.tokenizer.eos_ids == [2, 3, 5]
    assert [model.stop_ids for model in plan.models] == [[2], [3, 5]]
