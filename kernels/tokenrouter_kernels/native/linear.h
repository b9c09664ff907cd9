// Linear layers over packed weights: bfloat16, int8, or float32; activations and sums in float32, but for int8 where bytes or words are
// multiplied faster, and where AMX multiplies (tiles.h).
//
// A weight [N, K] lies in panels of 32 outputs, K filled up with zeros to a multiple of 32:
//     [N / 32][K][32]      bfloat16 [N / 32][K / 2][32][2]; int8, where it meets bytes, [N / 32][K / 4][32][4], words [N / 32][K / 2][32][2]
// so that a vector holds as many outputs by 1 (2, 4) neighbours in K.
//
// int8 weights are turned into float32 as they are read, or meet bytes (bytes.h) or words (words.h). What is lost is their rounding.
//
// A row's result has the same order of additions whatever the other rows are.
#pragma once

#include "layers.h"
#if defined(TOKENROUTER_AVX512)
#include "products512.h"
#include "tiles.h"
#else
#include "products256.h"
#endif

namespace tokenrouter {

// Whether a kind of weights wants rows as integers.
inline bool in_integers(int kind) { return (BYTES || WORDS) && kind == INT8; }
// Whether it wants them in bfloat16, in tiles or in float32.
inline bool in_bf16(int kind) { return TILES && kind == BF16; }

// Writes what WIDTH elements of a row that lie together, from `at` on, are in bfloat16.
inline void put_bf16(Floats x, const Rows &to, long row, long at) {
  if (TILES && to.tiled)
    store_bf16(to.bf16 + to.in_tiles(row, at, 2), x, WIDTH);
  else
    store(to.fp32 + row * to.stride + at, as_bf16(x));
}

// Writes one row in the form that a linear layer reads.
inline void encode(const float *x, long n, int kind, const Rows &to, long row) {
  if (in_bf16(kind)) {
    for (long at = 0; at < filled(n); at += WIDTH)  // zeros beyond: an infinity of another row would spoil those it meets
      put_bf16(at < n ? load(x + at, n - at) : zeros(), to, row, at);
    return;
  }
  if (!in_integers(kind)) {
    float *out = to.fp32 + row * to.stride;
    __builtin_memcpy(out, x, n * sizeof(float));
    for (long at = n; at < to.stride; at++) out[at] = 0;
    return;
  }
#if defined(TOKENROUTER_BYTES)
  encode_bytes(x, n, to, row);
#elif defined(TOKENROUTER_WORDS)
  encode_words(x, n, to, row);
#endif
}

template <int M, int P, class End>
inline void tile(const Linear &by, const Rows &x, long row, long panel, Tile tile, const End &end) {
  Floats sums[M][vectors(P)];
  if (by.kind == BF16)
    products_bf16<M, P>(by, x, row, panel, tile, sums);
  else if (by.kind == FP32)
    products_fp32<M, P>(by, x, row, panel, tile, sums);
  else
    products_int8<M, P>(by, x, row, panel, tile, sums);
  if (by.bias)
    for (int v = 0; v < vectors(P); v++) {
      const Floats bias = load(by.bias + panel * PANEL + v * WIDTH);
      for (int m = 0; m < M; m++) sums[m][v] = sums[m][v] + bias;
    }
  for (int m = 0; m < M; m++) end.template take<P>(row + m, panel * PANEL, sums[m]);
}

template <int P, class End>
inline void strip(const Linear &by, const Rows &x, long row, long rows, long panel, const End &end) {
  const long most = BYTES && by.kind == INT8 ? ROWS / 2 : ROWS;
  const long tiles = (rows + most - 1) / most;
  for (long at = 0; at < tiles; at++) {
    const long m = (rows + tiles - at - 1) / (tiles - at);
    const Tile here{at, tiles};
    switch (m) {
      case 1: tile<1, P>(by, x, row, panel, here, end); break;
      case 2: tile<2, P>(by, x, row, panel, here, end); break;
      case 3: tile<3, P>(by, x, row, panel, here, end); break;
      case 4: tile<4, P>(by, x, row, panel, here, end); break;
      case 5: tile<5, P>(by, x, row, panel, here, end); break;
      default: tile<6, P>(by, x, row, panel, here, end); break;
    }
    row += m;
    rows -= m;
  }
}

// One thread's share of y = x weight^T: `end` takes the sums of 32 P outputs of one row at a time. `paired` keeps panels 2 i
// and 2 i + 1 together.
template <class End>
inline void multiply(const Linear &by, const Rows &x, long rows, int thread, int threads, bool paired, const End &end) {
  const long panels = filled(by.n) / PANEL;
  const long unit = paired ? 2 : 1, units = panels / unit;
  const long first = units * thread / threads * unit, last = units * (thread + 1) / threads * unit;
#if defined(TOKENROUTER_TILES)
  if (by.kind != FP32 && x.tiled) return multiply_tiles(by, x, rows, first, last, end);
#endif
  for (long begin = 0; begin < rows; begin += BLOCK) {
    const long here = rows - begin < BLOCK ? rows - begin : BLOCK;
    long panel = first;
    for (; panel + 2 <= last; panel += 2) strip<2>(by, x, begin, here, panel, end);
    if (panel < last) strip<1>(by, x, begin, here, panel, end);
  }
}

// Packs rows [n, k] of weights as above.
template <class T, int DEPTH>
inline void pack(const T *weight, long n, long k, T *out) {
  const long width = filled(k);
  for (long row = 0; row < filled(n); row++) {
    T *panel = out + row / PANEL * PANEL * width + row % PANEL * DEPTH;
    for (long at = 0; at < width; at++) {
      T value = row < n && at < k ? weight[row * k + at] : T(0);
      panel[at / DEPTH * PANEL * DEPTH + at % DEPTH] = value;
    }
  }
}

}  // namespace tokenrouter
