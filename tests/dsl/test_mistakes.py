"""k independent mistakes give k diagnostics, in their places, and nothing about their consequences."""

import re
from itertools import combinations_with_replacement

import pytest

from tests.dsl.policies import HEAD, PING_PONG
from tokenrouter.commands.check import everything
from tokenrouter.dsl.fixes import apply
from tokenrouter.dsl.load import check_source
from tokenrouter.dsl.source import Source

PING = PING_PONG.replace("NAME", "p")


def found(text):
    return [(d.code, d.span.line) for d in everything(text, "p.route").diagnostics]


def test_a_sound_policy_has_no_findings():
    assert found(HEAD + PING) == []


MISTAKES = [
    ("route 1", "", "TR0208"),
    ('use "s" }', 'use "s" cots 1 }', "TR1004"),
    ("[0, 4]", "[0, 4", "TR0202"),
    ("start small", "strt small", "TR0213"),
    ("entropy > tau", "entropy > > tau", "TR0201"),
    ("-> commit\n  }\n  at", "-> comit\n  }\n  at", "TR0212"),
    ("entropy <= tau", "entropy = tau", "TR0206"),
    ("-> commit then", "commit then", "TR0202"),
    ("    otherwise -> commit\n  }\n}", "    otherwise -> commit; \n  }\n}", "TR0101"),
]


@pytest.mark.parametrize(("good", "bad", "code"), MISTAKES, ids=[m[2] + m[0][:9] for m in MISTAKES])
def test_one_mistake_gives_one_diagnostic(good, bad, code):
    text = HEAD + PING
    assert good in text

    assert [c for c, _ in found(text.replace(good, bad, 1))] == [code]


def test_independent_mistakes_are_all_told_and_nothing_else():
    text = HEAD + PING
    for good, bad, _ in MISTAKES:
        text = text.replace(good, bad, 1)

    assert sorted(code for code, _ in found(text)) == sorted(code for _, _, code in MISTAKES)


def test_many_broken_rules_cost_one_diagnostic_each():
    rules = "".join(
        f"    when entropy > > {i} -> stop\n    when margin < {i}% -> stop\n" for i in range(1, 50)
    )
    text = HEAD + PING.replace("    otherwise -> commit\n", rules + "    otherwise -> commit\n", 1)

    codes = [code for code, _ in found(text)]

    assert codes == ["TR0201"] * 49


def test_a_misspelt_model_is_one_diagnostic_with_all_its_places():
    text = HEAD + PING.replace("large", "larg")

    [problem] = check_source(text)

    assert problem.code == "TR1001"
    assert [s.line for s in (problem.span, *(label.span for label in problem.labels))] == [11, 14]
    assert problem.help == "did you mean `large`?"


def test_five_uses_of_a_misspelt_model_are_five_places():
    rules = "".join(f"    when entropy > {i} -> retry larg\n" for i in (9, 8, 7, 6, 5))
    text = HEAD + PING.replace("    otherwise -> commit\n", rules + "    otherwise -> commit\n", 1)

    [problem] = check_source(text)

    assert (problem.code, len(problem.labels)) == ("TR1001", 4)
    assert len(problem.fix.edits) == 5


def test_a_lost_declaration_has_no_consequences():
    assert [c for c, _ in found((HEAD + PING).replace("model large {", "model large [ {"))] == [
        "TR0201"
    ]
    assert [c for c, _ in found((HEAD + PING).replace("param tau:", "param tau; :"))] == ["TR0101"]
    assert [c for c, _ in found((HEAD + PING).replace("param tau:", "param [tau:"))] == ["TR0201"]


DECLARED = {  # by kind: a declaration of `q`, and a rule that uses it so
    "model": ('model q { use "q" }', "when count(q) > 3 -> borrow q for 2"),
    "param": ("param q: nats = 0.5", "when entropy > q -> retry large"),
    "var": ("var q: count = 0", "when q > 3 -> retry large set q = 0"),
    "signal": ("signal q = margin", "when q < 0.1 -> retry large"),
    "head": ('head q { file "q" reads small.{hidden} }', "when q < 0.1 -> retry large"),
}


