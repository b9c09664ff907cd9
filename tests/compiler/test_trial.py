"""`test` blocks run through the route programs: expected, got, and which rule fired."""

from dataclasses import replace

import pytest

from tokenrouter.compiler import pipeline, trial
from tokenrouter.compiler.lower import lower
from tokenrouter.dsl import hir

ENTROPY = hir.SignalRef("entropy", (), "nats")
MARGIN = hir.SignalRef("margin", (), "prob")
POSITION = hir.SignalRef("position", (), "count")
COUNT = hir.SignalRef("count", ("large",), "count")
SHARE = hir.SignalRef("share", ("large",), "share")
PROMPT = hir.SignalRef("prompt_tokens", (), "count")
TAU = hir.ParamRef("tau", "nats")
COMMIT = hir.Action(True, hir.Stay())
RETRY = hir.Action(False, hir.To("large"))
BACK = hir.Action(True, hir.To("small"))


def gt(left, right):
    return hir.Compare(
        ">", left, right if not isinstance(right, float) else hir.Const(right, left.unit)
    )


def rule(when, action, text):
    return hir.Rule(when, action, text=text)


def policy(*cases, small=None, claims=(), start=None):
    small = small or (
        rule(hir.AllOf((gt(ENTROPY, TAU), gt(MARGIN, 0.1))), RETRY, "when entropy > tau and margin > 0.1 -> retry large"),
        rule(None, COMMIT, "otherwise -> commit"),
    )  # fmt: skip
    large = (
        rule(hir.Compare("<=", ENTROPY, TAU), BACK, "when entropy <= tau -> commit then small"),
        rule(None, COMMIT, "otherwise -> commit"),
    )
    return hir.Policy(
        name="p",
        models=(hir.Model("small", "s"), hir.Model("large", "l")),
        start=start or (hir.StartRule(None, hir.To("small")),),
        blocks=(hir.Block("small", small), hir.Block("large", large)),
        params=(hir.Param("tau", "nats", 2.0, 0.0, 6.0),),
        claims=tuple(claims),
        tests=(hir.Test("t", tuple(cases)),),
    )


def case(model, expect, **given):
    signals = {"entropy": ENTROPY, "margin": MARGIN, "position": POSITION, "count": COUNT, "share": SHARE, "tau": TAU, "prompt": PROMPT}  # fmt: skip
    said = tuple(hir.Given(signals[name], value) for name, value in given.items())
    return hir.Case(model, said, expect)


def outcome(made):
    auto, _ = pipeline.run(lower(made))
    [found] = trial.run(auto, made)
    return found


@pytest.mark.parametrize(
    ("made", "passed", "got"),
    [
        (case("small", RETRY, entropy=3.0, margin=0.2), True, "retry large"),
        (case("small", COMMIT, entropy=3.0, margin=0.2), False, "retry large"),
        (case("small", COMMIT, entropy=1.0), True, "commit"),
        (case("small", COMMIT, margin=0.0), True, "commit"),
        (case("small", RETRY, entropy=1.0, tau=0.5, margin=0.2), True, "retry large"),
        (case("large", BACK, entropy=2.0), True, "commit then small"),
        (case("large", COMMIT, entropy=2.1), True, "commit"),
    ],
)
def test_a_case_passes_where_the_rule_that_fires_does_what_it_expects(made, passed, got):
    found = outcome(policy(made))

    assert (found.passed, found.got) == (passed, got)


def test_a_case_that_leaves_a_guard_open_says_what_to_give():
    found = outcome(policy(case("small", RETRY, entropy=3.0)))

    assert not found.passed
    assert found.got == "nothing, since the case does not give `margin`"


def test_a_failed_case_names_the_rule_that_fired():
    found = outcome(policy(case("small", RETRY, entropy=1.0)))

    assert (found.expected, found.got, found.rule) == ("retry large", "commit", 1)
    assert found.text == "otherwise -> commit"


ENFORCE = hir.Claim("enforce", "share", "large", 0.4)


