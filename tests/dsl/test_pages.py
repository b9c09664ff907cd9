"""Every code has a page, and its two examples are true: the bad one raises exactly that code, the good one nothing."""

from pathlib import Path

import pytest

from tokenrouter.commands.check import everything
from tokenrouter.diagnostics import CODES
from tokenrouter.dsl.load import examine, parse_text
from tokenrouter.dsl.pages import examples, page

PAGES = Path(__file__).parents[2] / "docs/diagnostics"
SECTIONS = ["## What it checks", "## Why", "## Example", "## Instead"]
# What is only wrong together with a command's arguments, or with the models at hand.
ARGUMENTS = {"TR1008": {"sets": {"tua": "2"}}, "TR1011": {"one": True}}
WITH_MODELS = sorted(code for code in CODES if code.startswith("TR4"))
ALONE = sorted(set(CODES) - set(ARGUMENTS) - set(WITH_MODELS))


def file(code):
    return f"{code}.py" if code.startswith("TR6") else f"{code}.route"


def codes(text, code):
    return [d.code for d in everything(text, file(code)).diagnostics]


def test_pages_and_codes_are_the_same_set():
    assert {path.stem for path in PAGES.glob("TR*.md")} == set(CODES)


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_page_has_its_title_severity_and_sections(code):
    text = page(code)

    assert text.startswith(f"# {code}: {CODES[code].title}\n\n{CODES[code].severity}\n")
    assert [line for line in text.splitlines() if line.startswith("## ")] == SECTIONS


@pytest.mark.parametrize("code", ALONE)
def test_the_bad_example_raises_exactly_its_code(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bad = examples(page(code)).bad
    (tmp_path / file(code)).write_text(bad, encoding="utf-8")  # TR1202 imports itself

    found = everything(bad, file(code)).diagnostics

    assert [d.code for d in found] == [code]
    assert found[0].severity == CODES[code].severity


@pytest.mark.parametrize("code", ALONE)
def test_the_good_example_is_clean(code):
    assert codes(examples(page(code)).good, code) == []


@pytest.mark.parametrize("code", sorted(ARGUMENTS))
def test_what_arguments_make_wrong_raises_its_code(code):
    from tokenrouter.diagnostics import PolicyError

    bad, good = examples(page(code))

    with pytest.raises(PolicyError) as caught:
        parse_text(bad, **ARGUMENTS[code])
    assert [d.code for d in caught.value.diagnostics] == [code]
    assert examine(good).diagnostics == ()


@pytest.mark.parametrize("code", WITH_MODELS)
def test_examples_that_need_models_are_clean_without_them(code):
    for text in examples(page(code)):
        assert codes(text, code) == []
