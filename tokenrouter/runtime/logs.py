"""The lines that a server and its subservers log: one format for all processes, as JSON or as text.

A line says when, how bad it is, which process, and what; `extra=told(status=200)` adds fields to it, and a process may add
some to every line (`context`), as the request that is being answered.

INVARIANT: a record is one line, whatever a client put into it; only a traceback in text adds lines.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

Format = Literal["text", "json"]
Level = Literal["debug", "info", "warning", "error"]
Fields = dict[str, Any]

MARK = "\x1e"  # begins what a subserver logs, and nothing that it or a library prints
_TRACE = "traceback"

_raw = logging.getLogger("tokenrouter.subserver")


class Lines(logging.Formatter):
    """Turns records into lines."""

    def __init__(
        self,
        form: Format,
        process: str,
        context: Callable[[], Fields] = dict,
        mark: str = "",
    ) -> None:
        super().__init__()
        self._write = _json if form == "json" else _text
        self._process = process
        self._context = context
        self._mark = mark

    def format(self, record: logging.LogRecord) -> str:
        """Return one record as it is written."""
        given: Fields = {**self._context(), **getattr(record, "fields", {})}
        fields: Fields = {
            "time": _time(record.created),
            "level": record.levelname.lower(),
            "process": given.pop("process", self._process),
            "message": record.getMessage(),
            **given,
        }
        if record.exc_info:
            fields[_TRACE] = self.formatException(record.exc_info)
        return self._mark + self._write(fields)


def told(**fields: object) -> dict[str, Fields]:
    """Return what `extra` of a logging call must be, so that these fields are in its line."""
    return {"fields": fields}


def _time(seconds: float) -> str:
    when = datetime.fromtimestamp(seconds, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z"


def _json(fields: Fields) -> str:
    return json.dumps(fields, default=str)


def _text(fields: Fields) -> str:
    head = [str(fields.pop(name)) for name in ("time", "level", "process", "message")]
    trace = fields.pop(_TRACE, None)
    head[-1] = _one_line(head[-1])
    line = " ".join([*head, *(f"{name}={_value(value)}" for name, value in fields.items())])
    return line if trace is None else f"{line}\n{trace}"


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    plain = text.isascii() and text.isprintable() and not set(text) & set(' "=')
    return text if (plain and text) or not isinstance(value, str) else json.dumps(text)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def configure(
    form: Format,
    level: Level,
    process: str,
    context: Callable[[], Fields] = dict,
    *,
    marked: bool = False,
) -> None:
    """Write everything that is logged in this process to stderr, as lines of one format.

    Of libraries only warnings are written unless the level is debug: their lines are about themselves.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines(form, process, context, MARK if marked else ""))
    lowest = logging.getLevelNamesMapping()[level.upper()]
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(lowest if level == "debug" else max(lowest, logging.WARNING))
    logging.getLogger("tokenrouter").setLevel(lowest)
    logging.captureWarnings(True)


def relay(process: str, line: str) -> None:
    """Write a line that a subserver has written: as it is where it was logged, else as a warning of that process."""
    if line.startswith(MARK):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            sys.stderr.write(line.removeprefix(MARK) + "\n")
            sys.stderr.flush()
    elif line.strip():
        _raw.warning("%s", line.rstrip(), extra=told(process=process))


def message_of(line: str) -> str:
    """Return what a line says, without what is around it where it is JSON."""
    line = line.removeprefix(MARK).strip()
    if line.startswith("{"):
        try:
            return str(json.loads(line)["message"])
        except (ValueError, KeyError):
            return line
    return line


def since(begun: float) -> float:
    """Return the milliseconds from a monotonic time until now, as they are told in a line."""
    return round(1e3 * (time.monotonic() - begun), 2)
