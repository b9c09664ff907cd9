"""A plan is complete, sealed, holds together, and reads as text."""

from dataclasses import replace

import pytest

from tests.compiler.irs import (
    COMMIT,
    ENTROPY,
    MAXPROB,
    STOP,
    automaton,
    borrow,
    cmp,
    mix,
    r2r,
    r_stitch,
    retry,
    share,
    then,
)
from tests.compiler.plans import facts, plan_of, vocabulary
from tokenrouter.compiler.chain import flow
from tokenrouter.compiler.expr import SignalOf
from tokenrouter.compiler.memory import BudgetError
from tokenrouter.compiler.models import compare
from tokenrouter.compiler.passes.enforce import enforce
from tokenrouter.plan.hash import hashes
from tokenrouter.plan.io import decode, encode
from tokenrouter.plan.show import show
from tokenrouter.plan.verify import verify
from tokenrouter.profile.priors import MEAN_TOKENS

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


LIVES = 1 - 1 / MEAN_TOKENS  # the probability that a kept token is not the last
BORROWS = automaton(("small", (UNSURE, borrow("large", 3)), (None, COMMIT)), ("large",))
# By policy: its one rule that leads to `large`, and how often that must fire for one request in two to come there. With
# h the reach and s = LIVES: h = q + (1 - q) s h where the candidate is dropped, h = s (q + (1 - q) h) where it is kept.
HALF_OF_ALL = {
    "retry": (automaton(("small", (UNSURE, retry("large")), (None, COMMIT)), ("large", (None, COMMIT))), (1 - LIVES) / (2 - LIVES)),
    "borrow": (BORROWS, (1 - LIVES) / (2 - LIVES)),
    "commit then": (automaton(("small", (UNSURE, then("large")), (None, COMMIT)), ("large", (None, COMMIT))), (1 - LIVES) / LIVES),
    "commit then borrow": (automaton(("small", (UNSURE, borrow("large", 3, keep=True)), (None, COMMIT)), ("large",)), (1 - LIVES) / LIVES),
    "mix": (automaton(("small", (UNSURE, mix(large=0.5, small=0.5)), (None, COMMIT)), ("large", (None, COMMIT))), 2 * (1 - LIVES) / LIVES),
    "or stop": (automaton(("small", (UNSURE, retry("large")), (None, STOP)), ("large", (None, COMMIT))), 0.5),
    "stop behind it": (automaton(("small", (UNSURE, retry("large")), (None, COMMIT)), ("large", (None, STOP))), (1 - LIVES) / (2 - LIVES)),
}  # fmt: skip


@pytest.mark.parametrize(("auto", "often"), HALF_OF_ALL.values(), ids=HALF_OF_ALL)
def test_a_model_that_half_of_the_requests_reach_reads_the_prompt_at_admission(auto, often):
    def prefill(share):
        plan = plan_of(auto, given={"small": {0: share}})
        assert [graph.tasks[0].prefill for graph in plan.subservers] == [
            model.prefill for model in plan.models
        ]
        return plan.models[1].prefill

    assert flow(auto, {"small": {0: often}}).reached[1] == pytest.approx(0.5, abs=1e-9)
    assert prefill(often * (1 + 1e-6)) == "eager"
    assert prefill(often * (1 - 1e-6)) == "lazy"


def test_a_model_behind_another_is_reached_by_the_product_of_both():
    auto = automaton(
        ("small", (UNSURE, retry("mid")), (None, STOP)),
        ("mid", (UNSURE, retry("large")), (None, STOP)),
        ("large", (None, COMMIT)),
    )

    def prefills(small, mid):
        plan = plan_of(auto, given={"small": {0: small}, "mid": {0: mid}})
        return [model.prefill for model in plan.models]

    assert prefills(0.8, 0.626) == ["eager", "eager", "eager"]
    assert prefills(0.8, 0.624) == ["eager", "eager", "lazy"]
    assert prefills(0.499, 0.99) == ["eager", "lazy", "lazy"]


def test_a_model_that_requests_start_at_reads_the_prompt_at_admission_however_few_do():
    auto = automaton(
        ("small", (None, COMMIT)), ("large", (None, COMMIT)), start=mix(small=0.999, large=0.001)[1]
    )

    assert [model.prefill for model in plan_of(auto).models] == ["eager", "eager"]


def test_an_enforced_bound_makes_a_model_no_less_reached():
    free = automaton(("small", (None, then("large"))), ("large", (None, COMMIT)))
    bound, _ = enforce(replace(free, claims=(share("enforce", "large", 0.01),)))

    assert plan_of(free).models[1].prefill == plan_of(bound).models[1].prefill == "eager"


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
