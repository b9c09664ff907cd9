"""Restricted Python: k mistakes give k diagnostics, each in its place, each with what is allowed, also within one function."""

from itertools import combinations

import pytest

from tokenrouter.dsl.fixes import apply
from tokenrouter.dsl.load import examine

SOUND = """from tokenrouter.lang import at, borrow, case, commit, mix, model, param, policy, retry, stop, test, var

small = model("org/small", cost=1.0)
large = model("org/large", cost=9.5)
tau = param(0.35, unit="nats", within=(0.0, 4.0))
turns = var(0, unit="count")


@policy(start=small, objective="throughput")
class Both:
    @at(small)
    def small_step(step):
        if step.entropy > tau and step.margin < 0.1:
            return retry(large)
        if step.maxprob + step.margin > 1.2 or not step.token == "x":
            return borrow(large, 4, set={turns: turns + 1})
        if turns > 3:
            return commit(then=mix({small: 0.5, large: 0.5}))
        return commit()

    @at(large)
    def large_step(step):
        if step.entropy <= tau:
            return commit(then=small)
        return commit()


test("sure", of=Both, cases=[case(at=small, given={"entropy": 0.1, "margin": 0.5}, expect=commit())])
"""

# By name: what is replaced by what, the code, the exact place, and a part of the help or the message.
MISTAKES = {
    "comprehension": ("step.margin < 0.1", "[x for x in step]", "TR6004", None, "comparisons"),
    "walrus": ("step.entropy > tau", "(z := tau)", "TR6004", "z := tau", "comparisons"),
    "misspelt action": ("retry(large)", "retri(large)", "TR6004", None, "retry"),
    "power": ("step.maxprob + step.margin", "step.maxprob ** 2", "TR6004", None, "+ - * /"),
    "not a signal's call": ('step.token == "x"', "len(small)", "TR6004", None, "mean"),
    "unknown argument": ("set={turns: turns + 1}", "sett={turns: 1}", "TR6006", None, "set"),
    "loop": (
        "        if turns > 3:\n            return commit(then=mix({small: 0.5, large: 0.5}))",
        "        for i in turns:\n            pass",
        "TR6005",
        "for i in turns:\n            pass",
        "if CONDITION",
    ),
    "attribute": ("step.entropy <= tau", "tau.value <= 1", "TR6004", "tau.value", "step.value"),
    "not a model": ("commit(then=small)", "commit(then=3)", "TR6004", "3", ""),
    "unknown property": ("cost=1.0", "price=1.0", "TR6006", None, ""),
    "last return": (
        "        return commit()\n\n\ntest",
        "        return comit()\n\n\ntest",
        "TR6004",
        "comit()",
        "commit",
    ),
    "assignment": (
        "    @at(large)\n    def",
        "    x = 3\n\n    @at(large)\n    def",
        "TR6002",
        "x = 3",
        "@at(MODEL)",
    ),
    "unknown member": ('objective="throughput"', 'objectiv="latency"', "TR6006", None, "objective"),
    "test": ("case(at=small", "cases(at=small", "TR6006", None, "case(...)"),
}
EXACT = {"test": 'cases(at=small, given={"entropy": 0.1, "margin": 0.5}, expect=commit())'}


def planted(names):
    text = SOUND
    for name in names:
        old, new = MISTAKES[name][:2]
        assert old in text, name
        text = text.replace(old, new, 1)
    return text


def told(text):
    found = examine(text, "p.py").diagnostics
    return [(d.code, text[d.span.start : d.span.end], f"{d.message} {d.help}") for d in found]


def expected(names):
    return {
        (MISTAKES[name][2], EXACT.get(name) or MISTAKES[name][3] or MISTAKES[name][1])
        for name in names
    }


def test_the_sound_file_is_clean():
    assert told(SOUND) == []


@pytest.mark.parametrize("name", MISTAKES)
def test_one_mistake_is_told_once_in_its_place_with_what_is_allowed(name):
    found = told(planted([name]))

    assert {(code, place) for code, place, _ in found} == expected([name])
    assert len(found) == 1
    assert MISTAKES[name][4] in found[0][2]