@pytest.mark.parametrize("second", DECLARED)
@pytest.mark.parametrize("first", DECLARED)
def test_a_name_of_two_things_is_told_once_and_not_at_its_uses(first, second):
    names = "".join(f"{DECLARED[kind][0]}\n" for kind in (first, second))
    rules = "".join(f"    {DECLARED[kind][1]}\n" for kind in (first, second))
    text = (
        HEAD
        + names
        + PING.replace("    otherwise -> commit\n", rules + "    otherwise -> commit\n", 1)
    )

    assert [code for code, _ in found(text)] == ["TR1006"]


def test_a_name_that_an_import_declares_otherwise_is_told_once(tmp_path):
    (tmp_path / "other.route").write_text("route 1\nparam large: nats = 1\n", encoding="utf-8")
    text = (HEAD + PING).replace("route 1\n", 'route 1\nimport "other.route"\n', 1)

    assert [d.code for d in check_source(text, str(tmp_path / "p.route"))] == ["TR1006"]


# By name: what is replaced by what, and the codes besides that of the string, which is not closed.
UNCLOSED = {
    "in a rule": ("when entropy > tau -> retry large", 'when token is "abc -> commit', []),
    "in a set": ("when entropy > tau -> retry large", 'when token in {"abc, "d"} -> stop', []),
    "last of a set": ("when entropy > tau -> retry large", 'when token in {"a", "d} -> stop', []),
    "with the brace": ('{ use "s" }', '{ use "s }', []),
    "without a brace": ('{ use "s" }', '{ use "s', []),
    "without its beginning": ('{ use "s" }', '{ use s" }', []),
    "with two braces": ("policy p {", 'head h { file "h reads small.{hidden} }\npolicy p {', []),
    "on a line of their own": ('{ use "s" }', '{\n  use "s\n}', []),
    "in an import": ("model small", 'import "a.route\nmodel small', ["TR1201"]),
    "then a mistake": ("policy p {", 'test "a for p {\n at small -> commit\n}\nmodle x { use "x" }\npolicy p {', ["TR0213"]),
    "as the last line": ("policy p {", 'test "unclosed for p { at small given entropy = 3 -> stop }\npolicy p {', []),
}  # fmt: skip


@pytest.mark.parametrize("name", UNCLOSED)
def test_a_string_that_is_not_closed_is_told_once(name):
    old, new, more = UNCLOSED[name]
    text = HEAD + PING
    assert old in text

    assert sorted(code for code, _ in found(text.replace(old, new, 1))) == sorted(["TR0102", *more])


def test_blocks_that_an_unclosed_string_swallows_the_end_of_go_on_behind_it():
    text = HEAD + (
        'policy p { start small at small { when token is "abc -> retry large }\n'
        " at large { otherwise -> comit } }\n"
    )

    assert found(text) == [("TR0102", 8), ("TR0212", 9)]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ('}\nmodle q { use "x" }\n' + PING, ["TR0204", "TR0213"]),
        ("}\npolcy q { start small at small { otherwise -> comit } }\n", ["TR0204", "TR0213", "TR0212"]),
        (PING + "}\n}\nat small { otherwise -> commit }\n", ["TR0204", "TR0204", "TR0201"]),
        ('at small { otherwise -> commit }\nmodle q { use "x" }\n' + PING, ["TR0201", "TR0213"]),
    ],
    ids=["a declaration", "a policy", "a second brace and a block", "behind a stray block"],
)  # fmt: skip
def test_what_stands_outside_all_blocks_hides_nothing_behind_it(text, codes):
    assert [code for code, _ in found(HEAD + text)] == codes


@pytest.mark.parametrize("rules", ["", "when entropy > 1 -> stop", "otherwise -> commit"])
def test_a_file_that_breaks_off_lacks_only_its_braces(rules):
    text = HEAD + "policy p { start small at small { " + rules + "\n"

    [problem] = check_source(text)

    assert problem.code == "TR0203"