@pytest.mark.parametrize(
    ("given", "got"),
    [
        ({}, "retry large"),
        ({"share": 0.3}, "retry large"),
        ({"share": 0.5}, "commit"),
        ({"count": 3, "position": 10}, "retry large"),
        ({"count": 4, "position": 10}, "commit"),
        ({"share": 0.4, "position": 10}, "commit"),
    ],
)
def test_enforced_bounds_count_as_kept_unless_the_case_gives_counts(given, got):
    found = outcome(
        policy(case("small", RETRY, entropy=3.0, margin=0.2, **given), claims=[ENFORCE])
    )

    assert found.got == got


def test_a_window_holds_this_step_only_unless_it_is_given():
    mean = hir.Window("mean", ENTROPY, 8, "nats")
    small = (
        rule(gt(mean, 2.0), RETRY, "when mean(entropy, 8) > 2 -> retry large"),
        rule(None, COMMIT, ""),
    )

    one = outcome(policy(case("small", RETRY, entropy=3.0), small=small))
    given = hir.Case("small", (hir.Given(mean, 1.0), hir.Given(ENTROPY, 3.0)), COMMIT)

    assert one.passed
    assert outcome(policy(given, small=small)).passed


def test_a_borrow_below_one_token_passes_its_rule_over():
    n = hir.Arith("-", COUNT, hir.Const(4.0, "count"), "count")
    borrow = hir.Action(False, hir.Borrow("large", n))
    small = (rule(gt(ENTROPY, 2.0), borrow, "when entropy > 2 -> borrow"), rule(None, COMMIT, ""))

    assert outcome(policy(case("small", borrow, entropy=3.0, count=5), small=small)).passed
    assert outcome(policy(case("small", COMMIT, entropy=3.0, count=4), small=small)).passed
    open_ = outcome(policy(case("small", COMMIT, entropy=3.0), small=small))
    assert open_.got == "nothing, since the case does not give `count(large)`"


def test_the_start_is_tested_too():
    start = (
        hir.StartRule(gt(PROMPT, 100.0), hir.To("large")),
        hir.StartRule(None, hir.To("small")),
    )
    large = hir.Action(True, hir.To("large"))

    assert outcome(policy(case(None, large, prompt=200), start=start)).passed
    assert not outcome(policy(case(None, large, prompt=50), start=start)).passed


def test_coverage_counts_the_passed_cases_that_fire_each_rule():
    made = policy(
        case("small", RETRY, entropy=3.0, margin=0.2),
        case("small", RETRY, entropy=1.0),
        case("large", BACK, entropy=2.0),
    )
    auto, _ = pipeline.run(lower(made))

    outcomes = list(trial.run(auto, made))

    assert [(model, n) for model, _, n in trial.coverage(auto, outcomes)] == [
        ("small", 1),
        ("small", 0),
        ("large", 1),
        ("large", 0),
    ]


def test_a_model_without_rules_has_nothing_to_test():
    lender = policy(case("large", COMMIT, entropy=1.0))
    small = (rule(gt(ENTROPY, 2.0), hir.Action(False, hir.Borrow("large", hir.Const(1.0, "count"))), ""), rule(None, COMMIT, ""))  # fmt: skip
    lender = replace(lender, blocks=(hir.Block("small", small), hir.Block("large", ())))

    assert outcome(lender).got == "nothing: `large` has no rules"


X, WORD = hir.TokenIn(("x",)), hir.ClassIs("word")


@pytest.mark.parametrize(
    ("given", "guard", "got"),
    [
        (hir.TokenIn(("x",)), hir.TokenIn(("x", "y")), "retry large"),
        (hir.TokenIn(("x",)), hir.TokenIn(("y",)), "commit"),
        (hir.TokenIn((" word",)), WORD, "retry large"),
        (hir.TokenIn((" 42",)), WORD, "commit"),
        (hir.TokenIn(("x",)), hir.AllOf((WORD, hir.Not(hir.TokenIn(("y",))))), "retry large"),
        (WORD, hir.ClassIs("number"), "commit"),
        (WORD, hir.TokenIn(("42",)), "commit"),
        (WORD, X, 'nothing, since the case does not give `token is "x"`'),
        (hir.TokenIn(("x", "42")), WORD, "nothing, since the case does not give `class is word`"),
    ],
)
def test_a_given_token_answers_every_question_about_tokens_and_classes(given, guard, got):
    small = (rule(guard, RETRY, "when ... -> retry large"), rule(None, COMMIT, "otherwise"))
    made = hir.Case("small", (hir.Given(given, True),), COMMIT)

    assert outcome(policy(made, small=small)).got == got


