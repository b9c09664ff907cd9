// What a linear layer is, and the rows that it reads.
#pragma once

#include <stdint.h>

#include "vector.h"

namespace tokenrouter {

constexpr int PANEL = 32;  // outputs
constexpr int ROWS = 6;    // of x at a time
constexpr int AHEAD = 2048; // bytes of a panel to ask for: the processor itself stops at the end of a page
constexpr int BLOCK = 240; // rows whose x stays near while the weights go by
// How int8 weights meet activations: as bytes, as words of 16 bits, or in float32.
#if defined(TOKENROUTER_BYTES)
constexpr bool BYTES = true, WORDS = false;
#elif defined(TOKENROUTER_WORDS)
constexpr bool BYTES = false, WORDS = true;
#else
constexpr bool BYTES = false, WORDS = false;
#endif
// Whether AMX multiplies rows that lie in tiles (tiles.h), and how large these are.
#if defined(TOKENROUTER_TILES)
constexpr bool TILES = true;
#else
constexpr bool TILES = false;
#endif
constexpr long TILE_ROWS = 16, TILE_LINE = 64;  // rows; bytes of a row
constexpr long FEW = 4;  // rows that take less time without tiles, since what else is done hides better behind memory
constexpr int BF16_DEPTH = 2, INT8_DEPTH = BYTES ? 4 : WORDS ? 2 : 1;  // neighbours in K that lie together

constexpr int vectors(int panels) { return panels * PANEL / WIDTH; }  // of outputs
inline long filled(long n) { return (n + PANEL - 1) / PANEL * PANEL; }

// Elements from row to row of what a linear layer reads: K filled up, to whole lines of tiles of bytes too.
inline long row_stride(long k) { return TILES ? (k + TILE_LINE - 1) / TILE_LINE * TILE_LINE : filled(k); }
// Rows that there is room for, since tiles are read whole.
inline long whole_tiles(long rows) { return TILES ? (rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS : rows; }

enum Kind { BF16 = 0, INT8 = 1, FP32 = 2 };

struct Linear {
  int32_t kind;
  int32_t n;            // outputs
  int32_t k;            // inputs
  int32_t reserved;
  const char *weight;   // packed
  const float *scale;   // int8: by output, filled up
  const float *sum;     // int8: sum of the quantised weights by output, filled up
  const float *bias;    // by output, filled up; or null
};

// Sums of outputs times their scales, by output.
template <int M, int N> inline void scale(const Linear &by, long panel, Floats (&sums)[M][N]) {
  for (int v = 0; v < N; v++) {
    const Floats scales = load(by.scale + panel * PANEL + v * WIDTH);
    for (int m = 0; m < M; m++) sums[m][v] = sums[m][v] * scales;
  }
}

// The rows that a linear layer reads, in the form that its kind wants.
struct Rows {
  long stride;      // elements from row to row: row_stride(K)
  float *fp32;      // [T, stride]
  uint8_t *hi, *lo; // [T, stride], or in tiles
  int16_t *words;   // [T, stride]
  float *scale;     // [T]
  uint16_t *bf16;   // [T, stride], in tiles
  bool tiled;       // whether they lie in tiles, where their kind of weights can meet tiles

  // Where elements of `size` bytes lie in tiles, of which a row has whole lines: those from `at` to the end of a line are neighbours.
  long in_tiles(long row, long at, long size) const {
    const long line = TILE_LINE / size;
    return (row / TILE_ROWS * TILE_ROWS * stride) + (at / line * TILE_ROWS + row % TILE_ROWS) * line + at % line;
  }
};

// Some rows that meet some panels at a time: which one, of how many that meet the same panels one after the other.
struct Tile {
  long at, of;
};

}  // namespace tokenrouter
