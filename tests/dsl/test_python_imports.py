"""Where a name of `tokenrouter.lang` is missed, and where its import is written: at every shape of a file."""

import pytest

from tests.dsl.test_python_mistakes import IMPORT, SOUND
from tokenrouter.dsl.fixes import apply
from tokenrouter.dsl.load import examine


def codes(text):
    return [d.code for d in examine(text, "p.py").diagnostics]


def mended(text):
    """Return a file after the one fix that it needs, which must be enough."""
    [problem] = examine(text, "p.py").diagnostics
    assert problem.code == "TR6007"
    out, _ = apply(text, "p.py", [problem])
    assert codes(out) == []
    return out


@pytest.mark.parametrize(
    "own",
    [
        SOUND.replace("step", "mean"),  # an argument, and a part of a method's name
        SOUND.replace(
            IMPORT, f"{IMPORT}, signal\n\n\n@signal\ndef ewma(step):\n    return step.entropy > 1\n"
        ).replace("step.entropy > tau and", "ewma(step) and"),
        SOUND.replace("Both", "signal"),  # a class
        SOUND.replace("turns", "start"),  # what is assigned
    ],
    ids=["argument", "function", "class", "variable"],
)
def test_a_name_that_a_file_gives_a_meaning_is_not_missed(own):
    assert "TR6007" not in codes(own)


def test_each_name_is_missed_where_it_is_used_first_and_the_first_of_all_leads():
    text = SOUND.replace(" at,", "").replace(", retry", "").replace(", test", "")

    [problem] = examine(text, "p.py").diagnostics

    places = [problem.span, *(label.span for label in problem.labels)]
    assert [text[span.start : span.end] for span in places] == ["at", "retry", "test"]
    assert [span.start for span in places] == [
        text.index("@at(") + 1,
        text.index("retry("),
        text.index('test("'),
    ]


def test_a_missing_name_goes_into_the_last_of_several_imports():
    first = IMPORT.replace(", test, var", "")
    text = SOUND.replace(IMPORT, f"{first}\nfrom tokenrouter.lang import var")

    assert f"{first}\nfrom tokenrouter.lang import var, test\n" in mended(text)


def test_an_import_is_written_above_a_decorator_and_below_a_text():
    signal = "@signal\ndef shaky(step):\n    return step.entropy > 1\n\n\n"
    used = SOUND.replace("step.entropy > tau and", "shaky(step) and").replace(IMPORT, "").lstrip()
    text = f'"""About it."""\n\n{signal}{used}'

    assert mended(text).startswith('"""About it."""\n\nfrom tokenrouter.lang import signal, ')
