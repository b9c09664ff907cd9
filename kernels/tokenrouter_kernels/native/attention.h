// Attention of one new token over the pages of its request, for the query heads that share one key head.
//
//     out = sum_j softmax_j(scale q k_j) v_j       first <= j < last
//
// Keys and values are bfloat16 [slots, kv_heads, D]; scores, weights and sums are float32. A query's result has the same order
// of additions whatever else is in the batch.
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "linear.h"

namespace tokenrouter {

// e^x for x <= 0, to about 2 units in the last place; 0 below -87.
inline __m512 exponential(__m512 x) {
  const __mmask16 low = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0f), _CMP_LT_OQ);
  __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.0f / 5040);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_maskz_scalef_ps(_knot_mask16(low), p, n);
}

// The sums of 16 vectors, one a lane.
inline __m512 sums_of(__m512 *v) {
  for (int i = 0; i < 8; i++)
    v[i] = _mm512_add_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
  for (int i = 0; i < 4; i++) {
    __m512d a = (__m512d)v[2 * i], b = (__m512d)v[2 * i + 1];
    v[i] = _mm512_add_ps((__m512)_mm512_unpacklo_pd(a, b), (__m512)_mm512_unpackhi_pd(a, b));
  }
  // Each quarter of v[i] now holds partial sums of 4 i .. 4 i + 3.
  __m512 a = _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x88), _mm512_shuffle_f32x4(v[0], v[1], 0xdd));
  __m512 b = _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x88), _mm512_shuffle_f32x4(v[2], v[3], 0xdd));
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

struct Context {
  const int32_t *slots;  // [last]
  long first, last;      // positions that are seen
  const uint16_t *keys, *values;  // of this key head
  long stride;           // elements from slot to slot
  float scale;
};

inline __mmask32 half_mask(long left) { return left >= 32 ? 0xffffffffu : (__mmask32)((1u << left) - 1); }

