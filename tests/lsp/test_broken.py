"""Whatever is deleted from a valid file: everything is answered, and the file recovers."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol import types as t

from tokenrouter.lsp import answers
from tokenrouter.lsp.book import uri_of

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "examples/guarded.route").read_text(encoding="utf-8") + (
    'head h { file "h.safetensors"  reads small.{hidden} }\n'
    "var n: count = 0  # a comment: λ 🙂\n"
    'signal shaky = mean(entropy, 8) > tau and not (token in {"a", "🙂"})\n'
    "policy other {\n  start mix { small: 0.5  large: 0.5 }\n"
    "  at any { when shaky -> borrow large until maxprob > 90% at most n + 1 tokens set n = n + 1\n"
    "    otherwise -> commit then mix { small: 1 } }\n"
    "  at small { when h > 0.5 -> stop  otherwise -> commit }\n"
    "  objective throughput where speed >= 20 tokens/s\n}\n"
)
PATH = str(ROOT / "examples/broken.route")
URI = uri_of(PATH)
DOCUMENT = t.TextDocumentIdentifier(URI)
FOUR = t.FormattingOptions(4, True)


def ask_everything(server, position):
    """Ask everything that an editor may; return the diagnostics and the tokens."""
    end = t.Position(position.line + 3, 2)
    where = t.Range(position, end)
    answers.hover(server, t.HoverParams(DOCUMENT, position))
    items = answers.completion(server, t.CompletionParams(DOCUMENT, position))
    assert len({item.label for item in items}) == len(items)
    answers.signature(server, t.SignatureHelpParams(DOCUMENT, position))
    answers.definition(server, t.DefinitionParams(DOCUMENT, position))
    answers.references(server, t.ReferenceParams(t.ReferenceContext(True), DOCUMENT, position))
    answers.highlight(server, t.DocumentHighlightParams(DOCUMENT, position))
    answers.prepare(server, t.PrepareRenameParams(DOCUMENT, position))
    answers.symbols(server, t.DocumentSymbolParams(DOCUMENT))
    answers.folds(server, t.FoldingRangeParams(DOCUMENT))
    answers.links(server, t.DocumentLinkParams(DOCUMENT))
    answers.lenses(server, t.CodeLensParams(DOCUMENT))
    answers.hints(server, t.InlayHintParams(DOCUMENT, where))
    answers.formatting(server, t.DocumentFormattingParams(DOCUMENT, FOUR))
    answers.formatting_of(server, t.DocumentRangeFormattingParams(DOCUMENT, where, FOUR))
    answers.actions(server, t.CodeActionParams(DOCUMENT, where, t.CodeActionContext([])))
    document = server.book.document(URI)
    found = server.found(document)
    for diagnostic in answers.change.shown(server.book, document, found):
        assert diagnostic.range.start <= diagnostic.range.end
    return found, answers.tokens(server, t.SemanticTokensParams(DOCUMENT)).data


@pytest.fixture(scope="module")
def server():
    return answers.make()


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, len(TEXT)),
    st.one_of(st.integers(1, 12), st.integers(1, len(TEXT))),
    st.sampled_from(["utf-8", "utf-16", "utf-32"]),
)
def test_any_range_may_be_missing(server, start, length, encoding):
    broken = TEXT[:start] + TEXT[start + length :]
    server.book.encoding = encoding
    server.book.put(URI, broken, 2)
    position = server.book.document(URI).places.position(start)

    _, tokens = ask_everything(server, position)

    assert all(n >= 0 for n in tokens)
    server.book.put(URI, TEXT, 3)
    found, _ = ask_everything(server, position)
    assert [d for d in found if d.severity == "error"] == []


@settings(deadline=None, max_examples=15)
@given(st.text(alphabet=' \n"{}()->#|&é🙂atwhenmodl=:.,%1', max_size=60), st.integers(0, len(TEXT)))
def test_anything_may_be_typed_anywhere(server, typed, place):
    server.book.put(URI, TEXT[:place] + typed + TEXT[place:], 2)
    position = server.book.document(URI).places.position(place + len(typed))

    _, tokens = ask_everything(server, position)

    starts = list(zip(tokens[::5], tokens[1::5], tokens[2::5], strict=True))
    assert all(down or right >= before for (_, _, before), (down, right, _) in pairwise(starts))
