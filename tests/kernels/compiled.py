"""Which compiled kernels tests run with: each kind that this machine has, one after the other.

A test module that imports `each_kind` has all its tests run so; what a machine cannot run is skipped, and the reason told. AVX-512 without
its instruction for bytes is for `make soak`, and so is AVX2 where there are two wider kinds.
"""

import pytest
from tokenrouter_kernels.native.build import (
    AVX512,
    LESS,
    TILES,
    LackError,
    has,
    library,
    load,
    tiles_granted,
)

# Values of TOKENROUTER_NATIVE, and what the processor must have for the widest kernels to be others.
WISHES = {"widest": "1", "vnni": "vnni", "avx512": "avx512", "avx2": "avx2"}
WIDER = {
    "vnni": (*AVX512, "avx512_vnni", *TILES),
    "avx512": (*AVX512, "avx512_vnni"),
    "avx2": AVX512,
}


def _param(wish):
    """Return a wish as a parameter: skipped where the widest kernels are the same."""
    marks = []
    if wish == "avx512" or (wish == "avx2" and has(*WIDER["vnni"])):
        marks.append(pytest.mark.slow)
    if wish in WIDER and not has(*WIDER[wish]):
        marks.append(pytest.mark.skip(reason="on this machine the widest kernels are no others"))
    return pytest.param(wish, marks=marks)


@pytest.fixture(scope="module", autouse=True, params=[_param(wish) for wish in WISHES])
def each_kind(request):
    wish = WISHES[request.param]
    try:
        made = load(LESS[wish])
    except LackError as error:  # sources that do not compile are a failure
        pytest.skip(f"this machine cannot run it: {error}")
    assert made.tr_width() == (16 if wish != "avx2" and has(*AVX512) else 8)
    assert made.tr_tiles() == (wish == "1" and has(*WIDER["vnni"]) and tiles_granted())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENROUTER_NATIVE", wish)
        library.cache_clear()
        yield
    library.cache_clear()
