"""What this machine is, as figures name it: without it they hold for nothing."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
# By what the processor's flags have, the widest first.
_VECTORS = {"avx512_bf16": "AVX-512 with bfloat16", "avx512f": "AVX-512", "avx2": "AVX2"}


def processor() -> str:
    """Return the processor's name as Linux tells it; what Python knows elsewhere."""
    return _told("model name") or platform.processor() or platform.machine()


def vectors() -> str:
    """Return the widest vector instructions that a processor of the x86 family has; empty where none is known."""
    flags = _told("flags").split()
    return next((name for flag, name in _VECTORS.items() if flag in flags), "")


def machine() -> str:
    """Return the processor, its vectors and how many cores this process may use, in words."""
    wide = vectors()
    return f"{processor()}{f' ({wide})' if wide else ''}, {len(os.sched_getaffinity(0))} cores"


def _told(name: str) -> str:
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
