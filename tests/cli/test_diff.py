"""`trc diff`: what a reviewer of a change of policy is told, and that it is true of every step."""

import json
import random
import re
from functools import cache

import msgspec
import pytest

from tests.compiler.irs import COMMIT, automaton, borrow, both, cmp, either, retry
from tests.compiler.plans import facts, plan_of
from tests.plan.conftest import plan as plan_fixture
from tokenrouter import cli
from tokenrouter.compiler import changes
from tokenrouter.compiler.analyse import analysed
from tokenrouter.compiler.changes import places
from tokenrouter.compiler.compile import claim_of, provenance
from tokenrouter.compiler.expr import Negation, SignalOf
from tokenrouter.compiler.ir import action
from tokenrouter.dsl.load import parse_text
from tokenrouter.plan import structs as s
from tokenrouter.plan.diff import difference
from tokenrouter.plan.diff_text import text
from tokenrouter.plan.hash import seal
from tokenrouter.plan.io import write

plan = plan_fixture
replace = msgspec.structs.replace

POLICY = """route 1

model small { use "nowhere/small"  cost 1 }
model large { use "nowhere/large"  cost 4 }
param tau: nats = 2.0 in [0, 6]
param turns: count = 4 in [0, 64]

policy p {
  start small
  at small {
    when token is "\\n" -> commit then large
    when entropy > tau -> retry large
    otherwise -> commit
  }
  at large {
    when entropy <= tau -> commit then small
    otherwise -> commit
  }
}
"""


def compiled(source, fingerprints=None):
    resolved = parse_text(source, one=True)
    auto, _ = analysed(resolved)
    named = fingerprints or {}
    found = [facts(named.get(decl.name, f"{decl.name}-weights")) for decl in auto.models]
    made = plan_of(auto, [claim_of(auto, claim) for claim in auto.claims], found)
    return seal(replace(made, provenance=provenance(resolved, auto)))


def told(old, new, **how):
    before = old if isinstance(old, s.Plan) else compiled(old)
    after = new if isinstance(new, s.Plan) else compiled(new, **how)
    return text(difference(before, after, places(before, after)))


def changed(*edits):
    out = POLICY
    for old, new in edits:
        assert old in out, old
        out = out.replace(old, new)
    return out


def test_a_dial_that_was_turned_tells_the_rules_that_fire_more_often(golden):
    golden(told(POLICY, changed(("nats = 2.0", "nats = 1.5"))))


def test_rules_that_came_went_moved_and_changed_are_told_apart(golden):
    old = changed(
        ("    when entropy > tau -> retry large\n", "    when class is code -> retry large\n"
         "    when entropy > tau and margin < 0.2 -> borrow large for 2\n"
         "    when position >= 100 -> stop\n"),
    )  # fmt: skip
    new = changed(
        ('    when token is "\\n" -> commit then large\n', ""),
        ("    when entropy > tau -> retry large\n", "    when position >= 100 -> commit then large\n"
         "    when entropy > tau -> borrow large for 2\n"
         "    when class is code -> retry large\n"
         "    when maxprob > 0.99 -> commit\n"),
    )  # fmt: skip

    golden(told(old, new))


def test_a_guard_that_grew_only_where_no_step_is_fires_on_the_same_steps():
    old = changed(("when entropy > tau ->", "when maxprob < 0.4 ->"))
    new = changed(
        ("when entropy > tau ->", "when maxprob < 0.4 or margin > 0.6 and maxprob < 0.5 ->")
    )

    assert "fires on the same steps" in told(old, new)
    assert "=>" not in told(old, new)


def test_another_order_of_rules_that_exclude_each_other_changes_no_step():
    first = (
        "    when entropy > tau -> retry large\n",
        "    when entropy > 3 -> retry large\n    when entropy < 1 -> stop\n",
    )
    second = (
        "    when entropy > tau -> retry large\n",
        "    when entropy < 1 -> stop\n    when entropy > 3 -> retry large\n",
    )

    page = told(changed(first), changed(second))

    assert "moved: it was rule" in page and "fires on the same steps" in page
    assert "=>" not in page


def test_another_model_another_price_and_another_name_are_told(golden):
    new = changed(("cost 4", "cost 9"), ("small", "tiny"))
    weights = {"tiny": "small-weights", "large": "other weights"}

    golden(told(POLICY, new, fingerprints=weights))


