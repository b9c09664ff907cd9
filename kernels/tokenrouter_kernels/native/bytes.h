// int8 weights and activations in two bytes each, by the AVX-512 instruction that multiplies bytes and adds four products up:
//
// x ~ scale * (256 hi + lo - 32768) with bytes hi, lo of a row's own scale, so that
//     y = scale * weight_scale * (256 (sum hi w - 128 sum w) + sum lo w)
// and both sums are exact integers.
#pragma once

#include "layers.h"

#if defined(TOKENROUTER_BYTES)

namespace tokenrouter {

// Writes one row as bytes.
inline void encode_bytes(const float *x, long n, const Rows &to, long row) {
  __m512 top = _mm512_setzero_ps(), bad = _mm512_setzero_ps();  // bad: zeros, or no number where x is none or infinite
  for (long at = 0; at < n; at += 16) {
    __m512 v = _mm512_maskz_loadu_ps(mask_of(n - at), x + at);
    top = _mm512_max_ps(top, _mm512_abs_ps(v));
    bad = _mm512_fmadd_ps(v, _mm512_setzero_ps(), bad);
  }
  float largest = _mm512_reduce_max_ps(top);
  float scale = largest > 0 ? largest / 32767.0f : 1.0f;
  to.scale[row] = scale + _mm512_reduce_add_ps(bad);
  __m512 by = _mm512_set1_ps(1.0f / scale);
  const __m512i zero = _mm512_set1_epi32(32768), byte = _mm512_set1_epi32(255);
  for (long at = 0; at < n; at += 16) {
    __mmask16 mask = mask_of(n - at);
    __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + at), by);
    __m512i q = _mm512_add_epi32(_mm512_cvtps_epi32(v), zero);
    q = _mm512_min_epi32(_mm512_max_epi32(q, _mm512_setzero_si512()), _mm512_set1_epi32(65535));
    const __m128i hi = _mm512_cvtepi32_epi8(_mm512_srli_epi32(q, 8)), lo = _mm512_cvtepi32_epi8(_mm512_and_epi32(q, byte));
    if (TILES && to.tiled) {
      const long to_at = to.in_tiles(row, at, 1);
      _mm_storeu_si128((__m128i *)(to.hi + to_at), _mm_maskz_mov_epi8(mask, hi));
      _mm_storeu_si128((__m128i *)(to.lo + to_at), _mm_maskz_mov_epi8(mask, lo));
    } else {
      _mm_mask_storeu_epi8(to.hi + row * to.stride + at, mask, hi);
      _mm_mask_storeu_epi8(to.lo + row * to.stride + at, mask, lo);
    }
  }
  if (TILES && to.tiled)  // weights are not filled up as far
    for (long at = (n + 15) / 16 * 16; at < to.stride; at += 16) {
      const long to_at = to.in_tiles(row, at, 1);
      _mm_storeu_si128((__m128i *)(to.hi + to_at), _mm_setzero_si128());
      _mm_storeu_si128((__m128i *)(to.lo + to_at), _mm_setzero_si128());
    }
}

// What 16 outputs from `at` on are, by the sums of a row's bytes.
inline Floats whole(const Linear &by, long at, Words high, Words low, float scale) {
  const Floats above = fnmadd(load(by.sum + at), same(128.0f), _mm512_cvtepi32_ps(high));
  return fmadd(above, same(256.0f), _mm512_cvtepi32_ps(low)) * (load(by.scale + at) * same(scale));
}

inline int32_t four(const void *at) {
  int32_t out;
  __builtin_memcpy(&out, at, 4);
  return out;
}

template <int M, int P>
inline void products_int8(const Linear &by, const Rows &x, long row, long panel, Tile, Floats (&sums)[M][2 * P]) {
  const long k = filled(by.k), size = k * PANEL;
  const char *w = by.weight + panel * size;
  __m512i high[M][2 * P], low[M][2 * P];
  for (int m = 0; m < M; m++)
    for (int v = 0; v < 2 * P; v++) high[m][v] = low[m][v] = _mm512_setzero_si512();
  for (long at = 0; at < k / 4; at++) {
    __m512i weight[2 * P];
    for (int p = 0; p < P; p++) {
      _mm_prefetch(w + p * size + at * 128 + AHEAD, _MM_HINT_T0);
      _mm_prefetch(w + p * size + at * 128 + AHEAD + 64, _MM_HINT_T0);
      weight[2 * p] = _mm512_loadu_si512(w + p * size + at * 128);
      weight[2 * p + 1] = _mm512_loadu_si512(w + p * size + at * 128 + 64);
    }
    for (int m = 0; m < M; m++) {
      __m512i hi = _mm512_set1_epi32(four(x.hi + (row + m) * x.stride + 4 * at));
      __m512i lo = _mm512_set1_epi32(four(x.lo + (row + m) * x.stride + 4 * at));
      for (int v = 0; v < 2 * P; v++) {
        high[m][v] = _mm512_dpbusd_epi32(high[m][v], hi, weight[v]);
        low[m][v] = _mm512_dpbusd_epi32(low[m][v], lo, weight[v]);
      }
    }
  }
  for (int m = 0; m < M; m++)
    for (int v = 0; v < 2 * P; v++) sums[m][v] = whole(by, panel * PANEL + v * WIDTH, high[m][v], low[m][v], x.scale[row + m]);
}

}  // namespace tokenrouter

#endif
