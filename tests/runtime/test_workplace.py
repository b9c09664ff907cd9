"""The directory of a front end goes away with it, however it ends, and nobody removes one that is in use."""

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tokenrouter.runtime.workplace import LOCK, PREFIX, Workplace, sweep

OWNER = """
import sys, time
from tokenrouter.runtime.workplace import Workplace
print(Workplace().path, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """A folder for temporary files that no other front end uses."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def owner():
    """Another process, in a group of its own, with a directory."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def gone(path):
    deadline = time.monotonic() + 60
    while path.exists():
        assert time.monotonic() < deadline, "it stays"
        time.sleep(0.02)


def test_a_directory_is_its_users_alone_and_is_removed_at_the_end():
    place = Workplace()

    assert place.path.stat().st_mode & 0o777 == 0o700
    (place.path / "boot.json").write_text("{}")
    place.close()

    assert not place.path.exists()


def test_the_directory_of_an_owner_that_is_killed_is_removed(owner):
    process, path = owner
    assert path.is_dir()

    process.kill()

    gone(path)


def test_what_nobody_could_remove_is_removed_by_the_next_start_and_what_is_in_use_stays(owner):
    process, path = owner
    (path / "m0.log").write_text("x")
    sweep()
    assert path.is_dir()
    os.killpg(process.pid, 9)  # and the shell that waits for its end
    process.wait()

    place = Workplace()

    assert not path.exists() and place.path.is_dir()
    place.close()


def test_a_directory_of_somebody_else_is_left_alone(temporary):
    without_lock, elsewhere = temporary / f"{PREFIX}a", temporary / "other"
    without_lock.mkdir()
    elsewhere.mkdir()
    (elsewhere / LOCK).write_text("")
    link = temporary / f"{PREFIX}b"
    link.mkdir()
    (link / LOCK).symlink_to(elsewhere / LOCK)

    sweep()

    assert without_lock.is_dir() and link.is_dir() and elsewhere.is_dir()


def test_who_tidies_up_old_files_finds_the_directory_locked():
    place = Workplace()
    entered = os.open(place.path, os.O_RDONLY)

    with pytest.raises(BlockingIOError):
        fcntl.flock(entered, fcntl.LOCK_EX | fcntl.LOCK_NB)

    place.close()
    fcntl.flock(entered, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(entered)
