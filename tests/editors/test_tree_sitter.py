"""The tree-sitter grammar, compiled and run: it accepts what lark accepts, and its colours are those of the language server."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lark.exceptions import LarkError
from tree_sitter import Parser, Query, QueryCursor

from tests.dsl.policies import HEAD, PING_PONG, scattered
from tests.editors.texts import ROOT, runs, semantic, sound
from tests.editors.trees import GRAMMAR, compiled, language
from tokenrouter.dsl.table import table
from tools import grammar

sys.path.insert(0, str(ROOT / "tools"))
from editing import tree_sitter

NAMES = {"class", "function", "parameter", "variable", "property"}
EVERYTHING = (ROOT / "editors/vscode/test/grammar/everything.route").read_text(encoding="utf-8")
WORDS = [
    *table().words, *table().signs, "small", "entropy", "0.5", "1e3", "12x", "atx", "_", '"a"', '"', "<=", "+", "*", "\n", "", "# c\n",
]  # fmt: skip
QUERIES = sorted(
    path
    for folder in ("tree-sitter-route/queries", "neovim/queries", "helix/queries", "zed/languages")
    for path in (ROOT / "editors" / folder).rglob("*.scm")
)


@pytest.fixture(scope="module")
def route(tmp_path_factory):
    """The language, from the parser that is in the repository."""
    return language(compiled(tmp_path_factory.mktemp("parser")))


@pytest.fixture(scope="module")
def accepts(route):
    """Tell whether a text has a tree without errors."""
    return lambda text: not Parser(route).parse(text.encode()).root_node.has_error


def lark_accepts(text):
    try:
        grammar.load_once().parse(text)
    except LarkError:
        return False
    return True


def test_every_policy_of_the_repository_is_accepted(accepts):
    texts = {**sound(), "everything": EVERYTHING, "nothing": ""}

    assert len(texts) > 50
    assert [name for name, text in texts.items() if not accepts(text)] == []


@settings(deadline=None, max_examples=60)
@given(scattered())
def test_random_policies_are_accepted(accepts, text):
    assert lark_accepts(text.removeprefix("\ufeff"))
    assert accepts(text)


def corpus():
    """Yield title, text and tree of each case: the format of tree-sitter's own tests."""
    for path in sorted((GRAMMAR / "test/corpus").glob("*.txt")):
        parts = re.split(r"^=+\n(.*)\n=+\n", path.read_text(encoding="utf-8"), flags=re.M)[1:]
        for title, body in zip(parts[::2], parts[1::2], strict=True):
            text, tree = body.split("\n---\n")
            yield pytest.param(text, " ".join(tree.split()).replace(" )", ")"), id=title)


BODIES = [
    "",
    "route 1 policy p {{ at small {{ otherwise -> {} }} }}",
    "route 1 policy p {{ at small {{ when {} -> stop }} }}",
    'route 1 test "t" for p {{ at small {} }}',
    "model m {{ {} }}",
    "param p {}",
]


@settings(deadline=None, max_examples=500)
@given(
    st.sampled_from(BODIES), st.lists(st.sampled_from(WORDS), max_size=10), st.sampled_from(" ,")
)
def test_a_text_is_accepted_exactly_where_lark_accepts_it(accepts, around, words, gap):
    """Without a space between, too: `5mst` is a number and a name, `atx` is no `at`."""
    text = around.format(" ".join(words)).replace("  ", "" if gap == "," else " ")

    assert accepts(text) is lark_accepts(text)


SPOTS = [(text, *pair) for text in (HEAD + PING_PONG, EVERYTHING) for pair in pairwise(
    [m.start() for m in re.finditer(r'"(?:[^"\\\n]|\\.)*"|\w+|[^\w\s]|\s+', text)]
)]  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(SPOTS), st.sampled_from(["", *WORDS]))
def test_a_policy_with_another_word_somewhere_is_accepted_exactly_where_lark_accepts_it(
    accepts, spot, word
):
    text, start, end = spot
    changed = text[:start] + word + text[end:]

    assert accepts(changed) is lark_accepts(changed)


def test_nothing_more_is_accepted_wherever_a_word_and_what_it_may_bring_is_put_in(accepts):
    """Every word at every place of the corpus: random words seldom find that a rule takes a little more than lark's."""
    more, tried = [], 0
    for text, *_ in (case.values for case in corpus()):
        if not accepts(text):
            continue
        for at in [m.start() for m in re.finditer(r'"[^"]*"|\w+|[^\w\s]', text)] + [len(text)]:
            for word in {*table().words, *table().signs, "<", "+", "*", "x"}:
                for brought in ("", "x", "{ }"):
                    tried += 1
                    changed = f"{text[:at]} {word} {brought} {text[at:]}"
                    if accepts(changed) and not lark_accepts(changed):
                        more.append(changed)
    assert tried > 40_000
    assert more == []


REFUSED = [
    "route",
    "route one",
    "model at { }",
    'model m { use "s" ',
    "param tau: nats = ",
    "param tau in [0]",
    "policy p { start }",
    "policy p { at any { when a < not b -> commit } }",
    "policy p { at any { when a && b -> commit } }",
    "policy p { at any { when a -> comit } }",
    "policy p { at any { when a -> borrow large } }",
    "policy p { at any { otherwise -> retry retry } }",
    "policy p { startsmall }",
    "policy p { } }",
    'test "t for p { }',
    "signal s = (a",
    "signal s = 1 nats nats",
]


@pytest.mark.parametrize("text", REFUSED)
def test_what_lark_refuses_has_an_error(accepts, text):
    assert not lark_accepts(text)
    assert not accepts(text)