@pytest.mark.parametrize("names", [*combinations(MISTAKES, 2), tuple(MISTAKES)], ids=str)
def test_several_mistakes_are_all_told_and_nothing_else(names):
    found = told(planted(names))

    assert {(code, place) for code, place, _ in found} == expected(names)
    assert len(found) == len(names)


@pytest.mark.parametrize(
    ("old", "new", "places"),
    [
        ("step.entropy > tau and step.margin < 0.1", "f(1) and g(2)", ["f(1)", "g(2)"]),
        ("step.maxprob + step.margin > 1.2", "f(1) + g(2) > h(3)", ["f(1)", "g(2)", "h(3)"]),
        ("retry(large)", "borrow(4, f(1))", ["f(1)"]),
        ("set={turns: turns + 1}", "set={turns: f(1), 3: g(2)}", ["f(1)", "3", "g(2)"]),
        ("{small: 0.5, large: 0.5}", "{3: 0.5, large: f(1)}", ["3", "f(1)"]),
    ],
)
def test_independent_parts_of_one_expression_are_all_told(old, new, places):
    assert sorted(place for _, place, _ in told(SOUND.replace(old, new))) == sorted(places)


def test_statements_behind_a_return_are_told_where_they_begin():
    text = SOUND.replace(
        "            return retry(large)\n", "            return retry(large)\n            x = 1\n"
    )

    assert [(code, place) for code, place, _ in told(text)] == [("TR6005", "x = 1")]


def test_a_long_elif_chain_is_read():
    chain = "        if step.margin < 0.5:\n            return retry(large)\n" + "".join(
        f"        elif step.entropy > {5 - i / 200}:\n            return retry(large)\n"
        for i in range(90)
    )
    head, _, tail = SOUND.partition("        if step.entropy > tau and")

    assert told(head + chain + "        if step.entropy > tau and" + tail) == []


@pytest.mark.parametrize("deep", ["not " * 200 + "True", "1 + " * 400 + "1", "-" * 90 + "1"])
def test_an_expression_without_end_is_one_diagnostic(deep):
    text = SOUND.replace("step.entropy > tau and", f"{deep} > 1 and", 1)

    assert [code for code, _, _ in told(text)] == ["TR0215"]


IMPORT = SOUND.splitlines()[0]
IMPORTS = {  # an import -> the names that are told to be missing
    "whole": (IMPORT, []),
    "one missing": (IMPORT.replace(", retry", ""), ["retry"]),
    "several missing": (IMPORT.replace(" at,", "").replace(", var", ""), ["at", "var"]),
    "a star": ("from tokenrouter.lang import *", []),
    "two imports": (f"{IMPORT.replace(', var', '')}\nfrom tokenrouter.lang import var", []),
    "under another name": (IMPORT.replace("retry", "retry as again"), ["retry"]),
    "in brackets": (IMPORT.replace("import ", "import (\n    ").replace(", var", ",\n)"), ["var"]),
    "none": ("", sorted({*IMPORT.partition("import ")[2].split(", ")} - {"stop"})),
}


@pytest.mark.parametrize("name", IMPORTS)
def test_names_that_are_not_imported_are_one_diagnostic_whose_fix_brings_them_in(name):
    written, missing = IMPORTS[name]
    text = SOUND.replace(IMPORT, written)

    found = examine(text, "p.py").diagnostics

    assert [d.code for d in found] == ["TR6007"] * bool(missing)
    for problem in found:
        assert sorted(problem.message.split("`")[1:-2:2]) == missing
        places = [problem.span, *(label.span for label in problem.labels)]
        assert sorted(text[span.start : span.end] for span in places) == missing
        mended, _ = apply(text, "p.py", [problem])
        assert examine(mended, "p.py").diagnostics == ()


def test_a_name_that_a_file_binds_itself_is_its_own():
    text = SOUND.replace("large", "max_over")  # as the model is called here

    assert examine(text, "p.py").diagnostics == ()


def test_a_name_that_the_module_does_not_have_is_told_where_it_is_imported():
    text = SOUND.replace("import at", "import att as at")

    [problem] = examine(text, "p.py").diagnostics

    assert (problem.code, problem.help) == ("TR6003", "did you mean `at`?")
    assert text[problem.span.start : problem.span.end] == "att as at"
    mended, _ = apply(text, "p.py", [problem], unsafe=True)
    assert examine(mended, "p.py").diagnostics == ()
