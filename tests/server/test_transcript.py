"""One choice's tokens: text, counts and the text of each token agree, at every cut and with any stop list."""

from hypothesis import given
from hypothesis import strategies as st

from tokenrouter.runtime.messages import RouteState, Token
from tokenrouter.server.detokenize import Detokenizer
from tokenrouter.server.stops import Automaton, StopMatcher
from tokenrouter.server.transcript import Transcript

PIECES = st.lists(st.binary(max_size=3) | st.text("ab한👋", max_size=3).map(str.encode), min_size=1)
STOPS = st.lists(st.text("ab한👋", min_size=1, max_size=4), max_size=3)


def token(id_, model=0, rule=0, finish=None, switches=0):
    state = RouteState(owner=model, counts=[0, 0], switches=switches)
    return Token(
        request=1, token=id_, model=model, rule=rule, logprob=-1.0, state=state, finish=finish
    )


def play(pieces, stops, models=(0,), finish="length"):
    """Feed all pieces, the last one finishing, until the transcript ends."""
    transcript = Transcript(Detokenizer(pieces.__getitem__), StopMatcher(Automaton(stops)))
    shown = []
    for id_ in range(len(pieces)):
        last = finish if id_ == len(pieces) - 1 else None
        shown.append(transcript.feed(token(id_, models[id_ % len(models)], finish=last)))
        if transcript.finish:
            break
    return transcript, shown


def oracle(pieces, stops):
    text = b"".join(pieces).decode("utf-8", "replace")
    for end in range(1, len(text) + 1):
        found = [s for s in stops if text[:end].endswith(s)]
        if found:
            return text[: end - max(map(len, found))], "stop"
    return text, "length"


@given(PIECES, STOPS)
def test_the_shown_text_is_the_whole_text_up_to_the_first_stop(pieces, stops):
    transcript, shown = play(pieces, stops)

    assert ("".join(s.text for s in shown), transcript.finish) == oracle(pieces, stops)


@given(PIECES, STOPS)
def test_the_texts_of_the_tokens_join_to_the_shown_text(pieces, stops):
    transcript, shown = play(pieces, stops)
    so_far = ""
    by_token = ""

    for step in shown:
        so_far += step.text
        by_token += "".join(w.text for w in step.tokens)
        assert so_far.startswith(by_token)
    assert by_token == so_far
    assert sum(len(s.tokens) for s in shown) == transcript.n_tokens == len(shown)


@given(PIECES, STOPS)
def test_tokens_up_to_the_one_that_completes_the_stop_are_counted(pieces, stops):
    transcript, shown = play(pieces, stops, models=(0, 1))

    assert transcript.n_tokens == len(shown)
    assert transcript.by_model[0] == (len(shown) + 1) // 2
    assert transcript.by_model.total() == transcript.by_rule.total() == len(shown)


def test_a_stop_string_across_a_handoff_is_found():
    transcript, shown = play([b"one ", b"ST", b"OP", b" two"], ["STOP"], models=(0, 1))

    assert [s.text for s in shown] == ["one ", "", ""]
    assert transcript.finish == "stop" and transcript.stopped_by_text
    assert transcript.by_model == {0: 2, 1: 1}


def test_a_stop_string_that_ends_the_text_at_max_tokens_is_a_stop():
    transcript, shown = play([b"one ", b"ST", b"OP"], ["STOP"])

    assert "".join(s.text for s in shown) == "one "
    assert transcript.finish == "stop"


def test_a_stop_string_that_only_began_is_shown_at_max_tokens():
    transcript, shown = play([b"one ", b"ST", b"O"], ["STOP"])

    assert "".join(s.text for s in shown) == "one STO"
    assert (transcript.finish, transcript.stopped_by_text) == ("length", False)


def test_a_stop_string_may_consist_of_a_broken_character():
    transcript, shown = play([b"a", b"\xf0\x9f"], ["\ufffd"])

    assert ("".join(s.text for s in shown), transcript.finish) == ("a", "stop")


def test_rules_and_handoffs_are_reported():
    transcript = Transcript(Detokenizer([b"a", b"b"].__getitem__), StopMatcher(Automaton([])))

    transcript.feed(token(0, model=0, rule=1))
    transcript.feed(token(1, model=1, rule=None, switches=1))

    assert transcript.by_rule == {(0, 1): 1, (1, None): 1}
    assert transcript.handoffs == 1