// Q queries, C = D / 32 rounded up. `queries` [Q][32 C] bfloat16, zeros beyond D; `scores` [Q][room]; `out` [Q][D].
template <int Q, int C>
inline void attend(const Context &in, const uint16_t *queries, int width, float *scores, long room, float *out) {
  const long n = in.last - in.first;
  __m512bh q[Q][C];
  for (int i = 0; i < Q; i++)
    for (int c = 0; c < C; c++) q[i][c] = (__m512bh)_mm512_loadu_si512(queries + (i * C + c) * 32);
  const __mmask32 tail = half_mask(width - 32 * (C - 1));
  __m512 top[Q];
  for (int i = 0; i < Q; i++) top[i] = _mm512_set1_ps(-1e30f);
  for (long at = 0; at < n; at += 16) {
    __m512 dots[Q][16];
    for (int j = 0; j < 16; j++) {
      const long here = at + j < n ? at + j : n - 1;
      const uint16_t *k = in.keys + in.slots[in.first + here] * in.stride;
      __m512bh key[C];
      for (int c = 0; c < C - 1; c++) key[c] = (__m512bh)_mm512_loadu_si512(k + 32 * c);
      key[C - 1] = (__m512bh)_mm512_maskz_loadu_epi16(tail, k + 32 * (C - 1));
      for (int i = 0; i < Q; i++) {
        __m512 dot = _mm512_setzero_ps();
        for (int c = 0; c < C; c++) dot = _mm512_dpbf16_ps(dot, q[i][c], key[c]);
        dots[i][j] = dot;
      }
    }
    const __mmask16 real = mask_of(n - at);
    for (int i = 0; i < Q; i++) {
      __m512 s = _mm512_mul_ps(sums_of(dots[i]), _mm512_set1_ps(in.scale));
      s = _mm512_mask_blend_ps(real, _mm512_set1_ps(-1e30f), s);
      _mm512_storeu_ps(scores + i * room + at, s);
      top[i] = _mm512_max_ps(top[i], s);
    }
  }
  float inverse[Q];
  for (int i = 0; i < Q; i++) {
    const __m512 most = _mm512_set1_ps(_mm512_reduce_max_ps(top[i]));
    __m512 total = _mm512_setzero_ps();
    for (long at = 0; at < n; at += 16) {
      __m512 w = exponential(_mm512_sub_ps(_mm512_loadu_ps(scores + i * room + at), most));
      w = _mm512_maskz_mov_ps(mask_of(n - at), w);
      _mm512_storeu_ps(scores + i * room + at, w);
      total = _mm512_add_ps(total, w);
    }
    inverse[i] = 1.0f / _mm512_reduce_add_ps(total);
  }
  // The even elements of a vector of bfloat16 are one shift away from float32, the odd ones one mask.
  __m512 even[Q][C], odd[Q][C];
  for (int i = 0; i < Q; i++)
    for (int c = 0; c < C; c++) even[i][c] = odd[i][c] = _mm512_setzero_ps();
  const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
  for (long at = 0; at < n; at++) {
    const uint16_t *v = in.values + in.slots[in.first + at] * in.stride;
    for (int c = 0; c < C; c++) {
      __m512i value = c < C - 1 ? _mm512_loadu_si512(v + 32 * c) : _mm512_maskz_loadu_epi16(tail, v + 32 * c);
      __m512 a = (__m512)_mm512_slli_epi32(value, 16), b = (__m512)_mm512_and_si512(value, upper);
      for (int i = 0; i < Q; i++) {
        __m512 w = _mm512_set1_ps(scores[i * room + at]);
        even[i][c] = _mm512_fmadd_ps(w, a, even[i][c]);
        odd[i][c] = _mm512_fmadd_ps(w, b, odd[i][c]);
      }
    }
  }
  const __m512i left = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i right = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  for (int i = 0; i < Q; i++)
    for (int c = 0; c < C; c++) {
      __m512 by = _mm512_set1_ps(inverse[i]);
      __m512 a = _mm512_mul_ps(even[i][c], by), b = _mm512_mul_ps(odd[i][c], by);
      long at = i * width + 32 * c, rest = width - 32 * c;
      _mm512_mask_storeu_ps(out + at, mask_of(rest), _mm512_permutex2var_ps(a, left, b));
      if (rest > 16) _mm512_mask_storeu_ps(out + at + 16, mask_of(rest - 16), _mm512_permutex2var_ps(a, right, b));
    }
}

template <int C>
inline void attend_some(int n, const Context &in, const uint16_t *q, int width, float *scores, long room, float *out) {
  constexpr int MOST = C <= 2 ? 4 : C <= 4 ? 2 : 1;
  for (; n > 0;) {
    const int here = n < MOST ? n : MOST;
    switch (here) {
      case 1: attend<1, C>(in, q, width, scores, room, out); break;
      case 2: attend<MOST < 2 ? 1 : 2, C>(in, q, width, scores, room, out); break;
      case 3: attend<MOST < 3 ? 1 : 3, C>(in, q, width, scores, room, out); break;
      default: attend<MOST < 4 ? 1 : 4, C>(in, q, width, scores, room, out); break;
    }
    n -= here, q += here * 32 * C, out += here * width;
  }
}

// n queries of width D <= 256; `scores` has room for 4 rows.
inline void attend_heads(int n, const Context &in, const uint16_t *q, int width, float *scores, long room, float *out) {
  switch ((width + 31) / 32) {
    case 1: return attend_some<1>(n, in, q, width, scores, room, out);
    case 2: return attend_some<2>(n, in, q, width, scores, room, out);
    case 3: return attend_some<3>(n, in, q, width, scores, room, out);
    case 4: return attend_some<4>(n, in, q, width, scores, room, out);
    case 5: case 6: case 7: return;  // refused when a model is made
    default: return attend_some<8>(n, in, q, width, scores, room, out);
  }
}

}  // namespace tokenrouter
