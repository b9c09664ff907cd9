// The products of a linear layer in AVX-512, whose registers hold 24 vectors of sums: 6 rows by two panels, over all of K.
#pragma once

#include "bytes.h"
#include "layers.h"

namespace tokenrouter {

constexpr int SPAN = 128;  // of K, see products_wide

// M rows by P panels: sums [M][2 P] of 16 outputs each. Of two bfloat16 one is a shift away from float32 and the other a mask; multiplied in
// float32 they take less time than by the instruction for pairs of bfloat16 (docs/performance.md), and activations stay whole.
#if !defined(TOKENROUTER_TILES)
template <int M, int P>
inline void products_bf16(const Linear &by, const Rows &x, long row, long panel, Tile, Floats (&sums)[M][2 * P]) {
  const long k = filled(by.k), size = k * PANEL * 2;
  const char *w = by.weight + panel * size;
  const float *a = x.fp32 + row * x.stride;
  for (int m = 0; m < M; m++)
    for (int v = 0; v < 2 * P; v++) sums[m][v] = zeros();
  for (long at = 0; at < k / 2; at++)
    for (int v = 0; v < 2 * P; v++) {
      const char *here = w + v / 2 * size + at * 128 + v % 2 * 64;
      _mm_prefetch(here + AHEAD, _MM_HINT_T0);
      const Words pairs = load_words(here);
      const Floats even = even_of(pairs), odd = odd_of(pairs);
      for (int m = 0; m < M; m++) {
        const float *two = a + m * x.stride + 2 * at;
        sums[m][v] = fmadd(odd, same(two[1]), fmadd(even, same(two[0]), sums[m][v]));
      }
    }
}
#else
// Where there are tiles (tiles.h), few rows give the same bits as many: of each 32 products even and odd ones are added up apart, then both, then
// that to what was before; numbers below the least normal one are zeros. This is how the processor's tiles do it.
template <int M, int P>
inline void products_bf16(const Linear &by, const Rows &x, long row, long panel, Tile, Floats (&sums)[M][2 * P]) {
  constexpr int Q = M > 2 ? 1 : P;  // panels whose sums stay in registers
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
  const long k = filled(by.k), size = k * PANEL * 2;
  const float *a = x.fp32 + row * x.stride;
  for (int m = 0; m < M; m++)
    for (int v = 0; v < 2 * P; v++) sums[m][v] = zeros();
  for (long at = 0; at < k; at += 32)
    for (int p = 0; p < P; p += Q) {
      const char *w = by.weight + (panel + p) * size + at / 2 * 128;
      Floats even[M][2 * Q], odd[M][2 * Q];
      for (int m = 0; m < M; m++)
        for (int v = 0; v < 2 * Q; v++) even[m][v] = odd[m][v] = zeros();
      for (long pair = 0; pair < 16; pair++)
        for (int v = 0; v < 2 * Q; v++) {
          const char *here = w + v / 2 * size + pair * 128 + v % 2 * 64;
          _mm_prefetch(here + AHEAD, _MM_HINT_T0);
          const Words pairs = load_words(here);
          const Floats first = even_of(pairs), second = odd_of(pairs);
          for (int m = 0; m < M; m++) {
            const float *two = a + m * x.stride + at + 2 * pair;
            even[m][v] = fmadd(first, same(two[0]), even[m][v]);
            odd[m][v] = fmadd(second, same(two[1]), odd[m][v]);
          }
        }
      for (int m = 0; m < M; m++)
        for (int v = 0; v < 2 * Q; v++) sums[m][2 * p + v] = sums[m][2 * p + v] + (even[m][v] + odd[m][v]);
    }
  _mm_setcsr(before);
}
#endif

// Sums of SPAN products are added up first, and then these: one long chain of additions would lose two digits.
template <class T, int M, int P>
inline void products_wide(const Linear &by, const Rows &x, long row, long panel, Floats (&sums)[M][2 * P]) {
  const long k = filled(by.k), size = k * PANEL;
  const T *w = (const T *)by.weight + panel * size;
  const float *a = x.fp32 + row * x.stride;
  for (int m = 0; m < M; m++)
    for (int v = 0; v < 2 * P; v++) sums[m][v] = zeros();
  for (long begin = 0; begin < k; begin += SPAN) {
    const long end = begin + SPAN < k ? begin + SPAN : k;
    Floats some[M][2 * P];
    for (int m = 0; m < M; m++)
      for (int v = 0; v < 2 * P; v++) some[m][v] = zeros();
    for (long at = begin; at < end; at++) {
      Floats weight[2 * P];
      for (int p = 0; p < P; p++) {
        const T *here = w + p * size + at * PANEL;
        for (int byte = 0; byte < PANEL * (int)sizeof(T); byte += 64) _mm_prefetch((const char *)here + AHEAD + byte, _MM_HINT_T0);
        weight[2 * p] = load_weights(here);
        weight[2 * p + 1] = load_weights(here + 16);
      }
      for (int m = 0; m < M; m++) {
        const Floats one = same(a[m * x.stride + at]);
        for (int v = 0; v < 2 * P; v++) some[m][v] = fmadd(one, weight[v], some[m][v]);
      }
    }
    for (int m = 0; m < M; m++)
      for (int v = 0; v < 2 * P; v++) sums[m][v] = sums[m][v] + some[m][v];
  }
}

template <int M, int P> inline void products_fp32(const Linear &by, const Rows &x, long row, long panel, Tile, Floats (&sums)[M][2 * P]) {
  products_wide<float, M, P>(by, x, row, panel, sums);
}

#if !defined(TOKENROUTER_BYTES)
template <int M, int P> inline void products_int8(const Linear &by, const Rows &x, long row, long panel, Tile, Floats (&sums)[M][2 * P]) {
  products_wide<int8_t, M, P>(by, x, row, panel, sums);
  scale(by, panel, sums);
}
#endif

}  // namespace tokenrouter
