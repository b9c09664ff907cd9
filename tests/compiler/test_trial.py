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


def test_handing_the_next_position_to_the_model_where_it_is_means_to_commit():
    stays = outcome(policy(case("large", hir.Action(True, hir.To("large")), entropy=2.1)))
    leaves = outcome(policy(case("large", hir.Action(True, hir.To("large")), entropy=1.0)))

    assert stays.passed and not leaves.passed


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


MAXPROB = hir.SignalRef("maxprob", (), "prob")
TURNS = hir.VarRef("turns", "count")
ONE = hir.SignalRef("count", ("large",), "count")


def compare(sign, left, right):
    return hir.Compare(
        sign, left, hir.Const(float(right), left.unit) if isinstance(right, float | int) else right
    )


def times(by, of):
    return hir.Arith("*", hir.Const(float(by), "number"), of, of.unit)


def part(of, by):
    return hir.Arith("/", of, hir.Const(float(by), "number"), of.unit)


def product(left, right):
    return hir.Arith("*", left, right, left.unit)


def minus(left, right):
    return hir.Arith("-", left, right, left.unit)


def flipped(sign, left, right):
    return hir.Compare(sign, hir.Const(float(left), right.unit), right)


def stay(until, *given, sets=()):
    return hir.Action(False, hir.Borrow("large", hir.Const(8.0, "count"), until), sets)


def until(rules, expected, *given, sets=()):
    """Return the outcome of a case where the rule borrows until one condition and the case expects another."""
    small = (rule(None, stay(rules, sets=sets), "otherwise -> borrow large until ..."),)
    made = policy(hir.Case("small", given, stay(expected)), small=small)
    return outcome(replace(made, vars=(hir.Var("turns", "count", 2.0),)))


X_OR_Y = hir.AnyOf((hir.TokenIn(("x",)), hir.TokenIn(("y",))))
SURE = compare(">", MAXPROB, 0.9)
FLAT = compare("<", ENTROPY, 1)
FIELD = hir.RequestField("level", 3.0, "count")
SAME = {
    "the same": (SURE, SURE),
    "sides exchanged": (SURE, flipped("<", 0.9, MAXPROB)),
    "negated twice": (SURE, hir.Not(compare("<=", MAXPROB, 0.9))),
    "the other order": (hir.AnyOf((SURE, FLAT)), hir.AnyOf((FLAT, SURE))),
    "de Morgan": (hir.AnyOf((SURE, FLAT)), hir.Not(hir.AllOf((hir.Not(FLAT), hir.Not(SURE))))),
    "a part that says nothing more": (SURE, hir.AllOf((SURE, compare(">", MAXPROB, 0.5)))),
    "a part that a law implies": (SURE, hir.AllOf((SURE, compare(">=", MARGIN, 0.8)))),
    "a part that never holds": (SURE, hir.AnyOf((SURE, compare(">", MARGIN, MAXPROB)))),
    "a dial by its value": (compare("<", ENTROPY, TAU), compare("<", ENTROPY, 2)),
    "a variable by its value": (compare(">", ONE, TURNS), compare(">", ONE, 2)),
    "a field by its default": (compare(">", ONE, FIELD), compare(">", ONE, 3)),
    "twice as much on both sides": (compare("<", ENTROPY, 0.5), compare("<", times(2, ENTROPY), 1)),
    "a minus on both sides": (compare("<", ENTROPY, 0.5), compare(">", times(-1, ENTROPY), -0.5)),
    "a difference moved over": (compare(">", MAXPROB, MARGIN), compare(">", minus(MAXPROB, MARGIN), 0)),
    "three terms": (
        compare(">", total(MAXPROB, MARGIN), CHANCE := hir.SignalRef("chance", (), "prob")),
        compare(">", minus(MARGIN, CHANCE), times(-1, MAXPROB)),
    ),
    "rounded": (compare("<", ENTROPY, 0.1 + 0.2), compare("<", ENTROPY, 0.3)),
    "a part of both sides": (compare("<", ENTROPY, 0.5), compare("<", part(ENTROPY, 4), 0.125)),
    "a part by nothing, which is 0": (compare(">", part(ENTROPY, 0), 0.5), compare(">", MARGIN, MAXPROB)),
    "a whole number by its part": (compare("<=", part(ONE, 10), 0.3), compare("<=", ONE, 3)),
    "a product in the other order": (compare("<", product(ENTROPY, MAXPROB), 1), compare("<", product(MAXPROB, ENTROPY), 1)),
    "whole numbers": (compare(">", ONE, 3), compare(">=", ONE, 4)),
    "words in another order": (hir.TokenIn(("x", "y")), hir.TokenIn(("y", "x"))),
    "words one by one": (hir.TokenIn(("x", "y")), X_OR_Y),
}  # fmt: skip
OTHER = {
    "the edge": (SURE, compare(">=", MAXPROB, 0.9)),
    "a little more": (SURE, compare(">", MAXPROB, 0.901)),
    "the other side": (SURE, compare("<", MAXPROB, 0.9)),
    "another signal": (SURE, compare(">", MARGIN, 0.9)),
    "a part more": (SURE, hir.AllOf((SURE, FLAT))),
    "a part less": (hir.AnyOf((SURE, FLAT)), SURE),
    "and for or": (hir.AnyOf((SURE, FLAT)), hir.AllOf((SURE, FLAT))),
    "a part that no law implies": (SURE, hir.AllOf((SURE, compare(">=", MARGIN, 0.81)))),
    "another value of a dial": (compare("<", ENTROPY, TAU), compare("<", ENTROPY, 2.5)),
    "another product": (
        compare("<", product(ENTROPY, MAXPROB), 1),
        compare("<", product(ENTROPY, MARGIN), 1),
    ),
    "another factor": (compare("<", ENTROPY, 0.5), compare("<", times(3, ENTROPY), 1)),
    "the sign of a factor": (compare("<", ENTROPY, 0.5), compare("<", times(-1, ENTROPY), -0.5)),
    "fewer words": (hir.TokenIn(("x", "y")), X),
    "a class for a word": (X, WORD),
    "none": (SURE, None),
    "one": (None, SURE),
}


