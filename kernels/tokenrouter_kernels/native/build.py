"""Compiling the sources beside this file, once, and loading what came of it."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tokenrouter_kernels.native.records import SIZES

log = logging.getLogger("tokenrouter")

# A product and a sum are fused where the sources say so and nowhere else, or a row's bits would be the compiler's choice.
FLAGS = [
    "-O3",
    "-std=c++17",
    "-march=native",
    "-ffp-contract=off",
    "-fPIC",
    "-shared",
    "-pthread",
    "-w",
]
HERE = Path(__file__).parent
NEEDED = ("avx2", "fma")
AVX512 = ("avx512f", "avx512bw", "avx512vl")  # are used where all are there
TILES = ("amx_tile", "amx_bf16", "amx_int8")  # likewise, beside AVX-512 with VNNI
NO_TILES = ["-DTOKENROUTER_NO_TILES"]  # no flag of the compiler's: an old one knows nothing of them
# By what TOKENROUTER_NATIVE says: instructions that are left out.
LESS = {
    "1": [],
    "vnni": NO_TILES,
    "avx512": [*NO_TILES, "-mno-avx512vnni", "-mno-avx512bf16"],
    "avx2": [*NO_TILES, "-mno-avx512f"],
}
ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA = 158, 0x1023, 18  # of Linux on x86-64
LIMIT_S = 600  # it takes seconds, and minutes on a crowded machine


class NativeError(Exception):
    """The sources cannot be compiled or loaded here; the reason in one line."""


class LackError(NativeError):
    """This machine lacks what they need: the instructions, or a compiler."""


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the compiled kernels; None where this machine has to do without them, which is told once, or TOKENROUTER_NATIVE is 0.

    Raises NativeError where TOKENROUTER_NATIVE is what nobody knows.
    """
    wish = os.environ.get("TOKENROUTER_NATIVE") or "1"
    if wish == "0":
        return None
    if wish not in LESS:
        raise NativeError(f"TOKENROUTER_NATIVE is `{wish}`; it may be 0, {', '.join(LESS)}")
    try:
        return load(LESS[wish])
    except NativeError as error:
        log.warning("without compiled kernels, and slower for it: %s", error)
        return None


def load(less: Sequence[str] = (), here: Path = HERE) -> ctypes.CDLL:
    """Return the kernels whose sources lie in a directory, compiled now where the cache lacks them; `less`: flags for the compiler. Raises NativeError."""
    features = _features()
    flags = [*FLAGS, *less]
    if has(*TILES) and not tiles_granted():
        flags += NO_TILES
    missing = [name for name in NEEDED if name not in features.split()]
    if missing:
        raise LackError(f"the processor lacks {missing[0]}")
    compiler = shutil.which(os.environ.get("CXX") or "c++")
    if compiler is None:
        raise LackError("no C++ compiler is installed ($CXX, or `c++` on the path)")
    sources = [here / "decoder.cpp", *sorted(here.glob("*.h"))]
    digest = hashlib.sha256(features.encode())
    for part in (os.path.realpath(compiler), _version(compiler), *flags):
        digest.update(part.encode() + b"\0")
    for source in sources:
        digest.update(source.read_bytes() + b"\0")
    file = directory() / f"decoder-{digest.hexdigest()[:20]}.so"
    if not file.is_file():
        compile_into([compiler, *flags, str(sources[0])], file)
    return _opened(file)


def directory() -> Path:
    """Return where compiled kernels are kept."""
    if own := os.environ.get("TOKENROUTER_CACHE"):
        return Path(own) / "native"
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "tokenrouter" / "native"
    return Path.home() / ".cache" / "tokenrouter" / "native"


def _features() -> str:
    """Return what the processor can do, in Linux's words."""
    if sys.platform != "linux":
        return ""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2] for line in lines if line.startswith("flags")), "")


def _version(compiler: str) -> str:
    return _ran([compiler, "--version"]).stdout


def has(*names: str) -> bool:
    """Return whether the processor has instructions, in Linux's words."""
    return set(names) <= set(_features().split())


@functools.cache
def tiles_granted() -> bool:
    """Ask Linux, which saves the tiles of processes that asked alone, to let this one use them, and return whether it does."""
    return ctypes.CDLL(None).syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0


def compile_into(command: list[str], file: Path) -> None:
    """Run a compiler and lay what it made at a path, by way of a file of its own: several processes may do so at once. Raises NativeError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as place:
            made = Path(place) / file.name
            found = _ran([*command, "-o", str(made)])
            if found.returncode != 0:
                said = found.stderr.strip().splitlines() or ["no reason given"]
                raise NativeError(f"`{command[0]}` failed: {said[0][:200]}")
            made.replace(file)
    except OSError as error:
        raise NativeError(f"cannot write `{file}`: {error.strerror}") from None


def _ran(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeError(f"`{command[0]}` did not run: {error}") from None


def _opened(file: Path) -> ctypes.CDLL:
    try:
        found = ctypes.CDLL(str(file))
    except OSError as error:
        raise NativeError(f"cannot load `{file}`: {error}") from None
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    sizes = (ctypes.c_int64 * len(SIZES))()
    found.tr_sizes(sizes)
    assert tuple(sizes) == SIZES, (tuple(sizes), SIZES)
    found.tr_width.argtypes = found.tr_tiles.argtypes = []
    found.tr_depth.argtypes = [ctypes.c_int]
    found.tr_scratch_new.restype = pointer
    found.tr_scratch_free.argtypes = [pointer]
    found.tr_scratch_free.restype = None
    for pack in (found.tr_pack_bf16, found.tr_pack_int8, found.tr_pack_fp32):
        pack.argtypes = [pointer, whole, whole, pointer]
        pack.restype = None
    found.tr_greedy.argtypes = [pointer, whole, whole, whole, pointer]
    found.tr_greedy.restype = None
    found.tr_certainty.argtypes = [pointer, whole, whole, whole, pointer, ctypes.c_int, pointer]
    found.tr_certainty.restype = None
    found.tr_sample.argtypes = [pointer, whole, whole, whole, *[pointer] * 6]
    found.tr_sample.restype = None
    found.tr_uniform.argtypes = [pointer, pointer, whole, whole, whole, pointer]
    found.tr_uniform.restype = None
    found.tr_step.argtypes = [pointer, pointer, pointer, ctypes.c_int]
    return found
