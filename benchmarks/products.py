"""What linear layers of the compiled kernels take by themselves: GFLOP/s on one thread, by rows and kind of weights.

    python benchmarks/products.py                  weights that the caches do not hold, as in a step
    python benchmarks/products.py --copies 1       one matrix, again and again

`peak` multiplies and adds what lies in registers and reads nothing: what one core can do at most at that moment. A round measures each number once, in
turn; medians of the rounds, with the least and the most, since a virtual machine's speed wanders.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import sys
import tempfile
from pathlib import Path

import torch
from tokenrouter_kernels.native import build
from tokenrouter_kernels.native.records import LinearRecord
from tokenrouter_kernels.native.weights import Packed, packed

OUTPUTS, INPUTS = 1536, 576  # of the widest layer of the demo pair's large model, gate alone
ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 96)
KINDS = {"bfloat16": torch.bfloat16, "float32": torch.float32, "int8": torch.int8}
LEAST_S = 0.05  # of a measurement

# What a step does with a linear layer, over and over; `encode` is left out of the time, as it is a step's own part.
SOURCE = r"""
#include <chrono>
#include "decoder.cpp"
using namespace tokenrouter;

static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

extern "C" double gflops(const Linear *layers, long copies, long rows, double least) {
  const long n = layers[0].n, k = row_stride(layers[0].k), room = whole_tiles(rows) * k;
  std::vector<float> x(k), out(rows * n), read(room), scales(rows);
  std::vector<uint8_t> hi(room), lo(room);
  std::vector<int16_t> words(room);
  std::vector<uint16_t> bf16(room);
  const Rows to{k, read.data(), hi.data(), lo.data(), words.data(), scales.data(), bf16.data(), rows > FEW};
  for (long row = 0; row < rows; row++) {
    for (long at = 0; at < k; at++) x[at] = (float)((row * 31 + at * 17) % 64 - 32) / 32;
    encode(x.data(), layers[0].k, layers[0].kind, to, row);
  }
  long done = 0;
  double took = 0;
  for (const double begun = now(); took < least; took = now() - begun)
    for (long at = 0; at < copies; at++, done++) multiply(layers[at], to, rows, 0, 1, false, Store{out.data(), n, n});
  return 2e-9 * n * layers[0].k * rows * done / took;
}

extern "C" double peak(double least) {
  Floats s0 = zeros(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0, s8 = s0, s9 = s0;  // as many as hide how long one takes
  Floats x = same(1.0f), y = same(0.5f);
  asm volatile("" : "+v"(x), "+v"(y));
  long done = 0;
  double took = 0;
  for (const double begun = now(); took < least; took = now() - begun)
    for (int turn = 0; turn < 10000; turn++, done += 10) {
      s0 = fmadd(x, y, s0), s1 = fmadd(x, y, s1), s2 = fmadd(x, y, s2), s3 = fmadd(x, y, s3), s4 = fmadd(x, y, s4);
      s5 = fmadd(x, y, s5), s6 = fmadd(x, y, s6), s7 = fmadd(x, y, s7), s8 = fmadd(x, y, s8), s9 = fmadd(x, y, s9);
      asm volatile("" : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4), "+v"(s5), "+v"(s6), "+v"(s7), "+v"(s8), "+v"(s9));
    }
  return 2e-9 * WIDTH * done / took;
}
"""


def main() -> None:
    """Time and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--copies", type=int, default=64, metavar="N", help="of the matrix (%(default)s)")
    add("--rounds", type=int, default=7, metavar="R", help="(%(default)s)")
    args = parser.parse_args()
    if min(args.copies, args.rounds) < 1:
        parser.error("--copies and --rounds are 1 or more")
    try:
        kernels = build.load()
        with tempfile.TemporaryDirectory() as place:
            own = compiled(Path(place))
    except build.NativeError as error:
        parser.exit(1, f"products.py: {error}\n")
    held = {name: layers(kernels, kind, args.copies) for name, kind in KINDS.items()}
    found: dict[tuple[str, int], list[float]] = {}
    for done in range(args.rounds):
        print(f"round {done + 1} of {args.rounds}", file=sys.stderr, flush=True)
        found.setdefault(("peak", 0), []).append(own.peak(LEAST_S))
        for name, (records, _) in held.items():
            for rows in ROWS:
                rate = own.gflops(records, args.copies, rows, LEAST_S)
                found.setdefault((name, rows), []).append(rate)
    print(f"peak, GFLOP/s      {told(found['peak', 0])}")
    print("rows    " + "".join(f"{name:>18}" for name in KINDS))
    for rows in ROWS:
        print(f"{rows:4}    " + "".join(f"{told(found[name, rows]):>18}" for name in KINDS))


def compiled(place: Path) -> ctypes.CDLL:
    """Return the loops above, compiled as the kernels are; raises NativeError."""
    source, file = place / "products.cpp", place / "products.so"
    source.write_text(SOURCE)
    compiler = os.environ.get("CXX") or "c++"
    build.compile_into([compiler, *build.FLAGS, f"-I{build.HERE}", str(source)], file)
    library = ctypes.CDLL(str(file))
    library.gflops.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_double]
    library.peak.argtypes = [ctypes.c_double]
    library.gflops.restype = library.peak.restype = ctypes.c_double
    return library


def layers(
    kernels: ctypes.CDLL, kind: torch.dtype, copies: int
) -> tuple[ctypes.Array[LinearRecord], list[Packed]]:
    """Return as many equal layers, each with memory of its own, and what holds that."""
    weight = torch.randn(OUTPUTS, INPUTS)
    scale = None
    if kind == torch.int8:
        scale = weight.abs().amax(1) / 127
        weight = (weight / scale[:, None]).round()
    made = [packed(kernels, weight.to(kind), scale=scale) for _ in range(copies)]
    return (LinearRecord * copies)(*(each.record for each in made)), made


def told(rates: list[float]) -> str:
    """Return the middle, and in brackets the least and the most."""
    return f"{statistics.median(rates):.0f} ({min(rates):.0f}-{max(rates):.0f})"


if __name__ == "__main__":
    main()
