"""What is remembered of a policy is what would be found again, wherever the text has moved."""

import gc
from concurrent.futures import Future

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol.types import SetTraceParams, TraceValue

from tokenrouter.compiler.analyse import complete
from tokenrouter.compiler.python_text import python_text
from tokenrouter.dsl.load import parse_text
from tokenrouter.lsp.answers import make
from tokenrouter.lsp.book import Book, Document, uri_of
from tokenrouter.lsp.memory import Memory
from tokenrouter.lsp.problems import OvertakenError, at_once, find

PIECES = [
    'model small { use "s" }',
    'model large { use "l" }',
    "param tau: nats = 1 in [0, 4]",
    "policy a { start small at any { when entropy < 0 -> stop otherwise -> commit } }",
    "policy b { start small at any { when entropy > tau -> retry large otherwise -> commit } }",
    "policy c { start small at any { otherwise -> commit then large } guarantee share(large) <= 1% }",
]
GAPS = st.lists(st.sampled_from([" ", "\n", "\n\n# λ 🙂\n"]), min_size=6, max_size=6)
CHANGES = st.sampled_from(
    [("", ""), ("entropy < 0", "entropy < 1"), ("1 in [0, 4]", "-1 in [-4, -1]"), ("<= 1%", "<= 2%"), ("stop", "commit")]
)  # fmt: skip


def document(book, gaps, old, new):
    """Return the file with its pieces set apart by gaps and one of them changed."""
    text = "route 1" + "".join(g + p for g, p in zip(gaps, PIECES, strict=True)) + "\n"
    book.put(uri_of("/nowhere/m.route"), text.replace(old, new) if old else text, 1)
    return book.document(uri_of("/nowhere/m.route"))


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(GAPS, CHANGES), min_size=2, max_size=4))
def test_what_is_remembered_is_what_would_be_found(versions):
    book, memory = Book(), Memory()
    for gaps, (old, new) in versions:
        made = document(book, gaps, old, new)

        found = find(made, memory)

        assert found == complete(made.study.resolved).diagnostics
        assert any(d.code == "TR3101" for d in found)


def test_only_the_policy_that_changed_is_looked_at_again():
    book, memory = Book(), Memory()
    gaps = ["\n"] * 6
    find(document(book, gaps, "", ""), memory)
    before = dict(memory.same)

    find(document(book, ["\n\n", *gaps[1:]], "entropy < 0", "entropy < 1"), memory)

    changed = {
        name
        for (_, name), kept in memory.same.items()
        if kept is not before["/nowhere/m.route", name]
    }
    assert changed == {"a"}


def test_nothing_is_kept_of_texts_that_were_typed_over():
    book, memory = Book(), Memory()
    for n in range(30):
        changed = document(book, ["\n"] * 6, "entropy < 0", f"entropy < 1.{n}")
        find(changed, memory)
    del changed
    gc.collect()

    live = [o for o in gc.get_objects() if type(o) is Document]  # isinstance would ask odd objects

    assert [o.text.count("1.29") for o in live if o.path == "/nowhere/m.route"] == [1]
    assert len(memory.same) == 3


def test_a_declaration_that_changes_what_is_found_is_noticed():
    book, memory = Book(), Memory()
    before = find(document(book, ["\n"] * 6, "", ""), memory)

    after = find(document(book, ["\n"] * 6, "1 in [0, 4]", "-1 in [-4, -1]"), memory)

    assert {d.code for d in after} - {d.code for d in before} == {"TR2303"}


def test_a_sweep_drops_what_is_done_and_keeps_what_is_under_way():
    server = make()
    server.protocol._handle_notification("$/setTrace", SetTraceParams(TraceValue.Off))
    waiting = server.protocol._request_futures["asked"] = Future()
    assert len(server.protocol._request_futures) == 2  # pygls keeps that of the notification

    server.sweep()

    assert server.protocol._request_futures == {"asked": waiting}


def test_of_a_text_that_was_typed_over_the_passes_look_at_no_further_model():
    book, memory = Book(), Memory()
    made = document(book, ["\n"] * 6, "", "")
    asked = []

    def overtaken():
        asked.append(len(memory.same))
        return len(asked) > 2

    with pytest.raises(OvertakenError):
        find(made, memory, overtaken=overtaken)

    assert asked == [0, 0, 0]  # before the policy, at its start, and at its first model
    assert list(memory.seen["/nowhere/m.route", "a"].kept) == [("start", "start")]
    assert find(made, memory) == complete(made.study.resolved).diagnostics


def test_what_needs_no_long_passes_is_found_before_what_does():
    rules = "\n".join(f"when margin < 0.{n} -> commit then large" for n in range(10, 80))
    long = f"policy long {{ start small at any {{ {rules} otherwise -> commit }} }}"
    text = "\n".join(["route 1", *PIECES, "param idle: nats = 1", long])
    book, memory = Book(), Memory()
    book.put(uri_of("/nowhere/m.route"), text, 1)
    made = book.document(uri_of("/nowhere/m.route"))

    soon = at_once(made, memory)

    assert soon is not None
    assert [d.code for d in soon] == [d.code for d in made.resolved.diagnostics] == ["TR1301"]
    assert {d.code for d in find(made, memory)} > {"TR1301", "TR3101"}
    assert at_once(made, memory) is None


def test_a_policy_in_python_is_looked_at_again_only_where_its_text_changed():
    text = python_text(parse_text("route 1\n" + "\n".join([*PIECES[:3], PIECES[4]])).only())
    book, memory = Book(), Memory()
    uri = uri_of("/nowhere/m.py")
    book.put(uri, text, 1)
    first = find(book.document(uri), memory)
    before = dict(memory.kept)

    book.put(uri, "# λ 🙂\n\n" + text, 2)
    moved = book.document(uri)

    assert find(moved, memory) == complete(moved.study.resolved).diagnostics
    assert memory.kept == before
    assert len(before) == 1
    assert [d.code for d in find(moved, memory)] == [d.code for d in first]
