// Linear layers by AMX, whose registers are tiles of 16 rows of 64 bytes: a multiplication takes 16 rows of activations and 16 outputs, over 32
// bfloat16 or 64 bytes of K.
//
// Activations are rounded to bfloat16 for bfloat16 weights: a second product of what the rounding loses would take as long again. Sums
// of 32 products are float32, and are added to float32. int8 weights meet bytes as in bytes.h; these sums are integers, and so the same.
//
// Rows lie in tiles, [rows / 16][bytes of a row / 64][16][64]; weights as everywhere, since 16 outputs of half a panel are the columns of a tile.
// What is in a tile's other rows matters to none: each row is multiplied by itself.
#pragma once

#include "bytes.h"
#include "layers.h"

#if defined(TOKENROUTER_TILES)

namespace tokenrouter {

constexpr long TILE_SIZE = TILE_ROWS * TILE_LINE;     // bytes
constexpr long STEP_SIZE = PANEL * TILE_LINE;         // bytes of a panel that meet one tile of activations
constexpr long NEAR = 1 << 20;                        // bytes of rows that stay in the second-level cache while the weights go by
constexpr long STREAMS = 4;                           // in which later weights are asked for: the processor reads ahead in each

// Tells the processor that all eight tiles are whole; gives them up at the end, or each change of threads would save them.
struct Tiles {
  Tiles() {
    struct {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t bytes[16] = {TILE_LINE, TILE_LINE, TILE_LINE, TILE_LINE, TILE_LINE, TILE_LINE, TILE_LINE, TILE_LINE};
      uint8_t rows[16] = {TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS};
    } shapes;
    _tile_loadconfig(&shapes);
  }
  ~Tiles() { _tile_release(); }
};

// What is asked for, into the second-level cache, while other weights are multiplied: with each step some lines of each stream.
struct Next {
  const char *at;
  long lines, apart;  // lines of a stream with each step; bytes from stream to stream
  void ask() {
    for (long stream = 0; stream < STREAMS; stream++)
      for (long i = 0; i < lines; i++) _mm_prefetch(at + stream * apart + i * 64, _MM_HINT_T1);
    at += lines * 64;
  }
};

// Two tiles of rows by one panel: sums [2][16] of `stride` bytes, 32 outputs each. BYTES: of int8, or bfloat16.
template <bool BYTE> inline void two_by_panel(const char *a, const char *b, const char *w, long steps, Next &next, char *sums, char *more, long stride) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (long at = 0; at < steps; at++, a += TILE_SIZE, b += TILE_SIZE, w += STEP_SIZE) {
    next.ask();
    _tile_loadd(4, a, TILE_LINE);
    _tile_stream_loadd(6, w, 2 * TILE_LINE);
    _tile_loadd(5, b, TILE_LINE);
    _tile_stream_loadd(7, w + TILE_LINE, 2 * TILE_LINE);
    if constexpr (BYTE) {
      _tile_dpbusd(0, 4, 6);
      _tile_dpbusd(2, 5, 6);
      _tile_dpbusd(1, 4, 7);
      _tile_dpbusd(3, 5, 7);
    } else {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums, stride);
  _tile_stored(1, sums + TILE_LINE, stride);
  _tile_stored(2, more, stride);
  _tile_stored(3, more + TILE_LINE, stride);
}

// One tile of rows by two panels, which no other rows meet.
inline void one_by_panels(const char *a, const char *w, const char *v, long steps, Next &next, char *sums, long stride) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (long at = 0; at < steps; at++, a += TILE_SIZE, w += STEP_SIZE, v += STEP_SIZE) {
    next.ask();
    _tile_loadd(4, a, TILE_LINE);
    _tile_loadd(5, w, 2 * TILE_LINE);
    _tile_loadd(6, w + TILE_LINE, 2 * TILE_LINE);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(7, v, 2 * TILE_LINE);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(5, v + TILE_LINE, 2 * TILE_LINE);
    _tile_dpbf16ps(2, 4, 7);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_stored(0, sums, stride);
  _tile_stored(1, sums + TILE_LINE, stride);
  _tile_stored(2, sums + 2 * TILE_LINE, stride);
  _tile_stored(3, sums + 3 * TILE_LINE, stride);
}

inline void one_by_panel(const char *a, const char *w, long steps, Next &next, char *sums, long stride) {
  _tile_zero(0);
  _tile_zero(1);
  for (long at = 0; at < steps; at++, a += TILE_SIZE, w += STEP_SIZE) {
    next.ask();
    _tile_loadd(4, a, TILE_LINE);
    _tile_loadd(5, w, 2 * TILE_LINE);
    _tile_loadd(6, w + TILE_LINE, 2 * TILE_LINE);
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 6);
  }
  _tile_stored(0, sums, stride);
  _tile_stored(1, sums + TILE_LINE, stride);
}

