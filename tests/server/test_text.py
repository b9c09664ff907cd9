"""The text of an answer, in pieces and whole: characters over several tokens, stop strings, every cut.

A grammar of one text makes random models write it, in whatever tokens and by whichever model the draws say.
"""

import openai
import pytest

from tests.server.test_bad_requests import refused
from tests.server.test_http import TRACED, ask

HARD = "客单价 ď 👋🏽 한국어 " * 2
ALPHABET = "Here is the English alphabet: ABCDEFGHIJKLMNOP"
NEAR = "DEFG DEFGH DEFGHI ABCDEFGHIJK"


def chat(client, most, **fields):
    given = {"model": "ping_pong", "messages": [{"role": "user", "content": "x"}], "seed": 5}
    given |= {"temperature": 2, "max_tokens": most, "logprobs": True, "top_logprobs": 1}
    return client.chat.completions.create(extra_body={"regex": HARD, **TRACED}, **given, **fields)


def joined(tokens):
    return b"".join(bytes(token.bytes) for token in tokens)


def test_characters_over_several_tokens_and_models_come_whole_at_every_cut(client):
    whole = HARD.encode()
    split = 0
    for most in (*range(1, 41), 200):
        [choice] = chat(client, most).choices
        text, told, traced = "", [], ""
        for chunk in chat(client, most, stream=True):
            [piece] = chunk.choices
            text += piece.delta.content
            told += piece.logprobs.content
            traced += "".join(token["text"] for token in piece.route["trace"])

        raw = joined(told)
        assert text == traced == choice.message.content == raw.decode("utf-8", "replace")
        assert told == choice.logprobs.content
        assert whole.startswith(raw)
        # A cut inside a character shows as one U+FFFD at the end, and nowhere else.
        inside = HARD.encode()[: len(raw)].decode("utf-8", "ignore")
        split += inside != text
        assert text in (inside, inside + "\ufffd")
        assert ("\ufffd" in text) == (len(inside.encode()) < len(raw))

    assert text == HARD and "\ufffd" not in text
    assert split > 5
    assert len({token["model"] for token in choice.route["trace"]}) == 2
    assert sum(len(token.bytes) == 1 for token in told) > 20


def cumulated(client, text, stop, **fields):
    """Return what a stream has shown after each chunk."""
    shown = [""]
    for chunk in ask(client, stream=True, extra_body={"regex": text}, stop=stop, **fields):
        shown.append(shown[-1] + chunk.choices[0].text)
    return shown, chunk.choices[0].finish_reason


def held(text, stops):
    """Return how much of the end of a text begins some stop string."""
    return max(k for stop in stops for k in range(len(stop)) if text.endswith(stop[:k]))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("text", "stops", "kept"),
    [
        (ALPHABET, ["DEFGHIJ"], "Here is the English alphabet: ABC"),
        (NEAR, ["DEFGHIJ"], "DEFG DEFGH DEFGHI ABC"),
        (NEAR, ["DEFGHIJKL", "GHI ABD"], NEAR),
        (NEAR, ["IJ", "HIJK"], "DEFG DEFGH DEFGHI ABCDEFGH"),
        ("한국어 한국한국어!", ["한국어!"], "한국어 한국"),
    ],
)
def test_a_stream_holds_back_nothing_but_the_beginning_of_a_stop_string(
    client, text, stops, kept, seed
):
    given = {"max_tokens": 90, "temperature": 2, "seed": seed}
    body = {"regex": text, **TRACED}
    [free] = ask(client, extra_body=body, **given).choices
    [whole] = ask(client, extra_body=body, stop=stops, **given).choices

    shown, finish = cumulated(client, text, stops, **given)

    assert free.text == text
    assert (shown[-1], finish) == (whole.text, whole.finish_reason) == (kept, "stop")
    wanted, so_far = [""], ""
    for token in free.route["trace"]:
        so_far += token["text"]
        visible = so_far[: len(so_far) - held(so_far, stops)]
        wanted.append(visible if len(visible) < len(kept) else kept)
    assert list(dict.fromkeys(shown)) == list(dict.fromkeys([*wanted, kept]))


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_at_exactly_max_tokens_is_a_stop_and_one_token_less_shows_its_beginning(
    client, stream
):
    given = {"temperature": 2, "seed": 4}
    body = {"regex": ALPHABET, **TRACED}
    trace = ask(client, max_tokens=90, extra_body=body, **given).choices[0].route["trace"]
    texts = [token["text"] for token in trace]
    needed = next(n for n in range(len(texts)) if "DEFGHIJ" in "".join(texts[:n]))

    def cut(most):
        if stream:
            shown, finish = cumulated(client, ALPHABET, ["DEFGHIJ"], max_tokens=most, **given)
            return shown[-1], finish
        [choice] = ask(client, max_tokens=most, extra_body=body, stop="DEFGHIJ", **given).choices
        return choice.text, choice.finish_reason

    assert cut(needed) == (ALPHABET.partition("DEFG")[0], "stop")
    assert cut(needed - 1) == ("".join(texts[: needed - 1]), "length")


def test_what_asks_for_little_is_answered_or_refused(server, client):
    refused(server.post("/v1/chat/completions", json={"messages": []}))
    with pytest.raises(openai.BadRequestError, match="`messages` is empty"):
        client.chat.completions.create(model="ping_pong", messages=[])
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": None, "stop": "e"}
    assert server.post("/v1/chat/completions", json=body).status_code == 200
    for stream in (False, True):
        chunks = ask(client, max_tokens=0, echo=True, logprobs=1, stream=stream)
        [choice] = [c for chunk in (chunks if stream else [chunks]) for c in chunk.choices]
        assert choice.finish_reason == "length" and choice.logprobs.token_logprobs[0] is None
