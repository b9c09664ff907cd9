"""The subserver processes of one front end: started, watched, started again, ended.

It knows nothing of messages and requests. All files (boot.json, sockets, logs) lie in one directory, the `Workplace`.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.logs import message_of
from tokenrouter.runtime.settings import Boot, Settings
from tokenrouter.runtime.waiting import environment
from tokenrouter.runtime.workplace import Workplace

log = logging.getLogger("tokenrouter")

FULL = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)  # of processes, memory, descriptors


class Processes:
    """One process a model, each with an epoch that grows with every restart."""

    def __init__(
        self, plan: Plan, settings: Settings, relay: Callable[[str, str], None] | None = None
    ) -> None:
        self.plan = plan
        self._relay = relay  # is given each model's name and line
        self._relayed = [0] * len(plan.models)  # bytes of each log
        self._workplace = Workplace()
        self.directory = self._workplace.path
        self.key = secrets.token_bytes(16)
        boot = Boot(plan=plan, settings=settings, parent=os.getpid(), key=self.key.hex())
        (self.directory / "boot.json").write_bytes(msgspec.json.encode(boot))
        self.epochs = [0] * len(plan.models)
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._due: set[int] = set()  # models that have yet to be started
        self._troubled = False  # whether that was tried in vain, and said

    def start(self, model: int) -> None:
        """Start a model's process under its next epoch; where the machine has no room for one now, `ended` tries again."""
        assert model not in self._running, model
        self.epochs[model] += 1
        self._due.add(model)
        self._start_due()

    def _start_due(self) -> None:
        for model in sorted(self._due):
            try:
                self._start(model)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                if not self._troubled:
                    name = self.plan.models[model].name
                    log.error("subserver `%s` cannot be started, trying again: %s", name, error)
                self._troubled = True
                return
            self._due.discard(model)
        self._troubled = False

    def _start(self, model: int) -> None:
        module = "tokenrouter.runtime.process"
        arguments = [str(self.directory), str(model), str(self.epochs[model])]
        with self.log(model).open("ab") as own:
            self._running[model] = subprocess.Popen(
                # -P: a file of the user's folder must never be taken for a module.
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=own,
                stderr=own,
                env=environment(),
            )

    def log(self, model: int) -> Path:
        """Return where a model's process writes what it has to say."""
        return self.directory / f"m{model}.log"

    def pass_on(self) -> None:
        """Hand over the lines that the processes have written since the last time."""
        if self._relay is None:
            return
        for model, begun in enumerate(self._relayed):
            path = self.log(model)
            try:
                if path.stat().st_size == begun:
                    continue
                with path.open("rb") as lines:
                    lines.seek(begun)
                    # The rest of a line may come later.
                    whole, end, _ = lines.read().rpartition(b"\n")
            except OSError:  # not there yet, or no descriptor for it now
                continue
            self._relayed[model] += len(whole) + len(end)
            for line in whole.split(b"\n") if end else ():
                self._relay(self.plan.models[model].name, line.decode("utf-8", "replace"))

    def last_words(self, model: int) -> str:
        """Return the last line of a model's log; '' where there is none."""
        try:
            lines = self.log(model).read_text("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return message_of(lines[-1]) if lines else ""

    def pid(self, model: int) -> int | None:
        """Return the process id of a model that runs."""
        running = self._running.get(model)
        return None if running is None else running.pid

    def ended(self) -> dict[int, int]:
        """Return the models whose process has ended since the last look, with its exit status; start those that could not be started."""
        self._start_due()
        found = {}
        for model, running in list(self._running.items()):
            status = running.poll()
            if status is not None:
                found[model] = status
                del self._running[model]
        return found

    def kill(self, model: int) -> None:
        """End a model's process at once, where there is one; `ended` will tell."""
        running = self._running.get(model)
        if running is not None:
            running.kill()

    def close(self, patience_s: float) -> None:
        """End what is still there after a while, by force, and remove the directory."""
        end = time.monotonic() + patience_s
        for running in self._running.values():
            try:
                running.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
        self._running.clear()
        self.pass_on()
        self._workplace.close()
