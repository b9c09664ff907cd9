"""A whole step of a decoder in one call of C++, where the machine and a compiler allow it.

The sources beside this file are compiled once, for this machine, into the cache ($TOKENROUTER_CACHE, else
$XDG_CACHE_HOME/tokenrouter, else ~/.cache/tokenrouter). They need Linux, AVX2 with FMA and a C++ compiler ($CXX, else
`c++`); without one of them, or with TOKENROUTER_NATIVE=0, `library` is None and torch does the work. AVX-512 and AMX are used where the machine
has them, unless TOKENROUTER_NATIVE leaves them out (`LESS` of build.py).
"""

from __future__ import annotations

from tokenrouter_kernels.native.build import NativeError, library
from tokenrouter_kernels.native.records import LayerRecord, LinearRecord, ModelRecord, StepRecord
from tokenrouter_kernels.native.weights import Packed, packed

__all__ = [
    "LayerRecord",
    "LinearRecord",
    "ModelRecord",
    "NativeError",
    "Packed",
    "StepRecord",
    "library",
    "packed",
]
