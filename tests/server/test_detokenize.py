"""Pieces of text, however the bytes were cut, join to the text of the whole."""

from hypothesis import example, given
from hypothesis import strategies as st

from tokenrouter.server.detokenize import Detokenizer

HARD = "客单价 ď 👋🏽 한국어"


def pieces(tokens, hidden=()):
    table = dict(enumerate(tokens))
    detokenizer = Detokenizer(table.__getitem__, hidden)
    return [*(detokenizer.feed(id_) for id_ in table), detokenizer.flush()]


def cut(data, sizes):
    tokens, at = [], 0
    for size in sizes:
        tokens.append(data[at : at + size])
        at += size
    return [*tokens, data[at:]]


@given(st.binary(max_size=40), st.lists(st.integers(0, 5), max_size=12))
@example(b"\xed\xa0\x80\xf0\x9f\x91", [1, 1, 1, 2])
@example(b"\xf4\x90\x80\x80a\xc0\xaf\xe2\x28\xa1", [1] * 9)
def test_any_bytes_in_any_cut_read_like_the_whole(data, sizes):
    assert "".join(pieces(cut(data, sizes))) == data.decode("utf-8", "replace")


@given(st.text(max_size=20), st.lists(st.integers(0, 5), max_size=12))
@example(HARD, [1] * 30)
def test_valid_text_never_shows_a_replacement_character_on_the_way(text, sizes):
    data = text.encode()

    shown = pieces(cut(data, sizes))

    assert all("\ufffd" not in piece for piece in shown) or "\ufffd" in text
    assert "".join(shown) == text


def test_a_character_appears_with_the_token_that_completes_it():
    wave = "👋".encode()

    assert pieces([b"a" + wave[:1], wave[1:3], wave[3:] + b"!"]) == ["a", "", "👋!", ""]


def test_an_incomplete_end_reads_as_one_replacement_character():
    assert pieces(["한".encode()[:2]]) == ["", "\ufffd"]


def test_special_tokens_are_hidden_even_inside_a_character():
    first, rest = "한".encode()[:1], "한".encode()[1:]

    assert pieces([first, b"<|im_end|>", rest], hidden={1}) == ["", "", "한", ""]


def test_an_answer_goes_on_with_the_character_that_a_prompt_ends_in():
    table = ["é한".encode()[:4], "한".encode()[2:] + b"!", b"\xff"]
    prompt, answer, alone = (Detokenizer(table.__getitem__) for _ in range(3))
    assert prompt.feed(0) == "é"

    answer.follows(prompt)

    assert answer.feed(1) + answer.feed(2) + answer.flush() == "한!\ufffd"
    assert alone.feed(1) == "\ufffd!"
