// Attention of one new token over the pages of its request, for the query heads that share one key head.
//
//     out = sum_j softmax_j(scale q k_j) v_j       first <= j < last
//
// Keys and values are bfloat16 or float32 [slots, kv_heads, D]; scores, weights and sums are float32. A query's result has the
// same order of additions whatever else is in the batch.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>

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

// What keys, values and queries are made of: a vector of them, and a vector of sums of weighted values.
struct Narrow {
  using Element = uint16_t;  // bfloat16
  static constexpr int LANES = 32;
  using Vector = __m512bh;
  struct Sum {
    __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
  };
  static Vector load(const Element *at, long left) {
    return (__m512bh)(left >= LANES ? _mm512_loadu_si512(at) : _mm512_maskz_loadu_epi16((__mmask32)((1u << left) - 1), at));
  }
  static __m512 dot(__m512 sum, Vector q, Vector k) { return _mm512_dpbf16_ps(sum, q, k); }
  static void add(Sum &sum, __m512 weight, Vector value) {
    // The even elements of a vector of bfloat16 are one shift away from float32, the odd ones one mask.
    sum.even = _mm512_fmadd_ps(weight, (__m512)_mm512_slli_epi32((__m512i)value, 16), sum.even);
    sum.odd = _mm512_fmadd_ps(weight, (__m512)_mm512_and_si512((__m512i)value, _mm512_set1_epi32((int)0xffff0000)), sum.odd);
  }
  static void store(const Sum &sum, __m512 by, float *out, long left) {
    const __m512i lower = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i upper = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    const __m512 a = _mm512_mul_ps(sum.even, by), b = _mm512_mul_ps(sum.odd, by);
    _mm512_mask_storeu_ps(out, mask_of(left), _mm512_permutex2var_ps(a, lower, b));
    if (left > 16) _mm512_mask_storeu_ps(out + 16, mask_of(left - 16), _mm512_permutex2var_ps(a, upper, b));
  }
};

struct Wide {
  using Element = float;
  static constexpr int LANES = 16;
  using Vector = __m512;
  struct Sum {
    __m512 all = _mm512_setzero_ps();
  };
  static Vector load(const Element *at, long left) {
    return left >= LANES ? _mm512_loadu_ps(at) : _mm512_maskz_loadu_ps(mask_of(left), at);
  }
  static __m512 dot(__m512 sum, Vector q, Vector k) { return _mm512_fmadd_ps(q, k, sum); }
  static void add(Sum &sum, __m512 weight, Vector value) { sum.all = _mm512_fmadd_ps(weight, value, sum.all); }
  static void store(const Sum &sum, __m512 by, float *out, long left) {
    _mm512_mask_storeu_ps(out, mask_of(left), _mm512_mul_ps(sum.all, by));
  }
};

template <class E> struct Context {
  const int32_t *slots;  // [last]
  long first, last;      // positions that are seen
  const typename E::Element *keys, *values;  // of this key head
  long stride;           // elements from slot to slot
  float scale;
};

// Q queries, C = D / LANES rounded up. `queries` [Q][LANES C], zeros beyond D; `scores` [Q][room]; `out` [Q][D].
template <class E, int Q, int C>
inline void attend(const Context<E> &in, const typename E::Element *queries, int width, float *scores, long room, float *out) {
  constexpr int LANES = E::LANES;
  const long n = in.last - in.first;
  const long tail = width - LANES * (C - 1);  // elements of the last vector of a head
  typename E::Vector q[Q][C];
  for (int i = 0; i < Q; i++)
    for (int c = 0; c < C; c++) q[i][c] = E::load(queries + (i * C + c) * LANES, LANES);
  __m512 top[Q];
  for (int i = 0; i < Q; i++) top[i] = _mm512_set1_ps(-1e30f);
  for (long at = 0; at < n; at += 16) {
    __m512 dots[Q][16];
    for (int j = 0; j < 16; j++) {
      const long here = at + j < n ? at + j : n - 1;
      const auto *k = in.keys + in.slots[in.first + here] * in.stride;
      typename E::Vector key[C];
      for (int c = 0; c < C - 1; c++) key[c] = E::load(k + LANES * c, LANES);
      key[C - 1] = E::load(k + LANES * (C - 1), tail);
      for (int i = 0; i < Q; i++) {
        __m512 dot = _mm512_setzero_ps();
        for (int c = 0; c < C; c++) dot = E::dot(dot, q[i][c], key[c]);
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
  typename E::Sum sums[Q][C];
  for (long at = 0; at < n; at++) {
    const auto *v = in.values + in.slots[in.first + at] * in.stride;
    for (int c = 0; c < C; c++) {
      const typename E::Vector value = E::load(v + LANES * c, c < C - 1 ? LANES : tail);
      for (int i = 0; i < Q; i++) E::add(sums[i][c], _mm512_set1_ps(scores[i * room + at]), value);
    }
  }
  for (int i = 0; i < Q; i++)
    for (int c = 0; c < C; c++) E::store(sums[i][c], _mm512_set1_ps(inverse[i]), out + i * width + LANES * c, width - LANES * c);
}

template <class E, int C>
inline void attend_some(int n, const Context<E> &in, const typename E::Element *q, int width, float *scores, long room, float *out) {
  constexpr int SUMS = C * E::LANES / 16;  // registers of a query
  constexpr int MOST = SUMS <= 4 ? 4 : SUMS <= 8 ? 2 : 1;
  for (; n > 0;) {
    const int here = n < MOST ? n : MOST;
    switch (here) {
      case 1: attend<E, 1, C>(in, q, width, scores, room, out); break;
      case 2: attend<E, MOST < 2 ? 1 : 2, C>(in, q, width, scores, room, out); break;
      case 3: attend<E, MOST < 3 ? 1 : 3, C>(in, q, width, scores, room, out); break;
      default: attend<E, MOST < 4 ? 1 : 4, C>(in, q, width, scores, room, out); break;
    }
    n -= here, q += here * E::LANES * C, out += here * width;
  }
}

// n queries of width D <= 256; `scores` has room for 4 rows.
template <class E>
inline void attend_heads(int n, const Context<E> &in, const typename E::Element *q, int width, float *scores, long room, float *out) {
  switch ((width + E::LANES - 1) / E::LANES) {
    case 1: return attend_some<E, 1>(n, in, q, width, scores, room, out);
    case 2: return attend_some<E, 2>(n, in, q, width, scores, room, out);
    case 3: return attend_some<E, 3>(n, in, q, width, scores, room, out);
    case 4: return attend_some<E, 4>(n, in, q, width, scores, room, out);
    case 8: return attend_some<E, 8>(n, in, q, width, scores, room, out);
  }
  if constexpr (E::LANES == 16) switch ((width + 15) / 16) {
    case 5: return attend_some<E, 5>(n, in, q, width, scores, room, out);
    case 6: return attend_some<E, 6>(n, in, q, width, scores, room, out);
    case 7: return attend_some<E, 7>(n, in, q, width, scores, room, out);
    case 15: return attend_some<E, 15>(n, in, q, width, scores, room, out);
    case 16: return attend_some<E, 16>(n, in, q, width, scores, room, out);
  }
  abort();  // refused when a model is made
}

}  // namespace tokenrouter
