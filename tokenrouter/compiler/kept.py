"""What was found of models, kept for the next `trc check`: a file a model, in the user's cache.

An entry counts as long as every file that it was made from is the same file, with the same size and times, and so is the code
that reads them. A cache is a matter of speed only: an entry that is stale or damaged is made anew, one that cannot be written is not
kept. A plan names a model by its fingerprint, which must never be an old one, so `trc compile` reads the model itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from tokenrouter import models
from tokenrouter.compiler.facts import Facts, Outline
from tokenrouter.compiler.gather import read
from tokenrouter.demo.fetch import cache_dir
from tokenrouter.models.config import ModelConfig
from tokenrouter.models.dummy import SHAPES
from tokenrouter.models.files import identity
from tokenrouter.models.locate import Located, locate
from tokenrouter.version import __version__

FORM = 1  # of an entry; goes up with every change of what it holds
YOUNG_S = (
    2.0  # a file may change again within the grain of its file system's clock, and keep its times
)
MOST = 256  # entries; the oldest give way
_NAMES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)


class Entry(msgspec.Struct, frozen=True):
    """One model; the table of its vocabulary is read where somebody asks for it."""

    stamp: str  # of what it was made from
    fingerprint: str
    config: ModelConfig
    template: str | None
    parameters: int
    size: int  # of the vocabulary
    digest: str  # of the vocabulary


class Stamp(NamedTuple):
    """What an entry was made from."""

    digest: str
    newest_ns: int  # the last change of any of the files


def directory() -> Path:
    """Return where entries are kept; it need not exist."""
    return cache_dir() / "facts"


def facts_of(use: str, base: Path) -> Facts:
    """Return the kept facts of a model, or else what its files say, which is then kept. Raises ModelError."""
    return facts_at(locate(use, base))


def facts_at(located: Located) -> Facts:
    """Return the facts of a model that lies there, as `facts_of` does. Raises ModelError."""
    try:
        path, stamp = directory() / _key(located), _stamp(located)
    except (OSError, RuntimeError):  # a user without a home has no cache
        return read(located)
    entry = _load(path)
    if entry is not None and entry.stamp == stamp.digest:
        return _facts(entry, located)
    facts = read(located)
    with contextlib.suppress(OSError):
        if _stamp(located) == stamp and time.time_ns() - stamp.newest_ns > YOUNG_S * 1e9:
            _keep(path, _entry(facts, stamp.digest))
    return facts


def _facts(entry: Entry, located: Located) -> Facts:
    return Facts(
        fingerprint=entry.fingerprint,
        config=entry.config,
        vocabulary=Outline(entry.size, entry.digest, located),
        template=entry.template,
        parameters=entry.parameters,
    )


def _entry(facts: Facts, stamp: str) -> Entry:
    return Entry(
        stamp=stamp,
        fingerprint=facts.fingerprint,
        config=facts.config,
        template=facts.template,
        parameters=facts.parameters,
        size=facts.vocabulary.size,
        digest=facts.vocabulary.digest,
    )


def _key(located: Located) -> str:
    """Return the name of a model's entry: where the model lies, in real paths."""
    shape = located.kind == "dummy" and str(located.path) in SHAPES
    path = str(located.path) if shape else os.path.realpath(located.path)
    teacher = "" if located.teacher is None else os.path.realpath(located.teacher)
    parts = (located.kind, path, teacher, str(located.seed))
    return hashlib.sha256(os.fsencode("\0".join(parts))).hexdigest()


def _stamp(located: Located) -> Stamp:
    """Return what the files are, by what the file system says of them; raises OSError."""
    code = (entry.path for entry in os.scandir(models.__path__[0]) if entry.name.endswith(".py"))
    lines = [f"{FORM} {__version__}", *(_line(path)[0] for path in sorted(code))]
    newest = 0
    for path in files(located):
        line, changed = _line(path)
        lines.append(line)
        newest = max(newest, changed)
    return Stamp(hashlib.sha256(os.fsencode("\n".join(lines))).hexdigest(), newest)


def _line(path: str | Path) -> tuple[str, int]:
    """Return what a file is, and when it changed last; raises OSError."""
    name = os.path.basename(path)
    try:
        at = identity(path)
    except (FileNotFoundError, NotADirectoryError):
        return f"{name} is not there", 0
    return f"{name} {' '.join(map(str, at))}", max(at.mtime_ns, at.ctime_ns)


def files(located: Located) -> Iterator[Path]:
    """Yield every file that may be read for a model's facts, those too that are not there."""
    if located.teacher is not None:
        yield located.teacher
    if located.kind == "gguf":
        yield located.path
    elif located.kind != "dummy" or str(located.path) not in SHAPES:
        yield from (located.path / name for name in _NAMES)
        yield from sorted(located.path.glob("*.safetensors"))


def _load(path: Path) -> Entry | None:
    """Return an entry; None where there is none that is whole."""
    try:
        digest, _, data = path.read_bytes().partition(b"\n")
        if hashlib.sha256(data).hexdigest().encode() != digest:
            return None
        return msgspec.json.decode(data, type=Entry)
    except (OSError, msgspec.MsgspecError):
        return None


def _keep(path: Path, entry: Entry) -> None:
    """Put a whole file in place, so that no reader ever sees half of one. Raises OSError."""
    try:
        data = msgspec.json.encode(entry)
        if msgspec.json.decode(data, type=Entry) != entry:
            return  # what JSON has no word for, such as an infinite theta
    except (msgspec.MsgspecError, ValueError, OverflowError, TypeError):
        return
    import tempfile  # noqa: PLC0415 seldom

    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
        os.replace(name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    _thin(path.parent)


def _thin(place: Path) -> None:
    """Drop the oldest entries where there are too many: models come and go."""
    ages = sorted((entry.stat().st_mtime_ns, entry.path) for entry in os.scandir(place))
    for _, path in ages[: max(0, len(ages) - MOST)]:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