def test_every_word_of_the_language_is_one_of_the_grammar_and_no_other():
    text = (GRAMMAR / "src/grammar.json").read_text(encoding="utf-8")
    strings = re.findall(r'"type": "STRING",\s+"value": "(.*)"', text)

    assert {string for string in strings if string.isidentifier()} == set(table().words)
    assert set(table().signs) <= set(strings)


def test_the_parser_is_made_from_this_grammar():
    """Only `make soak` makes it anew (it takes a program of Debian 13); what it was made from is told by sums."""
    told = dict(
        reversed(line.split("  "))
        for line in (GRAMMAR / "src/made-from").read_text(encoding="utf-8").splitlines()
    )
    now = {
        name: hashlib.sha256((GRAMMAR / name).read_bytes()).hexdigest()
        for name in ("grammar.js", "language.json", "src/parser.c")
    }

    assert now == told, "run tools/tree_sitter.sh"


@pytest.mark.slow
def test_the_generator_makes_the_parser_that_is_kept_and_agrees_with_the_corpus(tmp_path):
    made = subprocess.run(["sh", "tools/tree_sitter.sh", "--check"], cwd=ROOT, capture_output=True, text=True, check=False)  # fmt: skip
    assert (made.returncode, made.stderr) == (0, "")

    folder = shutil.copytree(GRAMMAR, tmp_path / "tree-sitter-route")
    ran = subprocess.run(
        [ROOT / ".cache/debian/run", "tree-sitter", "test"],
        cwd=folder, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "every action" in ran.stdout


@pytest.mark.parametrize(("text", "tree"), list(corpus()))
def test_trees_are_the_kept_ones(route, text, tree):
    assert str(Parser(route).parse(text.encode()).root_node) == tree


@pytest.fixture(scope="module")
def coloured(route, tmp_path_factory):
    """Return every sound policy with both colours, line by line; and places that have two colours."""
    folder = tmp_path_factory.mktemp("policies")
    query, found, twice = Query(route, tree_sitter.highlights({})), [], []
    for name, text in sound().items():
        (folder / name).write_text(text, encoding="utf-8")
        written = text.encode()
        kinds = [None] * len(written)
        for kind, nodes in QueryCursor(query).captures(Parser(route).parse(written).root_node).items():  # fmt: skip
            for node in nodes:
                place = slice(node.start_byte, node.end_byte)
                twice += [(name, node.text, kind, k) for k in {*kinds[place]} - {None}]
                kinds[place] = [kind] * len(node.text)
        at = 0
        for line, server in zip(text.split("\n"), semantic(folder / name), strict=True):
            of_characters = []
            for character in line:
                of_characters.append(kinds[at])
                at += len(character.encode())
            found.append((name, line, server, of_characters))
            at += 1
    return found, twice


def as_the_server_says(kind):
    """Return the server's kind for one of the query's."""
    kind = kind and kind.removesuffix(".argument")
    if kind in ("bracket", "delimiter"):
        return None
    return "keyword" if kind and kind.startswith("keyword.") else kind


def test_the_colours_are_those_of_the_server_but_for_names_in_expressions(coloured):
    wrong, words = [], 0
    for name, line, server, made in coloured[0]:
        for start, end, wanted in runs(server):
            words += wanted is not None
            got = {
                as_the_server_says(k)
                for c, k in zip(line[start:end], made[start:end], strict=True)
                if c != " "
            }
            in_a_set = wanted == "variable" and "class in {" in line and got == {"enumMember"}
            fine = got <= {wanted} or (wanted in NAMES and got == {"variable"}) or in_a_set
            if not fine:
                wrong.append(f"{name}: `{line[start:end]}` is {wanted}, coloured {got}")
    assert words > 3000
    assert wrong == []


def test_no_place_has_two_colours(coloured):
    """Helix took the first pattern before 25.07, and the last one since."""
    assert coloured[1] == []


@pytest.mark.parametrize("path", QUERIES, ids=lambda p: str(p.relative_to(ROOT / "editors")))
def test_every_query_is_one_of_this_grammar_and_finds_something(route, path):
    query = Query(route, path.read_text(encoding="utf-8"))
    tree = Parser(route).parse(f"{EVERYTHING}\nsignal calm = max(cap, 1)\n".encode())

    seen = {index for index, _ in QueryCursor(query).matches(tree.root_node)}

    assert seen == set(range(query.pattern_count))


def test_the_configuration_of_helix_starts_the_server_and_names_the_grammar():
    made = tomllib.loads((ROOT / "editors/helix/languages.toml").read_text(encoding="utf-8"))
    (language,), (parser,) = made["language"], made["grammar"]
    (server,) = language["language-servers"]

    assert (language["file-types"], language["comment-token"]) == (["route"], "#")
    assert made["language-server"][server] == {"command": "trc", "args": ["lsp"]}
    assert parser["name"] == language["name"]
    assert parser["source"]["path"] == f"/path/to/tokenrouter/{GRAMMAR.relative_to(ROOT)}"


def test_the_extension_for_zed_names_the_grammar_and_closes_the_brackets_of_vs_code():
    extension = tomllib.loads((ROOT / "editors/zed/extension.toml").read_text(encoding="utf-8"))
    made = tomllib.loads(
        (ROOT / "editors/zed/languages/route/config.toml").read_text(encoding="utf-8")
    )
    vscode = json.loads(
        (ROOT / "editors/vscode/language-configuration.json").read_text(encoding="utf-8")
    )

    assert (ROOT / extension["grammars"][made["grammar"]]["path"]) == GRAMMAR
    assert [[b["start"], b["end"]] for b in made["brackets"]] == vscode["surroundingPairs"]