// The sums of up to 32 rows (16 of int8) and some panels, and what `end` makes of them.
struct Strip {
  alignas(64) float sums[2 * TILE_ROWS][2 * PANEL];
  alignas(64) int32_t high[TILE_ROWS][PANEL], low[TILE_ROWS][PANEL];
  static constexpr long STRIDE = 2 * PANEL * sizeof(float);

  template <int P> void bf16(const Linear &by, const Rows &x, long row, long rows, long panel, Next &next) {
    const long steps = filled(by.k) / 32, size = steps * STEP_SIZE;
    const char *a = (const char *)(x.bf16 + row * x.stride), *w = by.weight + panel * size;
    char *to = (char *)sums;
    if (rows > TILE_ROWS)
      for (int p = 0; p < P; p++) {
        const char *b = (const char *)(x.bf16 + (row + TILE_ROWS) * x.stride);
        two_by_panel<false>(a, b, w + p * size, steps, next, to + p * PANEL * 4, to + TILE_ROWS * STRIDE + p * PANEL * 4, STRIDE);
      }
    else if constexpr (P == 2)
      one_by_panels(a, w, w + size, steps, next, to, STRIDE);
    else
      one_by_panel(a, w, steps, next, to, STRIDE);
  }

  template <int P> void int8(const Linear &by, const Rows &x, long row, long rows, long panel, Next &next) {
    // Where K ends within a step, rows are filled up with zeros, and it does not matter what they meet.
    const long steps = (filled(by.k) + 63) / 64, size = filled(by.k) * PANEL;
    const char *hi = (const char *)(x.hi + row * x.stride), *lo = (const char *)(x.lo + row * x.stride);
    for (int p = 0; p < P; p++) {
      two_by_panel<true>(hi, lo, by.weight + (panel + p) * size, steps, next, (char *)high, (char *)low, PANEL * 4);
      for (long m = 0; m < rows; m++)
        for (int v = 0; v < 2; v++)
          store(sums[m] + p * PANEL + v * WIDTH,
                whole(by, (panel + p) * PANEL + v * WIDTH, load_words(high[m] + v * WIDTH), load_words(low[m] + v * WIDTH), x.scale[row + m]));
    }
  }

  template <int P, class End> void go(const Linear &by, const Rows &x, long row, long rows, long panel, Next next, const End &end) {
    if (by.kind == BF16)
      bf16<P>(by, x, row, rows, panel, next);
    else
      int8<P>(by, x, row, rows, panel, next);
    for (long m = 0; m < rows; m++) {
      Floats of[vectors(P)];
      for (int v = 0; v < vectors(P); v++) {
        of[v] = load(sums[m] + v * WIDTH);
        if (by.bias) of[v] = of[v] + load(by.bias + panel * PANEL + v * WIDTH);
      }
      end.template take<P>(row + m, panel * PANEL, of);
    }
  }
};

// Panels [first, last) of y = x weight^T.
template <class End> inline void multiply_tiles(const Linear &by, const Rows &x, long rows, long first, long last, const End &end) {
  const Tiles tiles;
  Strip strip;
  const long many = by.kind == BF16 ? 2 * TILE_ROWS : TILE_ROWS, each = by.kind == BF16 ? 2 : 1;  // bytes of a weight
  const long size = filled(by.k) * PANEL * each;
  long block = NEAR / (2 * x.stride) / many * many;
  if (block < many) block = many;
  for (long begin = 0; begin < rows; begin += block) {
    const long here = rows - begin < block ? rows - begin : block;
    const long strips = (here + many - 1) / many;
    auto along = [&](auto panels, long panel) {
      constexpr int P = panels;
      for (long at = 0; at < strips; at++) {
        const long left = here - at * many, turns = (left > TILE_ROWS || by.kind == INT8 ? P : 1) * ((filled(by.k) * each + 63) / 64);
        // Each strip asks for its part of the panels that come next.
        const long apart = P * size / STREAMS, share = apart / strips / 64 * 64;
        const Next next{by.weight + (panel + P) * size + at * share, (share / 64 + turns - 1) / turns, apart};
        strip.go<P>(by, x, begin + at * many, left < many ? left : many, panel, next, end);
      }
    };
    long panel = first;
    for (; panel + 2 <= last; panel += 2) along(std::integral_constant<int, 2>(), panel);
    if (panel < last) along(std::integral_constant<int, 1>(), panel);
  }
}

}  // namespace tokenrouter

#endif