@pytest.mark.parametrize("word", ["at small {", "fallback small", "when entropy > 1 -> stop"])
def test_a_statement_in_the_wrong_block_says_where_it_belongs(word):
    problem, *open_ = check_source(HEAD + word + "\n")

    assert problem.code == "TR0201"
    assert "stands in" in problem.help
    assert [d.code for d in open_] == ["TR0203"] * word.count("{")


@pytest.mark.parametrize("before", ["", "route 1\n", HEAD, HEAD + "modle x { }\n"])
def test_a_lone_block_that_is_not_closed_points_at_its_brace(before):
    text = before + "at small {\n  when entropy > 1 -> commit"

    told = [(d.code, text[d.span.start : d.span.end]) for d in check_source(text)]

    assert text[check_source(text)[-1].span.start :].startswith("{\n")
    misspelt = [("TR0213", "modle"), ("TR1113", "x")] if "modle" in text else []
    assert told == [*misspelt, ("TR0201", "at"), ("TR0203", "{")]


# What breaks off, and what must follow, told behind its last word and not at the next statement.
BROKEN_OFF = {
    "when entropy > 2 ->": "an action (`commit`, `retry`, `borrow` or `stop`) must follow `->`",
    "when entropy > 2": "`->` and an action must follow `2`",
    "when entropy >": "a value must follow `>`",
    "when": "a condition must follow `when`",
    "when entropy > 2 -> retry": "a name must follow `retry`",
    "when entropy > 2 -> commit then": "a name, `borrow` or `mix` must follow `then`",
    "when entropy > 2 -> borrow large for": "a value must follow `for`",
    "when entropy > 2 -> borrow large until margin < 1": "`at most N` must follow `1`",
    "when entropy > 2 -> retry large set": "a name must follow `set`",
    "otherwise": "`->` and an action must follow `otherwise`",
    "otherwise ->": "an action (`commit`, `retry`, `borrow` or `stop`) must follow `->`",
}


@pytest.mark.parametrize("after", ["\n    when margin < 1% -> stop", "", "  # why\n\n"])
@pytest.mark.parametrize("rule", BROKEN_OFF)
def test_a_statement_that_breaks_off_is_told_at_its_end(rule, after):
    text = HEAD + PING.replace("when entropy > tau -> retry large", rule + after, 1)

    problem, *_ = [d for d in check_source(text) if d.code != "TR1301"]

    assert (problem.code, problem.message) == ("TR0201", BROKEN_OFF[rule])
    assert problem.span.start == problem.span.end == text.index(rule) + len(rule)
    assert problem.help


def test_one_brace_too_many_in_a_policy_costs_one_message_whose_fix_mends_it():
    for place in re.finditer(r"\}", HEAD + PING):
        text = (HEAD + PING)[: place.end()] + " }" + (HEAD + PING)[place.end() :]

        [problem] = everything(text, "p.route").diagnostics

        assert problem.code == "TR0204"
        assert problem.fix is not None
        mended, _ = apply(text, "p.route", [problem])
        assert everything(mended, "p.route").diagnostics == ()


@pytest.mark.parametrize("word", ["at large { otherwise -> commit }", "fallback small"])
def test_what_stands_behind_its_policy_is_told_where_it_stands_and_hides_nothing(word):
    text = HEAD + PING.split("  at large")[0] + "}\n" + word + '\nmodle x { use "x" }\n'

    codes = [(d.code, text[d.span.start : d.span.end]) for d in check_source(text)]

    assert codes == [("TR0201", word.split()[0]), ("TR0213", "modle")]


def test_a_property_given_twice_does_not_hide_one_that_is_missing():
    text = (HEAD + PING).replace('small { use "s" }', "small { cost 2 cost 3 }", 1)

    assert [code for code, _ in found(text)] == ["TR1113", "TR2004"]


