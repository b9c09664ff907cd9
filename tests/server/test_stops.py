"""Stop strings: any cut of any text gives what a look at the whole text gives."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokenrouter.server.stops import Automaton, StopMatcher

TEXTS = st.text("abAB한", max_size=24)
STOPS = st.lists(st.text("abAB한", min_size=1, max_size=5), min_size=1, max_size=4)


def oracle(text, stops):
    """The text before the stop string that is complete first; the longest of those."""
    for end in range(1, len(text) + 1):
        found = [s for s in stops if text[:end].endswith(s)]
        if found:
            return text[: end - max(map(len, found))], True
    return text, False


def longest_real_prefix(text, stops):
    lengths = {k for s in stops for k in range(len(s)) if text.endswith(s[:k])}
    return max(lengths)


def stream(text, stops, sizes):
    matcher, shown, at = StopMatcher(Automaton(stops)), [], 0
    for size in [*sizes, len(text)]:
        fed = matcher.feed(text[at : at + size])
        shown.append(fed.text)
        if fed.stopped:
            return "".join(shown), True
        at += size
    shown.append(matcher.flush())
    return "".join(shown), False


@given(TEXTS, STOPS, st.lists(st.integers(0, 5), max_size=12))
@example("aab", ["aab"], [1, 1])
@example("abab", ["babA", "ab"], [1])
@example("abAa", ["abAB", "bA"], [2])
def test_any_cut_ends_where_the_whole_text_does(text, stops, sizes):
    assert stream(text, stops, sizes) == oracle(text, stops)


@given(TEXTS, STOPS)
def test_only_a_real_prefix_of_a_stop_string_is_held_back(text, stops):
    matcher = StopMatcher(Automaton(stops))

    for end in range(1, len(text) + 1):
        if matcher.feed(text[end - 1]).stopped:
            break
        assert len(matcher.held) == longest_real_prefix(text[:end], stops)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40])
def test_nothing_of_a_stop_string_leaks(size):
    text = "Here is the English alphabet: ABCDEFGHIJKLMNOP"

    shown, stopped = stream(text, ["DEFGHIJ"], [size] * 50)

    assert (shown, stopped) == ("Here is the English alphabet: ABC", True)


def test_a_stop_string_that_only_began_is_shown_at_the_end():
    assert stream("one two thr", ["three"], [9, 1]) == ("one two thr", False)


def test_a_stop_string_may_end_the_text_exactly():
    assert stream("one two three", ["three"], [9, 1, 3]) == ("one two ", True)


def test_without_stop_strings_nothing_is_held():
    matcher = StopMatcher(Automaton([]))

    assert matcher.feed("abc") == ("abc", False)
    assert matcher.flush() == ""


def test_an_empty_stop_string_is_our_mistake():
    with pytest.raises(AssertionError, match="empty"):
        Automaton(["a", ""])
