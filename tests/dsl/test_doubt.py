"""A mistake hides nothing of what is independent of it, and nothing is told that only follows from it."""

import re

import pytest

from tokenrouter.commands.check import everything
from tokenrouter.dsl.fixes import apply

HEAD = """route 1
model small { use "nowhere/s" }
model large { use "nowhere/l"  cost 4 }
var t: count = 0
"""
DEAD = """policy p {
  start small
  at small { when maxprob > 0.9 and entropy > 3 -> retry large  otherwise -> commit }
  at large { otherwise -> commit then small }
}
"""
OTHER = "policy q { start small at any { when RULE -> commit then large otherwise -> commit } }\n"


def told(text, name="p.route"):
    """Return the errors of a text."""
    return [d.code for d in everything(text, name).diagnostics if d.severity == "error"]


@pytest.mark.parametrize(
    ("beside", "code"),
    [
        (OTHER.replace("RULE", "foo > 1"), "TR1002"),
        (OTHER.replace("RULE", "entropy > > 1"), "TR0201"),
        (OTHER.replace("RULE", "entropy > 0.5 prob"), "TR1101"),
        ("param k: nats = 3 in [0, 1]\n" + OTHER.replace("RULE", "entropy > k"), "TR1105"),
        ('import "not-there.route"\n' + OTHER.replace("RULE", "entropy > far"), "TR1201"),
        ('test "t" for p { at small given entropy = 1 -> }\n', "TR0201"),
        ('test "t" for p { at small given entropy = 1, entropy = 2 -> commit }\n', "TR2701"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_policy_without_a_mistake_is_looked_at_beside_one(beside, code, first):
    parts = [beside, DEAD] if first else [DEAD, beside]

    assert sorted(told(HEAD + "".join(parts))) == sorted([code, "TR2301"])


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("start small", "start smal", "TR1001"),
        ("  at large { otherwise -> commit then small }\n", "", "TR2005"),
        ("-> retry large ", "-> retry large; ", "TR0101"),
        ("commit then small }", "commit then small ", "TR0203"),
    ],
)
def test_of_a_policy_with_a_mistake_nothing_is_told_that_may_follow(old, new, code):
    assert old in DEAD

    assert told(HEAD + DEAD.replace(old, new)) == [code]


def test_where_an_error_stands_outside_of_everything_only_that_is_told():
    assert told(HEAD + DEAD + "when entropy > 1 -> stop\n") == ["TR0201"]


def test_each_case_of_a_test_is_held_against_the_ranges_whatever_the_others_suppose():
    cases = "at small given entropy = 1, entropy = 2 -> commit at small given rank = 0 -> commit"

    assert told(HEAD + DEAD + f'test "t" for p {{ {cases} }}\n') == ["TR2301", "TR2701", "TR2701"]


def test_what_a_missing_otherwise_would_use_is_not_told_to_be_unused():
    text = HEAD.replace("var t: count = 0\n", "") + (
        "policy p { start { when prompt_tokens > 10 -> large } at any { otherwise -> commit } }"
    )

    assert [d.code for d in everything(text, "p.route").diagnostics] == ["TR2001"]


def test_names_of_a_file_that_cannot_be_read_are_not_told_to_be_unknown():
    text = HEAD.replace("route 1\n", 'route 1\nimport "not-there.route"\n') + (
        "policy p { start small at small { when shaky -> retry mid when entropy > tau -> commit set n = 1"
        " otherwise -> commit } }"
    )

    assert told(text) == ["TR1201"]


def test_a_variable_that_is_read_and_set_and_never_declared_is_one_diagnostic():
    text = HEAD + (
        "policy p { start small at any { when turn > 3 -> stop set turn = turn + 1 otherwise -> commit set t = t + 1 } }"
    )

    [problem] = [d for d in everything(text, "p.route").diagnostics if d.severity == "error"]

    assert (problem.code, len(problem.labels)) == ("TR1012", 2)
    assert text[problem.span.start : problem.span.end] == "turn"


@pytest.mark.parametrize(
    ("written", "meant"),
    [("t += 1", "t = t + 1"), ("t -= 1", "t = t - 1"), ("t *= 2", "t = t * 2")],
)
def test_counting_as_elsewhere_is_one_mistake_whose_fix_keeps_the_meaning(written, meant):
    text = (
        HEAD
        + f"policy p {{ start small at any {{ when t > 3 -> stop otherwise -> commit set {written} }} }}"
    )
    found = everything(text, "p.route").diagnostics

    assert [d.code for d in found if d.severity == "error"] == ["TR0104"]
    assert apply(text, "p.route", found)[0] == text
    assert apply(text, "p.route", found, unsafe=True)[0] == text.replace(written, meant)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("t++", "t = t + 1"),
        ("t--", "t = t - 1"),
        ("t ++", "t = t + 1"),
        ("t++, u = 2", "t = t + 1, u = 2"),
    ],
)
def test_counting_by_one_as_elsewhere_is_one_mistake_with_a_fix(written, meant):
    text = (
        HEAD
        + f"policy p {{ start small at any {{ when t > 3 -> stop otherwise -> commit set {written} }} }}"
    )
    found = everything(text, "p.route").diagnostics

    assert [d.code for d in found if d.severity == "error"] == ["TR0104"]
    assert apply(text, "p.route", found)[0] == text.replace(written, meant)


