"""Words of the next version are refused with what is planned, wherever somebody may try them, in both spellings."""

import pytest

from tokenrouter.dsl.load import examine

ROUTE = """route 1
model small {{ use "s" }}
model large {{ use "l" }}
policy p {{
  start small
  at small {{
    when entropy > 1 -> retry large
    otherwise -> {action}
  }}
  at large {{ otherwise -> commit then small }}
}}
"""
PYTHON = """from tokenrouter.lang import at, borrow, commit, model, policy, retry, {planned}

small = model("s")
large = model("l")


@policy(start=small)
class P:
    @at(small)
    def small_step(step):
        if step.entropy > 1:
            return retry(large)
        return {action}

    @at(large)
    def large_step(step):
        return commit(then=small)
"""
PLANS = {"fuse": "combine", "verify": "check", "probe": "step", "undo": "take back"}
ACTIONS = [
    "fuse small large",
    "fuse {{ small large }}",
    "fuse {{ small, large }}",
    "fuse {{ small: 0.5 large: 0.5 }}",
    "verify large",
    "verify large for 4",
    "probe large",
    "undo 3",
    "undo",
    "commit then fuse small large",
    "commit then verify large",
    "commit then undo 3",
    "borrow fuse for 3",
    "retry verify",
]
CALLS = [
    "fuse(small, large)",
    "fuse({small: 0.5, large: 0.5})",
    "verify(large, 4)",
    "probe(large)",
    "undo(3)",
    "commit(then=fuse(small, large))",
    "commit(then=undo(3))",
    "retry(verify(large))",
    "borrow(probe(large), 3)",
]


def told(text, name):
    found = examine(text, name).diagnostics
    return [(d.code, text[d.span.start : d.span.end], d.help) for d in found if d.code != "TR1301"]


def word(text):
    return next(name for name in PLANS if name in text)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_planned_action_is_told_once_with_what_it_will_do(action):
    ((code, place, help_),) = told(ROUTE.format(action=action.format()), "p.route")

    assert (code, place) == ("TR0205", word(action))
    assert PLANS[place] in help_


@pytest.mark.parametrize("call", CALLS)
def test_a_planned_call_is_told_once_with_what_it_will_do(call):
    ((code, place, help_),) = told(PYTHON.format(action=call, planned=word(call)), "p.py")

    assert (code, place) == ("TR0205", word(call))
    assert PLANS[place] in help_


def test_a_planned_word_that_is_imported_and_not_called_is_told_at_its_import():
    found = told(PYTHON.format(action="commit()", planned=", ".join(PLANS)), "p.py")

    assert {place for code, place, _ in found if code == "TR6003"} == set(PLANS)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize(
    "text",
    [
        'model {name} {{ use "x" }}',
        "param {name}: nats = 1",
        "signal {name} = entropy",
        "policy {name} {{ }}",
        "var {name}: count = 0",
    ],
)
def test_a_planned_word_is_no_name(name, text):
    codes = [code for code, _, _ in told(f"route 1\n{text.format(name=name)}\n", "p.route")]

    assert codes == ["TR0205"]


@pytest.mark.parametrize(
    ("name", "code"), [("undo", "TR0205"), ("fuse", "TR0205"), ("commit", "TR0210")]
)
@pytest.mark.parametrize(
    "text",
    [
        '{name} = model("x")\n',
        '{name} = param(1.0, unit="nats")\n',
        "@signal\ndef {name}(step):\n    return step.entropy\n",
    ],
)
def test_a_word_of_one_spelling_is_no_name_in_the_other(name, code, text):
    found = told(
        f"from tokenrouter.lang import model, param, signal\n\n{text.format(name=name)}", "p.py"
    )

    assert [(c, place) for c, place, _ in found] == [(code, name)]
