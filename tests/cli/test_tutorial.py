"""docs/tutorial.md as a newcomer follows it, in an empty folder: every command runs, every answer is the one on the page."""

import re
import subprocess
from pathlib import Path

import pytest

from tokenrouter import cli

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"```(console|)\n(.*?)```", re.DOTALL)


def parts():
    """Return the page before the demo pair is needed, and from there on."""
    text = PAGE.read_text(encoding="utf-8")
    at = text.index("## Run it")
    return text[:at], text[at:]


def follow(text, capfd):
    """Type what a part of the page tells to; yield each command with what the page shows and what came."""
    for kind, block in BLOCK.findall(text):
        if not kind:
            Path("mine.route").write_text(block, encoding="utf-8")
            continue
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            if command.startswith("trc "):
                words = re.findall(r'"([^"]*)"|(\S+)', command)
                status = cli.main([quoted or bare for quoted, bare in words[1:]])
            else:
                status = subprocess.run(command, shell=True, check=True).returncode
            told = capfd.readouterr()
            yield command, status, shown, (told.out + told.err, told.err + told.out)


def as_shown(shown, came, numbers):
    """Return whether an answer is the one on the page; `...` stands for any lines, a number for any where they vary."""
    pattern = re.escape(shown.rstrip("\n") + "\n")
    pattern = re.sub(r"^\\\.\\\.\\\.\n", r"(?s:.*\\n)?", pattern.replace("\\\n", "\n"), flags=re.M)
    if numbers:
        pattern = re.sub(r"\b[0-9a-f]{16}\b", r"\\w{16}", pattern)  # hashes of the pair's weights
        pattern = re.sub(r"(?<![{\d])\d+(?:\\\.\d+)*", r"[\\d.]+", pattern)
        pattern = re.sub(r"(?:\\ )+", r" +", pattern)
    return re.fullmatch(pattern, came.rstrip("\n") + "\n") is not None


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path / "cache"


def test_the_page_is_true_as_far_as_no_weights_are_needed(folder, capfd, monkeypatch):
    # Where the demo pair is at hand, a check knows the size of its vocabulary, and tells narrower bounds.
    monkeypatch.setenv("TOKENROUTER_CACHE", str(folder))
    ran = [command for command, *_ in followed(parts()[0], capfd, numbers=False)]

    assert len(ran) == 12 and ran[0] == "trc check mine.route"


@pytest.mark.demo
def test_the_rest_of_the_page_is_true_with_the_demo_pair(folder, capfd):
    before, after = parts()
    Path("mine.route").write_text(
        [block for kind, block in BLOCK.findall(before) if not kind][-1], encoding="utf-8"
    )

    ran = [command for command, *_ in followed(after, capfd, numbers=True)]

    assert len(ran) == 7 and ran[-1].startswith("trc simulate")


def followed(text, capfd, numbers):
    found = []
    for command, status, shown, orders in follow(text, capfd):
        if command.startswith("trc run "):  # another machine may draw another answer
            shown, orders = "...\n" + shown.splitlines(keepends=True)[-1], orders[:1]
        assert any(as_shown(shown, came, numbers) for came in orders), f"{command}\n{orders[0]}"
        found.append((command, status))
    return found


def test_an_answer_that_differs_in_a_letter_is_another():
    assert as_shown("a\n...\nb 1\n", "a\nx\ny\nb 1\n", numbers=False)
    assert as_shown("a 12  b\n", "a 3.5 b\n", numbers=True)
    assert not as_shown("a\n...\nb\n", "a\nx\ny\nc\n", numbers=False)
    assert not as_shown("a 1\n", "a 2\n", numbers=False)
