"""A real Neovim opens a broken policy, shows what is wrong, applies the fix and lays the file out as it saves it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.editors.trees import compiled
from tests.lsp.conftest import SERVER

ROOT = Path(__file__).parents[2]
BROKEN = """route 1

model small { use "s" }
model large {use "l"}

policy p {
    start small
  at any {
    when entropy>1 nats && margin < 10%->borrow large for 4
    otherwise -> commit
  }
}
"""
MENDED = """route 1

model small { use "s" }
model large { use "l" }

policy p {
  start small
  at any {
    when entropy > 1 nats and margin < 10% -> borrow large for 4
    otherwise                              -> commit
  }
}
"""


def neovim(version):
    """Return how a Neovim is started: that of this machine, or Debian 13's beside its own C library."""
    if version == "own":
        found = shutil.which("nvim")
        assert found, "Neovim is not installed; tools/neovim.sh installs it on Debian, as root"
        return [found]
    subprocess.run(["sh", "tools/foreign.sh"], cwd=ROOT, check=True)
    return [ROOT / ".cache/debian/run", "nvim"]


def drive(nvim, path, wanted, *runtime):
    """Run the script in a Neovim that knows only what editors/neovim gives it; return its notes by name."""
    command = "{" + ", ".join(json.dumps(part) for part in SERVER) + "}"
    notes = path.with_suffix(".notes")
    done = subprocess.run(
        [
            *nvim, "--headless", "--clean", "-n",
            *(part for folder in (ROOT / "editors/neovim", *runtime) for part in ("--cmd", f"set runtimepath^={folder}")),
            "--cmd", f"lua vim.g.trc_command = {command}",
            "-c", f"luafile {Path(__file__).with_name('drive.lua')}",
            str(path),
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env={
            **os.environ,
            "NOTES": str(notes),
            "WANTED": wanted,
            "PYTHONPATH": str(ROOT),
            "XDG_STATE_HOME": str(path.parent / "state"),
            "XDG_CACHE_HOME": str(path.parent / "cache"),
            "XDG_DATA_HOME": str(path.parent / "data"),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr, done.stderr
    return dict(json.loads(line) for line in notes.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("version", ["own", pytest.param("0.10", marks=pytest.mark.slow)])
def test_neovim_shows_a_mistake_mends_it_and_saves_the_file_laid_out(version, tmp_path):
    nvim = neovim(version)
    path = tmp_path / "p.route"
    path.write_text(BROKEN, encoding="utf-8")

    told = drive(nvim, path, "write `and`")

    assert told["filetype"] == "route"
    assert told["syntax"] == "routeDeclare"
    assert told["captures"] == []
    assert told["shown in time"] and told["mended in time"]
    (shown,) = told["diagnostics"]
    assert (shown["line"], shown["text"], shown["code"]) == (8, "&&", "TR0104")
    assert "write `and`" in told["offered"]
    assert path.read_text(encoding="utf-8") == MENDED


@pytest.mark.slow
def test_neovim_colours_by_the_parser_where_there_is_one(tmp_path):
    (tmp_path / "parser").mkdir()
    compiled(tmp_path / "parser")
    path = tmp_path / "p.route"
    path.write_text(BROKEN, encoding="utf-8")

    told = drive(neovim("0.10"), path, "write `and`", tmp_path)

    assert told["captures"] == ["keyword"]
    assert path.read_text(encoding="utf-8") == MENDED


def test_the_words_that_editors_colour_are_those_of_the_language():
    done = subprocess.run(
        [sys.executable, ROOT / "tools/editors.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
