#!/bin/sh
# Tests the kernels for AVX-512 where the processor has none: emulated by SIMDe (Debian's libsimde-dev, or the folder in $SIMDE that holds
# simde/), with the instruction for bytes and without it. Takes about three minutes.
#     sh tools/emulated.sh .venv/bin/python
set -eu
given=${1:-.venv/bin/python}
python=$(cd "$(dirname "$given")" && pwd)/$(basename "$given") # not what a link leads to: an environment is known by its place
root=$(realpath "$(dirname "$0")/..")
include=${SIMDE:-/usr/include}
if [ ! -d "$include/simde" ]; then
    { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; } || { echo "tools/emulated.sh needs SIMDe: set \$SIMDE" >&2; exit 1; }
    apt-get update -qq && apt-get install -y -qq --no-install-recommends libsimde-dev >/dev/null
fi
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
cp "$root"/kernels/tokenrouter_kernels/native/*.h "$root"/kernels/tokenrouter_kernels/native/*.cpp "$root"/tests/kernels/emulated/avx512.h "$made"
# Names of their own for what the sources ask of the compiler, which itself must not know of it.
sed -i 's/__AVX512\([A-Z0-9]*\)__/EMULATED_\1/g; s/#include <immintrin.h>/#include "avx512.h"/' "$made"/vector*.h "$made"/products*.h "$made"/bytes.h "$made"/linear.h "$made"/layers.h "$made"/team.h
for bytes in "" -DEMULATED_VNNI; do
    ${CXX:-c++} -O2 -std=c++17 -ffp-contract=off -mavx2 -mfma -fPIC -shared -pthread -w -DEMULATED_F -DEMULATED_BW -DEMULATED_VL $bytes -I"$include" "$made/decoder.cpp" -o "$made/decoder$bytes.so"
    echo "emulated ${bytes:-without bytes}:"
    (cd "$root" && EMULATED="$made/decoder$bytes.so" "$python" -m pytest -q -p tests.kernels.emulated.plugin -m "not slow" -k "widest and not compiler and not instructions" \
        tests/kernels/test_certainty.py tests/kernels/test_draw.py tests/models/test_native.py tests/models/test_native_contexts.py)
done