EDGES = {
    "empty": ("", ["TR0208"]),
    "only a quotation mark": ('"', ["TR0102"]),
    "a quotation mark first": ('"\n' + HEAD + PING, ["TR0102"]),
    "only a comment": ("# nothing", ["TR0208"]),
    "no newline at the end": ((HEAD + PING).rstrip(), []),
    "carriage returns": ((HEAD + PING).replace("\n", "\r\n"), []),
    "old carriage returns": ((HEAD + PING).replace("\n", "\r"), []),
    "tabs": ((HEAD + PING).replace("  ", "\t"), []),
    "byte-order mark": ("\ufeff" + HEAD + PING, []),
    "a byte-order mark in the middle": (HEAD + "\ufeff" + PING, ["TR0101"]),
    "one unclosed block": ("at small {", ["TR0201", "TR0203"]),
    "an unclosed block at the end": ((HEAD + PING).rstrip()[:-1], ["TR0203"]),
    "a last line that is wrong": (HEAD + PING + "model", ["TR0201"]),
    "a stray brace first": ("}\n" + HEAD + PING, ["TR0204"]),
    "a stray brace in the middle": (HEAD + "}\n" + PING, ["TR0204"]),
    "junk between policies": (
        HEAD + PING + "junk\n" + PING.replace("policy p", "policy q"),
        ["TR0213"],
    ),
    "not a number": (HEAD + PING.replace("entropy > tau", "entropy > 1.2.3"), ["TR0201"]),
}


@pytest.mark.parametrize("name", EDGES)
def test_the_edges_of_a_file(name):
    text, codes = EDGES[name]

    assert [code for code, _ in found(text)] == codes


def test_an_unclosed_block_points_at_where_it_was_opened():
    text = HEAD + PING.replace("  }\n  at large", "  at large", 1)

    [problem] = check_source(text)

    assert (problem.code, problem.span.line) == ("TR0203", 10)


def test_columns_count_code_points_behind_an_astral_character():
    text = HEAD + PING.replace("when entropy > tau", 'when token is "🎉" and entrpy > tau')

    [problem] = check_source(text)

    line = text.splitlines()[problem.span.line - 1]
    assert line[problem.span.column - 1 : problem.span.end_column - 1] == "entrpy"
    assert text[problem.span.start : problem.span.end] == "entrpy"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("signal s{i} = s{before} + s{before}", 40),  # doubles each time
        ("signal s{i} = s{before} + 0.01", 900),
        ("signal s{i} = mean(s{before}, 2)", 900),
    ],
    ids=["doubled", "added", "averaged"],
)
@pytest.mark.parametrize("order", [1, -1], ids=["forwards", "backwards"])
def test_signals_of_signals_without_end_are_one_diagnostic(text, rows, order):
    signals = [text.format(i=i, before=i - 1) for i in range(1, rows)][::order]
    lines = "\n".join(["signal s0 = entropy", *signals, ""])

    codes = [code for code, _ in found(HEAD + lines + PING.replace("entropy > tau", "s30 > 1"))]

    assert [code for code in codes if code != "TR1301"] == ["TR0215"]


@pytest.mark.parametrize("n", [61, 1000, 20_000])
def test_a_row_of_operands_without_end_is_one_diagnostic(n):
    row = " - ".join(["entropy", *["0.001"] * n])

    assert [c for c, _ in found(HEAD + PING.replace("entropy > tau", f"{row} > tau"))] == ["TR0215"]


def test_nesting_without_end_is_no_crash():
    deep = "(" * 3000 + "entropy" + ")" * 3000

    codes = [code for code, _ in found(HEAD + PING.replace("entropy > tau", f"{deep} > tau"))]

    assert codes == ["TR0215"]


@pytest.mark.parametrize("text", ["", "x\n", "ab\ncd\r\n\re", "\ufeffa\nb", "\n\n"])
def test_a_span_has_the_lines_and_columns_of_both_its_ends(text):
    source = Source.of("p", text)

    def place(offset):
        ends = [found.end() for found in re.finditer(r"\r\n|\n|\r", text) if found.end() <= offset]
        marked = not ends and offset > 0 and text.startswith("\ufeff")
        return len(ends) + 1, offset - (ends[-1] if ends else 0) + 1 - marked

    for start, end in combinations_with_replacement(range(len(text) + 1), 2):
        span = source.span(start, end)
        assert ((span.line, span.column), (span.end_line, span.end_column)) == (
            place(start),
            place(end),
        )
