"""`trc fmt` loses nothing, changes no meaning, and has nothing to do the second time."""

import io
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.compiler.plans import plan_of
from tests.dsl.policies import scattered
from tokenrouter import cli
from tokenrouter.compiler.lower import lower
from tokenrouter.dsl.layout import layout
from tokenrouter.dsl.load import parse_text
from tokenrouter.dsl.parse import parse
from tokenrouter.dsl.source import Source

ROOT = Path(__file__).parents[2]
TEXT = """route 1
import "x.route"
model small { use "s" cost 1 }
model longer_name { use "l" dtype bfloat16 }
head h { file "h" reads small.{hidden, logits} }
param tau: nats = -0.5 in [-1, 4.0]
var n: count = 0
signal shaky = mean(entropy, 8) > tau and not (margin < 10%)
policy p {
start mix { small: 0.5, longer_name: 50% }
at small {
when token in {"a", "b"} or 2 * -entropy - 1 < tau -> commit then borrow longer_name for n + 1 set n = n + 1 set n = 0
when class is not word and token not in {"x"} -> borrow longer_name until maxprob > 0.5 at most 8 tokens
otherwise -> stop
}
at any { otherwise -> commit }
enforce share(longer_name) <= 40%
objective throughput where speed >= 20 tokens/s
}
test "t" for p { at small given entropy = 1.2, token is "x" -> retry longer_name start given prompt_tokens = 3 -> small }
"""


SHOWN = (Phase.explicit, Phase.reuse, Phase.generate)  # such texts shrink for many minutes


def lay(text):
    return layout(parse(Source.of("p.route", text)))


def pieces(text):
    tree = parse(Source.of("p.route", text))
    return [
        tree.tokens.text(i).rstrip() for i, kind in enumerate(tree.tokens.kinds) if kind != "SPACE"
    ]


TOKENS = [t for t in pieces(TEXT) if t]
GAPS = st.sampled_from(
    [" ", " ", " ", "\n", "\n\n\n", "\t", "  # c\n", "\n# d\n", "\r\n", "\n   # e ( { \n\n"]
)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(GAPS, min_size=len(TOKENS), max_size=len(TOKENS)),
    st.sampled_from(["", "\n", "# end", "\n\n# end\n"]),
)
def test_any_layout_keeps_every_token_and_comment_and_is_stable(gaps, end):
    text = "".join(gap + token for gap, token in zip(gaps, TOKENS, strict=True)) + end

    once = lay(text)

    assert pieces(once) == pieces(text)
    assert lay(once) == once
    assert not any(line != line.rstrip() for line in once.splitlines())
    assert "\n\n\n" not in once


@settings(deadline=None, max_examples=40)
@given(
    st.lists(GAPS, min_size=len(TOKENS), max_size=len(TOKENS)),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["", "\ufeff"]),
)
def test_a_file_keeps_its_line_ends_and_its_byte_order_mark(gaps, end, mark):
    body = "".join(gap + token for gap, token in zip(gaps, TOKENS, strict=True))
    text = body.replace("\r\n", "\n") + "\n"
    expected = lay(text)

    once = lay(mark + text.replace("\n", end))

    assert once == mark + expected.replace("\n", end)
    assert lay(once) == once


def test_line_ends_that_differ_become_those_of_most_lines():
    few, most = "route 1\r\n# a\n", "# b\r\n# c\r\n"

    assert lay(few + most) == "route 1\r\n# a\r\n# b\r\n# c\r\n"
    assert lay(few + "# b\n# c\n") == "route 1\n# a\n# b\n# c\n"
    assert lay("route 1\r\n# a\n") == "route 1\n# a\n"


def meaning(text):
    [policy] = parse_text(text, "p.route").policies
    return plan_of(lower(policy)).program_hash, policy.tests, policy.claims, policy.comments


@settings(deadline=None, max_examples=60, phases=SHOWN)
@given(scattered())
def test_laying_out_any_policy_changes_no_meaning_and_loses_no_comment(text):
    once = lay(text)

    assert pieces(once) == pieces(text)
    assert lay(once) == once
    assert meaning(once) == meaning(text)


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*.route")), ids=lambda p: p.stem)
def test_examples_are_laid_out_and_crushing_them_changes_no_meaning(path):
    text = path.read_text(encoding="utf-8")
    crushed = " ".join(p for p in pieces(text) if not p.startswith("#"))

    assert lay(text) == text
    assert parse_text(lay(crushed), path.name).policies == parse_text(text, path.name).policies


def test_comments_stay_where_they_belong(golden):
    text = TEXT.replace("at small {", "at small { # opens\n# first\n\n", 1).replace(
        "otherwise -> stop",
        "# between\n  otherwise -> stop # at the end\n\n\n # before the brace\n",
        1,
    )

    once = lay("\n\n# top\n" + text + "\n# bottom")

    golden(once)
    assert lay(once) == once


@pytest.fixture
def messy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "p.route"
    path.write_text('route 1\nmodel   m {use "x"}', encoding="utf-8")
    return path


def test_check_and_diff_change_nothing(messy, capsys):
    before = messy.read_text(encoding="utf-8")

    assert cli.main(["fmt", "--check", "p.route"]) == 1
    assert cli.main(["fmt", "--diff", "p.route"]) == 1
    assert '+model m { use "x" }' in capsys.readouterr().out
    assert messy.read_text(encoding="utf-8") == before


def test_a_file_is_laid_out_once(messy, capsys):
    assert cli.main(["fmt", "p.route"]) == 0
    assert messy.read_text(encoding="utf-8") == 'route 1\nmodel m { use "x" }\n'
    assert cli.main(["fmt", "--check", "p.route"]) == 0


@pytest.mark.parametrize("flag", [(), ("--check",), ("--diff",)])
def test_a_file_with_carriage_returns_and_a_mark_that_is_laid_out_stays_as_it_is(messy, flag):
    sound = '\ufeffroute 1\r\n\r\nmodel m { use "x" }\r\n'.encode()
    messy.write_bytes(sound)

    assert cli.main(["fmt", *flag, "p.route"]) == 0
    assert messy.read_bytes() == sound


def test_laying_out_writes_the_line_ends_and_the_mark_that_it_found(messy):
    messy.write_bytes('\ufeffroute 1\r\nmodel   m {use "x"}'.encode())

    assert cli.main(["fmt", "p.route"]) == 0
    assert messy.read_bytes() == '\ufeffroute 1\r\nmodel m { use "x" }\r\n'.encode()


def test_a_file_that_cannot_be_read_keeps_no_other_from_being_laid_out(messy, capsys):
    assert cli.main(["fmt", "missing.route", "p.route"]) == 2
    assert messy.read_text(encoding="utf-8") == 'route 1\nmodel m { use "x" }\n'
    assert "cannot read `missing.route`" in capsys.readouterr().err


def test_the_standard_input_is_laid_out_to_the_standard_output(messy, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(messy.read_bytes())))

    assert cli.main(["fmt", "-"]) == 0
    assert capsys.readouterr().out == 'route 1\nmodel m { use "x" }\n'


def test_a_file_with_syntax_errors_is_left_alone(messy, capsys):
    messy.write_text("route 1\nmodel   m {", encoding="utf-8")

    assert cli.main(["fmt", "p.route"]) == 1
    assert messy.read_text(encoding="utf-8") == "route 1\nmodel   m {"
    assert "TR0203" in capsys.readouterr().err
