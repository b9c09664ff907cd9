"""What is answered of a text that is typed, from piece to piece, is what is answered of the whole of it."""

from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol import types as t

from tests.dsl.test_again import BASE, EDITS, TEXTS, versions
from tokenrouter.lsp import answers, colour, outline, tell
from tokenrouter.lsp.book import Book, Document, uri_of
from tokenrouter.lsp.place import Places

PATH = "/nowhere/typed.route"
URI = uri_of(PATH)


def whole(book, document):
    """Return the same text as a document of one piece."""
    return Document(
        URI, PATH, document.text, None, Places(document.places.source, book.encoding), document.make
    )


def asked(document, rows):
    """Return what an editor asks after each change."""
    lines = t.Range(t.Position(rows[0], 0), t.Position(rows[1], 0))
    return {
        "tokens": colour.tokens(document),
        "of a range": colour.tokens(document, *rows),
        "hints": tell.hints(document, {"tau": "2"}, lines),
        "symbols": outline.symbols(document),
        "folds": outline.folds(document),
        "lenses": outline.lenses(document),
        "links": outline.links(document),
    }


@settings(deadline=None, max_examples=40)
@given(
    TEXTS,
    st.lists(EDITS, min_size=1, max_size=8),
    st.tuples(st.integers(0, 30), st.integers(0, 40)).map(sorted),
    st.sampled_from(["utf-8", "utf-16", "utf-32"]),
)
def test_every_answer_is_that_of_the_whole_text(text, edits, rows, encoding):
    book = Book(encoding=encoding, sets={"tau": "2"})
    data = []
    for number, version in enumerate(versions(text, edits)):
        book.put(URI, version, number)
        document = book.document(URI)

        found = asked(document, rows)

        assert found == asked(whole(book, document), rows)
        before, data = data, found["tokens"]
        assert patched(before, colour.changed(before, data)) == data


def patched(data, edits):
    """Return tokens with edits as an editor makes them."""
    for edit in edits:
        data = [*data[: edit.start], *(edit.data or ()), *data[edit.start + edit.delete_count :]]
    return data


def test_one_more_letter_changes_a_handful_of_tokens():
    book = Book()
    book.put(URI, BASE, 1)
    before = colour.tokens(book.document(URI))
    book.put(URI, BASE.replace("margin < 0.1", "margin < 0.12"), 2)

    (edit,) = colour.changed(before, colour.tokens(book.document(URI)))

    assert edit.delete_count <= 5
    assert len(edit.data) <= 5


def test_tokens_are_told_as_a_change_of_those_that_the_editor_has():
    server = answers.make()
    document = t.TextDocumentIdentifier(URI)
    server.book.put(URI, BASE, 1)
    first = answers.tokens(server, t.SemanticTokensParams(document))
    server.book.put(URI, BASE.replace("policy three", "policy four"), 2)

    second = answers.tokens_changed(server, t.SemanticTokensDeltaParams(document, first.result_id))

    now = colour.tokens(server.book.document(URI))
    assert isinstance(second, t.SemanticTokensDelta)
    assert patched(first.data, second.edits) == now
    unknown = answers.tokens_changed(server, t.SemanticTokensDeltaParams(document, first.result_id))
    assert isinstance(unknown, t.SemanticTokens)
    assert unknown.data == now
