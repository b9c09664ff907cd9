"""The directory of one front end, for boot.json, sockets and logs: only this user can enter it, and nothing of it stays.

It is removed at the end; by a shell that waits for just that where the front end is killed; and by the next start of this
user where that shell was killed too. Its owner holds a lock in it, so nobody removes what is in use, and one on the directory itself,
which keeps out those who tidy up what has lain in /tmp for long (systemd-tmpfiles).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

PREFIX = "trc-"  # short, since a socket's path may have about a hundred bytes
LOCK = "lock"

# Reads until whoever holds the other end of its stdin is gone, whatever the terminal says meanwhile.
_KEEPER = 'trap "" INT TERM HUP; read -r _; rm -rf -- "$1"'


class Workplace:
    """A directory that goes away with this process."""

    def __init__(self) -> None:
        sweep()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        new = self.path / f"{LOCK}.new"
        self._lock = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        new.rename(self.path / LOCK)  # nobody sees it unlocked
        self._kept = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._kept, fcntl.LOCK_SH)
        self._keeper = subprocess.Popen(
            ["/bin/sh", "-c", _KEEPER, "sh", str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def close(self) -> None:
        """Remove the directory."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        self._keeper.wait()
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        os.close(self._kept)


def sweep() -> None:
    """Remove the directories of this user whose owners are gone."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            if path.stat().st_uid != os.getuid():
                continue
            lock = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue  # not one of ours, or not yet
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue  # its owner lives
        finally:
            os.close(lock)
