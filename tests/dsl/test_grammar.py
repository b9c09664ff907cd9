"""The grammar has no conflicts, the shipped tables are its tables, and our lexer and parser read what lark reads."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lark import Lark
from lark.exceptions import GrammarError, LarkError

from tokenrouter.dsl.lexer import FOREIGN, TRIVIA, tokenize
from tokenrouter.dsl.parse import BUILD, parse
from tokenrouter.dsl.source import Source
from tokenrouter.dsl.table import table
from tools import grammar

ROOT = Path(__file__).parents[2]
WORDS = [
    *table().words,
    *table().signs,
    "small",
    "entropy",
    "0.5",
    "1e3",
    '"a"',
    "<=",
    "+",
    "*",
    "\n",
    " ",
    "# c\n",
]


@pytest.fixture(scope="module")
def lark():
    return grammar.load()


def test_a_reduce_reduce_conflict_would_be_refused():
    text = (
        grammar.GRAMMAR.read_text(encoding="utf-8")
        .replace("stop: ", 'halt: "stop"\nstop: ')
        .replace("| mix | stop", "| mix | halt | stop")
    )

    with pytest.raises(GrammarError, match="collision"):
        Lark(text, parser="lalr", lexer="basic", strict=True, start="file")


def test_the_shipped_tables_are_those_of_the_grammar():
    assert grammar.dump() == grammar.TABLES.read_text(encoding="utf-8")


def test_the_tables_do_not_depend_on_hashing():
    done = subprocess.run(
        [sys.executable, "tools/grammar.py", "--check"],
        cwd=ROOT,
        env={"PYTHONHASHSEED": "7"},
        check=False,
    )

    assert done.returncode == 0


def test_every_rule_has_a_node():
    inlined = {"factor", "not_", "atom", "expr", "action"}
    rules = {production.name for production in table().productions if production.name[0] != "_"}

    assert rules - inlined == set(BUILD)


TORN = [sign for sign in FOREIGN if " " in sign]


@pytest.mark.parametrize("text", TORN)
def test_a_torn_sign_is_one_mistake_and_one_token(text):
    tokens, problems = tokenize(Source.of("t", text))

    assert [d.code for d in problems] == ["TR0104"]
    assert len(tokens.real) == 2


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join))
def test_our_lexer_gives_the_tokens_of_lark(text):
    assume(not any(sign in text for sign in TORN))  # one mistake for us, two tokens for lark
    tokens, problems = tokenize(Source.of("t", text))

    assert problems == []
    ours = [(tokens.kinds[i], tokens.text(i)) for i in tokens.real[:-1]]
    assert ours == [(token.type, str(token)) for token in grammar.load_once().lex(text)]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_a_text_is_accepted_exactly_where_lark_accepts_it(body):
    text = f"route 1 policy p {{ at small {{ otherwise -> {body} }} }}"
    try:
        grammar.load_once().parse(text)
    except LarkError:
        accepted = False
    else:
        accepted = True

    assert (parse(Source.of("t", text)).problems == ()) is accepted


@settings(deadline=None, max_examples=60)
@given(st.text())
def test_tokens_lose_nothing(text):
    tokens, _ = tokenize(Source.of("t", text))

    assert "".join(map(tokens.text, range(len(tokens.kinds)))) == text
    assert all(tokens.kinds[i] not in TRIVIA for i in tokens.real)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join))
def test_any_text_gets_a_tree_and_problems_in_order(text):
    tree = parse(Source.of("t", text))

    assert [d.span.start for d in tree.problems] == sorted(d.span.start for d in tree.problems)
