"""A real Helix, in a terminal: it opens a broken policy, shows what is wrong, takes the fix and lays the file out as it saves it.

Helix is Debian 13's, started beside its own C library (tools/foreign.sh), hence slow.
"""

import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import contextmanager

import pyte
import pytest

from tests.editors.texts import ROOT
from tests.lsp.test_neovim import BROKEN, MENDED

pytestmark = pytest.mark.slow
HELIX = ROOT / ".cache/debian/run"
SECONDS = 60


class Terminal:
    """What a person sees and types."""

    def __init__(self, program, rows=30, columns=140):
        """Start a program."""
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(program[0], program, program_environment())
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        """Take in what was written; tell whether the program still runs."""
        while select.select([self.fd], [], [], 0.05)[0]:
            try:
                written = os.read(self.fd, 65536)
            except OSError:
                return False
            if not written:
                return False
            self.stream.feed(written)
        return True

    def wait(self, *texts):
        """Read until all these texts are to be seen."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            alive = self.read()
            shown = " ".join(" ".join(self.screen.display).split())
            if all(text in shown for text in texts):
                return
            assert alive, shown
        pytest.fail(f"{texts} never came:\n" + "\n".join(self.screen.display))

    def type(self, keys):
        """Press keys."""
        os.write(self.fd, keys.encode())

    def colours(self, line):
        """Return the words of a line of the screen with their colours."""
        found, row = {}, self.screen.buffer[line]
        text = self.screen.display[line]
        for word in text.split():
            found[word] = row[text.index(word)].fg
        return found


def program_environment():
    return {
        **os.environ,
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "PYTHONPATH": str(ROOT),
    }


@contextmanager
def opened(path):
    """Open a file in Helix."""
    terminal = Terminal([str(HELIX), "hx", str(path)])
    try:
        yield terminal
    finally:
        os.kill(terminal.pid, signal.SIGKILL)
        os.waitpid(terminal.pid, 0)
        os.close(terminal.fd)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home in which Helix is set up as docs/editors.md says, but for the colours."""
    subprocess.run(["sh", "tools/foreign.sh"], cwd=ROOT, check=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "HELIX_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    trc = tmp_path / "bin/trc"
    trc.parent.mkdir()
    trc.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tokenrouter.cli "$@"\n')
    trc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{trc.parent}{os.pathsep}{os.environ['PATH']}")
    config = tmp_path / ".config/helix"
    config.mkdir(parents=True)
    given = (ROOT / "editors/helix/languages.toml").read_text(encoding="utf-8")
    (config / "languages.toml").write_text(given.replace("/path/to/tokenrouter", str(ROOT)))
    return tmp_path


def build(home):
    """Add the colours, as docs/editors.md says."""
    config = home / ".config/helix"
    shutil.copytree(ROOT / "editors/helix/queries", config / "runtime/queries")
    (config / "runtime/grammars").mkdir()
    languages = config / "languages.toml"
    languages.write_text('use-grammars = { only = ["route"] }\n' + languages.read_text())
    done = subprocess.run(
        [HELIX, "hx", "--grammar", "build"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (config / "runtime/grammars/route.so").is_file()


@pytest.mark.parametrize("coloured", [False, True], ids=["without the grammar", "with the grammar"])
def test_helix_shows_a_mistake_mends_it_and_saves_the_file_laid_out(home, coloured):
    if coloured:
        build(home)
    path = home / "p.route"
    path.write_text(BROKEN, encoding="utf-8")

    with opened(path) as helix:
        helix.wait("model small", "● 9")  # a mark beside line 9
        helix.type("]d")
        helix.wait("`&&` is written `and` here", "(TR0104)")
        helix.type(" a")
        helix.wait("write `and`", "apply the safe fix")
        helix.type("\r")
        helix.wait("nats and margin")
        helix.type(":w\r")
        helix.wait("entropy > 1 nats and margin < 10% -> borrow")
        helix.wait("written")

    assert path.read_text(encoding="utf-8") == MENDED


PAINTS = {  # the colours of a theme of our own
    "keyword": "#000001", "keyword.storage.type": "#000002", "keyword.control": "#000003", "keyword.operator": "#000004",
    "type": "#000005", "type.builtin": "#000006", "constant.numeric": "#000007", "operator": "#000008", "function": "#000009",
    "function.builtin": "#00000a", "variable": "#00000b", "variable.parameter": "#00000c", "comment": "#00000d",
    "variable.other.member": "#00000e", "ui.selection": "#00000f", "ui.cursor": "#000010",
}  # fmt: skip
POLICY = """route 1
model small { use "s" }
head sure { file "h.safetensors" }
param tau: nats = 1 nats
policy p {
  start small
  at any {
    when entropy > tau and sure < 10% -> stop # words
    otherwise -> commit
  }
}
"""


def test_helix_colours_indents_completes_and_explains(home):
    build(home)
    themes = home / ".config/helix/themes"
    themes.mkdir()
    paints = "".join(f'"{scope}" = "{colour}"\n' for scope, colour in PAINTS.items())
    (themes / "paints.toml").write_text(paints)
    (home / ".config/helix/config.toml").write_text('theme = "paints"\n')
    path = home / "p.route"
    path.write_text(POLICY, encoding="utf-8")

    with opened(path) as helix:
        helix.wait("otherwise", "● ")
        painted = {colour[1:]: scope for scope, colour in PAINTS.items()}
        line = {word: painted.get(fg) for word, fg in helix.colours(7).items()}
        assert line == {
            "8": None,
            "when": "keyword",
            "entropy": "function.builtin",
            ">": "operator",
            "tau": "variable.parameter",
            "and": "keyword.operator",
            "sure": "function",
            "<": "operator",
            "10%": "constant.numeric",
            "->": "operator",
            "stop": "keyword.control",
            "#": "comment",
            "words": "comment",
        }
        helix.type("/entropy\r")
        helix.type(" k")
        helix.wait("Shannon entropy", "[0, ∞)")
        helix.type(":7\ro")  # a line below `at any {`
        helix.type("whe")
        helix.wait("when keyword")
        helix.type("\x1b")
        helix.wait("NOR")
        helix.type(":w\r")
        helix.wait("written")

    assert path.read_text(encoding="utf-8") == POLICY.replace("any {\n", "any {\n    whe\n")
