"""Which compiled kernels tests run with: each kind that this machine has, one after the other.

A test module that imports `each_kind` has all its tests run so; what a machine cannot run is skipped, and the reason told.
"""

import pytest
from tokenrouter_kernels.native.build import AVX512, LESS, NativeError, has, library, load

WISHES = {"widest": "1", "avx512": "avx512", "avx2": "avx2"}  # values of TOKENROUTER_NATIVE


def _missing(wish):
    if wish == "avx2" and not has(*AVX512):
        return "without AVX-512 the widest kernels are these"
    if wish == "avx512" and not has(*AVX512, "avx512_vnni"):
        return "without AVX-512 for bytes the widest kernels are these, or those of AVX2"
    try:
        made = load(LESS[WISHES[wish]])
        assert made.tr_width() == (16 if wish != "avx2" and has(*AVX512) else 8)
    except NativeError as error:
        return f"this machine cannot run it: {error}"
    return None


def _param(wish):
    missing = _missing(wish)
    return pytest.param(wish, marks=[] if missing is None else pytest.mark.skip(reason=missing))


@pytest.fixture(scope="module", autouse=True, params=[_param(wish) for wish in WISHES])
def each_kind(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENROUTER_NATIVE", WISHES[request.param])
        library.cache_clear()
        yield
    library.cache_clear()