def test_a_model_that_joins_comes_with_its_rules(golden):
    new = changed(
        ("param tau", 'model mid { use "nowhere/mid"  cost 2 }\nparam tau'),
        ("-> retry large", "-> retry mid"),
        ("  at large {", "  at mid {\n    when entropy > 3 -> retry large\n    otherwise -> commit then small\n  }\n  at large {"),
    )  # fmt: skip

    golden(told(POLICY, new))


def test_a_claim_and_the_guards_that_enforce_it_are_told(golden):
    golden(told(POLICY, changed(("policy p {", "policy p {\n  enforce share(large) <= 40%"))))


def bounded(percent, tau):
    end = "    otherwise -> commit\n  }\n}\n"
    claim = end.removesuffix("}\n") + f"  enforce share(large) <= {percent}%\n}}\n"
    return changed(("nats = 2.0", f"nats = {tau}"), (end, claim))


@pytest.mark.parametrize(("tau", "tight", "loose"), [(2.0, 40, 50), (1.0, 40, 50), (2.0, 30, 70)])
def test_a_bound_that_is_only_loosened_makes_more_steps_go_to_its_model(tau, tight, loose):
    old, new = compiled(bounded(tight, 2.0)), compiled(bounded(loose, tau))
    to, back = places(old, new), places(new, old)

    for found, fires in ((to, "more"), (back, "fewer")):
        enforced = [rule.fires for place in found for rule in place.rules if rule.change == "guard"]
        assert enforced == [fires] * 3
    small, _ = to
    assert {shift.before for shift in small.shifts} == {"commit"}
    assert {shift.after for shift in small.shifts} == {"retry large", "commit then large"}
    small, _ = back
    assert {shift.after for shift in small.shifts} == {"commit"}


def test_what_is_told_of_a_bound_can_be():
    found = places(compiled(bounded(40, 2.0)), compiled(bounded(50, 1.0)))
    steps = [
        {"entropy": entropy, "position": position, "count": count, "newline": newline}
        for entropy in (0.5, 1.5, 2.5)
        for position in range(20)
        for count in range(position + 1)
        for newline in (True, False)
    ]
    told_of = [where for place in found for shift in place.shifts for where in shift.where]

    assert len(told_of) == 5
    for where in told_of:
        asked = where.replace("count(large)", "count").replace('token is "\\n"', "newline")
        assert any(eval(asked, {}, step) for step in steps), where


def test_a_start_by_the_length_of_the_prompt_is_told(golden):
    new = changed(("  start small", "  start {\n    when prompt_tokens > 2000 -> large\n    otherwise -> small\n  }"))  # fmt: skip

    golden(told(POLICY, new))


def test_a_stay_whose_length_is_a_dial_is_told_by_its_value():
    stay = ("retry large", "borrow large for turns")
    page = told(changed(stay), changed(stay, ("count = 4", "count = 8")))

    assert "turns: 4 count -> 8 count (up)" in page
    assert "borrow large for 4  =>  borrow large for 8\n      where entropy > 2" in page
    none = told(changed(stay), changed(stay, ("count = 4", "count = 0")))
    assert "borrow large for 4  =>  commit\n      where entropy > 2" in none


def test_too_many_cases_are_said_to_be_too_many():
    wide = " and ".join(f'(token is "{at}" or entropy > {at})' for at in range(10))
    page = told(POLICY, changed(("when entropy > tau ->", f"when {wide} ->")))

    assert "too many cases to say on which steps it acts differently" in page
    assert "rule 1" in page and "fires" not in page.split("at small")[1].split("at large")[0]


def test_equal_plans_are_said_to_be_equal(plan):
    moved = replace(plan.models[0], use="elsewhere/small")
    same = replace(plan, producer="other", models=[moved, plan.models[1]])

    assert re.fullmatch(r"same meaning \(\w{16}\), same tuning \(\w{16}\)\n", told(plan, same))


def test_plans_that_differ_in_windows_only_mean_the_same(plan, golden):
    windows = replace(plan.windows, table=[[1, 1, 1], [1, 2, 3]], source="profile", machine="a box")

    golden(told(seal(plan), seal(replace(plan, windows=windows))))


def test_models_in_another_order_are_another_meaning_and_no_more():
    one = 'model small { use "nowhere/small"  cost 1 }\n'
    two = 'model large { use "nowhere/large"  cost 4 }\n'

    page = told(POLICY, changed((one + two, two + one)))

    assert "the order of models, params, vars or heads" in page and "at small" not in page