@pytest.mark.parametrize("late", ["import", "model"])
def test_a_version_behind_something_else_is_one_mistake(tmp_path, late):
    (tmp_path / "ok.route").write_text('route 1\nmodel far { use "nowhere/f" }\n')
    first = 'import "ok.route"\n' if late == "import" else 'model far { use "nowhere/f" }\n'
    text = first + "route 1\npolicy p { start far at far { otherwise -> commit } }\n"

    assert told(text, str(tmp_path / "p.route")) == ["TR0201"]


def test_a_unit_that_a_number_has_anyway_is_no_safe_fix_even_where_the_rest_is_lost():
    text = HEAD + DEAD.replace("entropy > 3", "entropy > 3 prob foo bar")
    found = everything(text, "p.route").diagnostics

    assert apply(text, "p.route", found)[0] == text


def test_all_load_signals_of_a_rule_are_named():
    text = HEAD + (
        "policy p { start small at small { when queue(large) < 3 and elapsed > 2 -> retry large otherwise -> commit }"
        " at large { when queue(small) < 2 or elapsed > 9 -> commit then small otherwise -> commit } }"
    )
    loads = [d for d in everything(text, "p.route").diagnostics if d.code == "TR2501"]

    assert [re.findall("`(.*?)`", d.message) for d in loads] == [
        ["queue(large)", "elapsed"],
        ["queue(small)"],
    ]


def test_all_texts_of_the_client_that_a_rule_reads_are_named():
    text = HEAD + (
        'policy p { start small at any { when request.a == "x" or request.b == "y" -> stop otherwise -> commit } }'
    )
    [problem] = [d for d in everything(text, "p.route").diagnostics if d.code == "TR2502"]

    assert re.findall("`(request.*?)`", problem.message) == ["request.a", "request.b"]


def test_a_variable_that_is_set_twice_says_where():
    text = (
        HEAD
        + "policy p { start small at any { when t > 3 -> stop otherwise -> commit set t = t + 1 set t = 3 } }"
    )
    [problem] = [d for d in everything(text, "p.route").diagnostics if d.code == "TR2009"]

    assert problem.help
    assert [text[label.span.start : label.span.end] for label in problem.labels] == [
        "set t = t + 1"
    ]


def test_a_test_supposes_a_head_only_where_it_is_asked():
    text = HEAD.replace(
        "var t: count = 0\n", 'head h { file "h.safetensors" reads small.{hidden} }\n'
    ) + (
        "policy p { start small at any { otherwise -> commit then mix { small: 1 large: 1 } } }"
        ' test "t" for p { at small given h = 0.1 -> commit then mix { small: 1 large: 1 }'
        " at large given h = 0.1 -> commit }"
    )
    found = everything(text, "p.route").diagnostics

    assert [(d.code, text[d.span.start : d.span.end]) for d in found if d.severity == "error"] == [
        ("TR2007", "h")
    ]


PYTHON = """from tokenrouter.lang import at, case, commit, model, param, policy, retry, start, test

small = model("nowhere/s")
large = model("nowhere/l")
tau = param(0.35, unit="nats", within=(0.0, 4.0))


@policy()
class P:
    @start
    def first(self, request):
        if request.prompt_tokens > 100:
            return large
        return small

    @at(small)
    def small_step(self, step):
        if step.entropy > tau:
            return retry(large)
        return commit()

    @at(large)
    def large_step(self, step):
        return commit(then=small)


test("t", of=P, cases=[case(given={"prompt_tokens": 200}, expect=large)])
"""
NAMES = ("at", "case", "commit", "model", "param", "policy", "retry", "start", "test")


def of_module(name):
    """Return the policy with every name of the language read of a module."""
    body = PYTHON.partition("\n")[2]
    words = rf"(?<![\w.])({'|'.join(NAMES)})(?![\w\"=])"
    return re.sub(words, rf"{name}.\g<1>", body)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("import tokenrouter.lang as t", "t"),
        ("import tokenrouter.lang", "tokenrouter.lang"),
        ("from tokenrouter import lang", "lang"),
    ],
)
def test_a_module_that_is_imported_as_a_whole_is_one_mistake_whose_fix_mends_it(written, name):
    assert told(PYTHON, "p.py") == []
    text = written + "\n" + of_module(name)
    found = everything(text, "p.py").diagnostics

    assert [d.code for d in found] == ["TR6003"]
    assert "from tokenrouter.lang import at, case, commit" in found[0].help
    assert told(apply(text, "p.py", found, unsafe=True)[0], "p.py") == []


def test_behind_an_import_of_the_module_other_mistakes_are_told_too():
    text = "import tokenrouter.lang as t\n" + of_module("t").replace("step.entropy", "step.margin")

    assert told(text, "p.py") == ["TR6003", "TR1101"]


@pytest.mark.parametrize("at", ["at=start, ", 'at="start", '])
def test_a_case_of_the_start_rules_is_told_to_have_no_at(at):
    text = PYTHON.replace("case(given", f"case({at}given")
    [problem] = everything(text, "p.py").diagnostics

    assert problem.code == "TR6006"
    assert "leave `at` out" in problem.help


def test_a_start_rule_without_a_model_has_its_condition_checked():
    text = PYTHON.replace(
        "request.prompt_tokens > 100:\n            return large",
        "request.prompt_tokens > tau:\n            pass",
    )

    assert told(text, "p.py") == ["TR1101", "TR6005"]
