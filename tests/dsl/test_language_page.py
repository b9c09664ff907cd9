"""docs/language.md: its lists are those of the code, and every policy on it is one."""

import re
from pathlib import Path

import pytest

from tokenrouter.diagnostics import CODES
from tokenrouter.dsl.load import examine
from tools import language_docs

PAGES = [Path(__file__).parents[2] / "docs" / name for name in ("language.md", "tutorial.md")]
BLOCKS = [
    pytest.param(block, kind, id=f"{page.stem}-{at}")
    for page in PAGES
    for at, (kind, block) in enumerate(
        re.findall(r"```(python|)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    )
    if block.startswith(("route 1", "from tokenrouter.lang"))
]


def test_the_lists_are_made_from_the_code():
    text = language_docs.PAGE.read_text(encoding="utf-8")

    assert language_docs.written(text) == text
    assert "| `entropy` | nats |" in text and "| [TR2201](diagnostics/TR2201.md) |" in text


def test_what_the_compiler_finds_has_codes_and_tests_that_hold_them():
    root = language_docs.PAGE.parents[1]
    text = language_docs.PAGE.read_text(encoding="utf-8").partition("| what | codes | tests |\n")[2]
    rows = [line.split("|")[1:-1] for line in text.partition("\n\n")[0].splitlines()[1:]]

    assert len(rows) == 14
    for what, codes, files in rows:
        tested = "".join(
            (root / name).read_text(encoding="utf-8")
            for name in re.findall(r"`(tests/\S+)`", files)
        )
        wanted = re.findall(r"\[(TR\d+)\]", codes) or ["could stop for ever", "can stop for ever"]
        assert tested, what
        assert any(code in tested for code in wanted) or "test_pages.py" in files, what
        assert set(re.findall(r"TR\d+", codes)) <= set(CODES), what


@pytest.mark.parametrize(("block", "kind"), BLOCKS)
def test_a_policy_on_the_page_is_sound(block, kind):
    found = examine(block, "page.py" if kind else "page.route").diagnostics

    assert [d for d in found if d.severity == "error"] == []


def test_the_page_names_the_policy_of_every_published_algorithm():
    examples = {path.stem for path in (language_docs.PAGE.parents[1] / "examples").glob("*.route")}
    ours = {"always_small", "demo", "guarded"}
    text = language_docs.PAGE.read_text(encoding="utf-8")

    assert [
        name for name in sorted(examples - ours) if f"../examples/{name}.route" not in text
    ] == []
