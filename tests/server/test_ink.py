"""Who wrote what can be seen with colour and without, and a model's text cannot steer a terminal."""

import io
import re

import pytest

from tokenrouter.server.ink import Ink, harmless, totals, wants_colour

PIECES = [("One ", "small"), ("two", "small"), (" three", "large"), ("", "small"), (".", "mid")]


def painted(colour):
    ink = Ink(["small", "large", "mid"], colour)
    return "".join([*(ink.write(*piece) for piece in PIECES), ink.close()])


def test_without_colour_each_other_model_stands_in_brackets_of_its_own():
    assert painted(colour=False) == "One two[ three]{.}"


def test_with_colour_the_ink_changes_only_where_the_model_does():
    text = painted(colour=True)

    assert re.findall(r"\x1b\[[\d;]*m", text) == [
        "\x1b[36m",
        "\x1b[0m",
        "\x1b[1;33m",
        "\x1b[0m",
        "\x1b[35m",
        "\x1b[0m",
    ]
    assert re.sub(r"\x1b\[[\d;]*m", "", text) == "One two three."


def test_the_legend_shows_each_name_in_its_own_ink():
    assert Ink(["small", "large"], colour=False).legend() == "small  [large]"


def test_control_characters_are_shown_and_not_sent():
    assert harmless("a\x1b[2Jb\r\x07\n\tc\x9b") == "a\\x1b[2Jb\\x0d\\x07\n\tc\\x9b"
    assert Ink(["small"], colour=False).write("\x1b]0;x\x07", "small") == "\\x1b]0;x\\x07"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "env", "colour"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
    ids=["terminal", "declined", "declined with nothing", "dumb", "pipe"],
)
def test_colour_needs_a_terminal_and_a_user_who_wants_it(monkeypatch, stream, env, colour):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    assert wants_colour(stream) is colour


def test_the_totals_name_every_model():
    line = totals({"small": 3, "large": 1}, 2, 2.0)

    assert line == "4 tokens: small 3 (75%), large 1 (25%); 2 hand-offs; 2.0 tokens/s"
    assert totals({"small": 0}, 1, 0.0) == "0 tokens: small 0; 1 hand-off; 0.0 tokens/s"