K = hir.ParamRef("k", "count")


def borrowing(most, keep=False):
    return hir.Action(keep, hir.Borrow("large", most))


def total(left, right):
    made = (hir.Const(float(x), "count") if isinstance(x, int) else x for x in (left, right))
    return hir.Arith("+", *made, "count")


def lending(expect, *given):
    """Return the outcome of a case where `small` borrows `k + 1` tokens, k being 3."""
    small = (rule(None, borrowing(total(K, 1)), "otherwise -> borrow large for k + 1"),)
    made = policy(hir.Case("small", given, expect), small=small)
    return outcome(replace(made, params=(*made.params, hir.Param("k", "count", 3.0))))


@pytest.mark.parametrize(
    ("length", "given"),
    [
        (total(K, 1), ()),
        (total(1, K), ()),
        (hir.Const(4.0, "count"), ()),
        (total(2, 2), ()),
        (hir.Const(7.0, "count"), (hir.Given(K, 6.0),)),
        (total(K, 1), (hir.Given(K, 6.0),)),
    ],
)
def test_the_length_of_a_stay_is_compared_by_its_worth(length, given):
    assert lending(borrowing(length), *given).passed


@pytest.mark.parametrize(
    ("expect", "given", "here"),
    [
        (borrowing(hir.Const(5.0, "count")), (), ", here 4"),
        (borrowing(hir.Const(4.0, "count")), (hir.Given(K, 6.0),), ", here 7"),
        (borrowing(hir.Const(4.0, "count"), keep=True), (), ", here 4"),
        (COMMIT, (), ""),
    ],
)
def test_a_stay_of_another_worth_fails_and_tells_the_worth(expect, given, here):
    found = lending(expect, *given)

    assert (found.passed, found.got) == (False, f"borrow large for k + 1{here}")


def test_what_a_rule_sets_is_compared_by_its_worth():
    turns = hir.VarRef("turns", "count")
    sets = (hir.Assign("turns", total(turns, K)),)
    small = (rule(None, hir.Action(True, hir.Stay(), sets), ""),)

    def passed(worth):
        expect = hir.Action(True, hir.Stay(), (hir.Assign("turns", hir.Const(worth, "count")),))
        made = policy(hir.Case("small", (hir.Given(turns, 4.0),), expect), small=small)
        more = (*made.params, hir.Param("k", "count", 3.0))
        return outcome(replace(made, params=more, vars=(hir.Var("turns", "count", 0.0),))).passed

    assert passed(7.0)
    assert not passed(6.0)


@pytest.mark.parametrize(
    ("mean", "got"), [(3.0, "nothing, since the case does not give `margin`"), (1.0, "commit")]
)
def test_a_window_that_is_given_is_not_asked_for_its_signal(mean, got):
    window = hir.Window("mean", ENTROPY, 8, "nats")
    when = hir.AllOf((gt(window, 2.0), gt(MARGIN, 0.1)))
    small = (rule(when, RETRY, "when ..."), rule(None, COMMIT, ""))

    found = outcome(policy(hir.Case("small", (hir.Given(window, mean),), COMMIT), small=small))

    assert found.got == got


def test_only_what_is_open_of_a_guard_is_asked_for():
    when = hir.AllOf((hir.AnyOf((gt(ENTROPY, 2.0), gt(POSITION, 4.0))), gt(MARGIN, 0.1)))
    small = (rule(when, RETRY, "when ..."), rule(None, COMMIT, ""))

    found = outcome(policy(case("small", RETRY, entropy=3.0), small=small))

    assert found.got == "nothing, since the case does not give `margin`"
