"""What this machine is, as figures name it: without it they hold for nothing."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
# What the processor's flags have, the widest first.
_VECTORS = {
    "AVX-512 with VNNI and AMX": {
        *("avx512f", "avx512bw", "avx512vl", "avx512_vnni"),
        *("amx_tile", "amx_bf16", "amx_int8"),
    },
    "AVX-512 with VNNI": {"avx512f", "avx512bw", "avx512vl", "avx512_vnni"},
    "AVX-512": {"avx512f", "avx512bw", "avx512vl"},
    "AVX2": {"avx2"},
}


def processor() -> str:
    """Return the processor's name as Linux tells it; what Python knows elsewhere."""
    return _told("model name") or platform.processor() or platform.machine()


def vectors() -> str:
    """Return the widest vector instructions that a processor of the x86 family has; empty where none is known."""
    flags = set(_told("flags").split())
    return next((name for name, needed in _VECTORS.items() if needed <= flags), "")


def machine() -> str:
    """Return the processor, its vectors, how many cores this process may use and which kernels it was told to use, in words."""
    wide, wish = vectors(), os.environ.get("TOKENROUTER_NATIVE") or "1"
    cores = f"{len(os.sched_getaffinity(0))} cores"
    told = "" if wish == "1" else f", TOKENROUTER_NATIVE={wish}"
    return f"{processor()}{f' ({wide})' if wide else ''}, {cores}{told}"


def _told(name: str) -> str:
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
