"""The library of compiled kernels, for tests of what is in it; a machine that cannot run it skips them and says why."""

import pytest
from tokenrouter_kernels.native.build import NativeError, load


def _library():
    try:
        return load()
    except NativeError as error:
        return str(error)


LIBRARY = _library()
needs_library = pytest.mark.skipif(
    isinstance(LIBRARY, str), reason=f"this machine cannot run it: {LIBRARY}"
)