@pytest.mark.parametrize(("rules", "expected"), SAME.values(), ids=SAME)
def test_an_until_that_is_written_otherwise_and_means_the_same_passes(rules, expected):
    assert until(rules, expected).passed
    assert until(expected, rules).passed


@pytest.mark.parametrize(("rules", "expected"), OTHER.values(), ids=OTHER)
def test_an_until_that_means_something_else_fails_and_shows_both(rules, expected):
    found = until(rules, expected)

    assert not found.passed
    assert found.expected.startswith("borrow large until" if expected else "borrow large for 8")
    assert found.got.startswith("borrow large until" if rules else "borrow large for 8")
    assert found.expected != found.got


def test_an_until_is_compared_at_the_values_of_its_case_and_tells_them():
    below = compare("<", ENTROPY, TAU)

    assert until(below, compare("<", ENTROPY, 0.5), hir.Given(TAU, 0.5)).passed
    found = until(below, compare("<", ENTROPY, 2), hir.Given(TAU, 0.5))
    assert (found.passed, found.expected) == (False, "borrow large until entropy < 2 at most 8")
    assert found.got == "borrow large until entropy < tau at most 8, here until entropy < 0.5"


def test_an_until_is_asked_on_later_steps_so_a_signal_of_this_one_is_not_put_in():
    given = hir.Given(ENTROPY, 0.5)

    assert not until(FLAT, compare("<", ENTROPY, 0.7), given).passed
    assert not until(FLAT, compare("<", ENTROPY, 0.2), given).passed
    prompt = hir.Given(PROMPT, 9.0)  # a stay leaves the prompt as it was
    assert until(compare(">", ONE, PROMPT), compare(">", ONE, 9), prompt).passed


def test_a_failed_case_tells_what_a_variable_was_to_become_and_what_it_becomes():
    small = (rule(None, replace(COMMIT, sets=(hir.Assign("turns", total(TURNS, 3)),)), "..."),)

    def becomes(value):
        expect = replace(COMMIT, sets=(hir.Assign("turns", hir.Const(value, "count")),))
        made = replace(
            policy(case("small", expect), small=small), vars=(hir.Var("turns", "count", 1.0),)
        )
        return outcome(made)

    assert becomes(4.0).passed
    failed = becomes(5.0)
    assert (failed.expected, failed.got) == (
        "commit set turns = 5",
        "commit set turns = turns + 3, here 4",
    )


def test_an_until_reads_a_variable_as_its_rule_sets_it():
    sets = (hir.Assign("turns", total(TURNS, 3)),)
    more = compare(">", ONE, TURNS)

    assert until(more, compare(">", ONE, 5), sets=sets).passed
    assert not until(more, compare(">", ONE, 2), sets=sets).passed
    unknown = (hir.Assign("turns", ONE),)
    assert until(more, more, sets=unknown).passed
    assert not until(more, compare(">", ONE, 2), sets=unknown).passed


@pytest.mark.parametrize(
    ("weights", "passed"),
    [
        ((("small", 0.25), ("large", 0.75)), True),
        ((("large", 0.75), ("small", 0.25)), True),
        ((("large", 0.25), ("small", 0.75)), False),
    ],
)
def test_a_mixture_is_compared_by_its_probabilities(weights, passed):
    rules = hir.Action(True, hir.Mix((("small", 0.25), ("large", 0.75))))
    expected = hir.Action(True, hir.Mix(weights))

    small = (rule(None, rules, "otherwise -> commit then mix"),)

    assert outcome(policy(hir.Case("small", (), expected), small=small)).passed is passed


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