def test_the_status_tells_whether_the_meaning_changed(plan, tmp_path, capsys):
    tuned = replace(plan, windows=replace(plan.windows, max_wait_ms=20.0))
    meant = replace(plan, params=[replace(plan.params[0], value=0.5)])
    for name, one in (("old", plan), ("tuned", tuned), ("meant", meant)):
        write(seal(one), tmp_path / f"{name}.json")
    old = str(tmp_path / "old.json")

    assert cli.main(["diff", old, old]) == 0
    assert cli.main(["diff", old, str(tmp_path / "tuned.json")]) == 0
    assert cli.main(["diff", old, str(tmp_path / "meant.json")]) == 1
    capsys.readouterr()
    assert cli.main(["diff", old, str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.startswith("trc diff: ")


def test_json_holds_what_the_text_tells(tmp_path, capsys):
    write(compiled(POLICY), tmp_path / "old.json")
    write(compiled(changed(("nats = 2.0", "nats = 1.5"))), tmp_path / "new.json")

    assert cli.main(["diff", "--json", str(tmp_path / "old.json"), str(tmp_path / "new.json")]) == 1
    found = json.loads(capsys.readouterr().out)

    assert found["same_meaning"] is False and found["same_tuning"] is True
    assert found["meaning"] == [
        {"kind": "param", "name": "tau", "field": "value", "old": "2 nats", "new": "1.5 nats"}
    ]
    small = found["places"][0]
    assert small["at"] == "small" and small["compared"]
    assert [(rule["new"]["rule"], rule["fires"]) for rule in small["rules"]] == [
        (1, "more"),
        (2, "fewer"),
    ]
    assert [(s["before"], s["after"]) for s in small["shifts"]] == [("commit", "retry large")]


TERMS = {
    "entropy": 4,
    "position": 8,
    "chance": 1,
}  # with their ranges; no law but the ranges binds them
GRID = [
    {"entropy": min(e / 2, 4.05), "position": p, "chance": c / 8}  # ln 60 is above 4.05
    for e in range(10)
    for p in range(10)
    for c in range(8)  # a draw is below 1
]  # every bound, and the gaps between them


def random_guard(rng, depth=2):
    if depth == 0 or rng.random() < 0.4:
        name, most = rng.choice(list(TERMS.items()))
        bound = rng.randint(0, 4) * most / 4
        return cmp(SignalOf(name), rng.choice(["<", "<=", ">", ">=", "==", "!="]), bound)
    parts = (random_guard(rng, depth - 1), random_guard(rng, depth - 1))
    return rng.choice([both, either])(*parts) if rng.random() < 0.8 else Negation(parts[0])


def random_rules(rng):
    actions = [retry("large"), borrow("large", 2), borrow("large", 3), COMMIT]
    rules = [(random_guard(rng), rng.choice(actions)) for _ in range(rng.randint(1, 4))]
    return [*rules, (None, COMMIT)]


@cache
def read(condition):
    """A told condition is Python as well as it is English."""
    return compile(condition.replace("every step", "True"), condition, "eval")


def fired(auto, step):
    rules = enumerate(auto.states[0].rules)
    return next(
        at for at, rule in rules if rule.when is None or eval(read(str(rule.when)), {}, step)
    )


@pytest.mark.parametrize("seed", range(25))
def test_what_is_told_of_steps_is_true_of_each_step(seed, monkeypatch):
    """Against Python's own reading of the guards."""
    monkeypatch.setattr(changes, "MOST_WHERE", 10_000)
    rng = random.Random(seed)
    old, new = (automaton(("small", *random_rules(rng)), ("large", (None, COMMIT))) for _ in "ab")
    found = [place for place in places(plan_of(old), plan_of(new)) if place.at == "small"]
    acts = [[action(rule.keep, rule.go) for rule in auto.states[0].rules] for auto in (old, new)]
    took = [(fired(old, step), fired(new, step)) for step in GRID]

    shifts = [shift for place in found for shift in place.shifts]
    for step, (a, b) in zip(GRID, took, strict=True):
        told_of = [
            (shift.before, shift.after)
            for shift in shifts
            if any(eval(read(where), {}, step) for where in shift.where)
        ]
        was, now = acts[0][a], acts[1][b]
        assert told_of == ([(was, now)] if was != now else []), step
    for change in (change for place in found for change in place.rules):
        if change.old is None or change.new is None:
            continue
        was = {at for at, (a, _) in enumerate(took) if a == change.old.rule}
        now = {at for at, (_, b) in enumerate(took) if b == change.new.rule}
        seen = "same" if was == now else "more" if was < now else "fewer" if was > now else "other"
        assert change.fires == seen, change
