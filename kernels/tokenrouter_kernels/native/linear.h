// Linear layers over packed weights: bfloat16, int8 with 16-bit activations, or float32; other activations and all sums in float32.
//
// A weight [N, K] lies in panels of 32 outputs, K filled up with zeros to a multiple of 32:
//     float32  [N / 32][K][32]      bfloat16  [N / 32][K / 2][32][2]      int8  [N / 32][K / 4][32][4]
// so that one vector holds 16 outputs by 1 (2, 4) neighbours in K. Of two bfloat16 one is a shift away from float32 and the other a mask;
// multiplied in float32 they take less time than by the instruction for pairs of bfloat16 (docs/performance.md), and activations stay whole.
//
// An int8 product: x ~ scale * (256 hi + lo - 32768) with bytes hi, lo of a row's own scale, so that
//     y = scale * weight_scale * (256 (sum hi w - 128 sum w) + sum lo w)
// and both sums are exact integers. What is lost is the rounding of the weights.
//
// A row's result has the same order of additions whatever the other rows are.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace tokenrouter {

constexpr int PANEL = 32;  // outputs
constexpr int ROWS = 6;    // of x at a time: 6 rows by 4 vectors of sums fill the registers
constexpr int AHEAD = 2048; // bytes of a panel to ask for: the processor itself stops at the end of a page
constexpr int SPAN = 128;  // of K, see products_fp32
constexpr int BLOCK = 240; // rows whose x stays near while the weights go by

inline long filled(long n) { return (n + PANEL - 1) / PANEL * PANEL; }

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

// The rows that a linear layer reads, in the form that its kind wants.
struct Rows {
  long stride;      // elements from row to row: K filled up
  float *fp32;      // [T, stride]
  uint8_t *hi, *lo; // [T, stride]
  float *scale;     // [T]
};

inline float from_bf16(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float out;
  __builtin_memcpy(&out, &bits, 4);
  return out;
}

inline __mmask16 mask_of(long left) {
  return left >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << left) - 1);
}

// Writes one row in the form that a linear layer reads.
inline void encode(const float *x, long n, int kind, const Rows &to, long row) {
  if (kind != INT8) {
    float *out = to.fp32 + row * to.stride;
    __builtin_memcpy(out, x, n * sizeof(float));
    for (long at = n; at < to.stride; at++) out[at] = 0;  // an infinity of another row would spoil the zeros it meets
    return;
  }
  __m512 top = _mm512_setzero_ps();
  for (long at = 0; at < n; at += 16)
    top = _mm512_max_ps(top, _mm512_abs_ps(_mm512_maskz_loadu_ps(mask_of(n - at), x + at)));
  float largest = _mm512_reduce_max_ps(top);
  float scale = largest > 0 ? largest / 32767.0f : 1.0f;
  to.scale[row] = scale;
  __m512 by = _mm512_set1_ps(1.0f / scale);
  const __m512i zero = _mm512_set1_epi32(32768), byte = _mm512_set1_epi32(255);
  for (long at = 0; at < n; at += 16) {
    __mmask16 mask = mask_of(n - at);
    __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + at), by);
    __m512i q = _mm512_add_epi32(_mm512_cvtps_epi32(v), zero);
    q = _mm512_min_epi32(_mm512_max_epi32(q, _mm512_setzero_si512()), _mm512_set1_epi32(65535));
    long to_at = row * to.stride + at;
    _mm_mask_storeu_epi8(to.hi + to_at, mask, _mm512_cvtepi32_epi8(_mm512_srli_epi32(q, 8)));
    _mm_mask_storeu_epi8(to.lo + to_at, mask, _mm512_cvtepi32_epi8(_mm512_and_epi32(q, byte)));
  }
}

inline int32_t four(const void *at) {
  int32_t out;
  __builtin_memcpy(&out, at, 4);
  return out;
}

// M rows by P panels: sums [M][2 P] of 16 outputs each.
template <int M, int P>
inline void products_bf16(const Linear &by, const Rows &x, long row, long panel, __m512 (&sums)[M][2 * P]) {
  const long k = filled(by.k), size = k * PANEL * 2;
  const char *w = by.weight + panel * size;
  const float *a = x.fp32 + row * x.stride;
  for (int m = 0; m < M; m++)
    for (int v = 0; v < 2 * P; v++) sums[m][v] = _mm512_setzero_ps();
  for (long at = 0; at < k / 2; at++)
    for (int v = 0; v < 2 * P; v++) {
      const char *here = w + v / 2 * size + at * 128 + v % 2 * 64;
      _mm_prefetch(here + AHEAD, _MM_HINT_T0);
      const __m512i pairs = _mm512_loadu_si512(here);
      const __m512 even = (__m512)_mm512_slli_epi32(pairs, 16), odd = (__m512)_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000));
      for (int m = 0; m < M; m++) {
        const float *two = a + m * x.stride + 2 * at;
        sums[m][v] = _mm512_fmadd_ps(odd, _mm512_set1_ps(two[1]), _mm512_fmadd_ps(even, _mm512_set1_ps(two[0]), sums[m][v]));
      }
    }
}

// Sums of SPAN products are added up first, and then these: one long chain of additions would lose two digits.
template <int M, int P>
inline void products_fp32(const Linear &by, const Rows &x, long row, long panel, __m512 (&sums)[M][2 * P]) {
  const long k = filled(by.k), size = k * PANEL;
  const float *w = (const float *)by.weight + panel * size;
  const float *a = x.fp32 + row * x.stride;
  for (int m = 0; m < M; m++)
    for (int v = 0; v < 2 * P; v++) sums[m][v] = _mm512_setzero_ps();
  for (long begin = 0; begin < k; begin += SPAN) {
    const long end = begin + SPAN < k ? begin + SPAN : k;
    __m512 some[M][2 * P];
    for (int m = 0; m < M; m++)
      for (int v = 0; v < 2 * P; v++) some[m][v] = _mm512_setzero_ps();
    for (long at = begin; at < end; at++) {
      __m512 weight[2 * P];
      for (int p = 0; p < P; p++) {
        const float *here = w + p * size + at * PANEL;
        _mm_prefetch((const char *)here + AHEAD, _MM_HINT_T0);
        _mm_prefetch((const char *)here + AHEAD + 64, _MM_HINT_T0);
        weight[2 * p] = _mm512_loadu_ps(here);
        weight[2 * p + 1] = _mm512_loadu_ps(here + 16);
      }
      for (int m = 0; m < M; m++) {
        const __m512 one = _mm512_set1_ps(a[m * x.stride + at]);
        for (int v = 0; v < 2 * P; v++) some[m][v] = _mm512_fmadd_ps(one, weight[v], some[m][v]);
      }
    }
    for (int m = 0; m < M; m++)
      for (int v = 0; v < 2 * P; v++) sums[m][v] = _mm512_add_ps(sums[m][v], some[m][v]);
  }
}

template <int M, int P>
inline void products_int8(const Linear &by, const Rows &x, long row, long panel, __m512 (&sums)[M][2 * P]) {
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
    for (int v = 0; v < 2 * P; v++) {
      long at = panel * PANEL + v * 16;
      __m512 sum = _mm512_loadu_ps(by.sum + at);
      __m512 above = _mm512_fnmadd_ps(sum, _mm512_set1_ps(128.0f), _mm512_cvtepi32_ps(high[m][v]));
      __m512 whole = _mm512_fmadd_ps(above, _mm512_set1_ps(256.0f), _mm512_cvtepi32_ps(low[m][v]));
      __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(by.scale + at), _mm512_set1_ps(x.scale[row + m]));
      sums[m][v] = _mm512_mul_ps(whole, scale);
    }
}

template <int M, int P, class End>
inline void tile(const Linear &by, const Rows &x, long row, long panel, const End &end) {
  __m512 sums[M][2 * P];
  if (by.kind == BF16)
    products_bf16<M, P>(by, x, row, panel, sums);
  else if (by.kind == FP32)
    products_fp32<M, P>(by, x, row, panel, sums);
  else
    products_int8<M, P>(by, x, row, panel, sums);
  if (by.bias)
    for (int v = 0; v < 2 * P; v++) {
      __m512 bias = _mm512_loadu_ps(by.bias + panel * PANEL + v * 16);
      for (int m = 0; m < M; m++) sums[m][v] = _mm512_add_ps(sums[m][v], bias);
    }
  for (int m = 0; m < M; m++) end.template take<P>(row + m, panel * PANEL, sums[m]);
}

template <int P, class End>
inline void strip(const Linear &by, const Rows &x, long row, long rows, long panel, const End &end) {
  const long most = by.kind == INT8 ? ROWS / 2 : ROWS;
  for (long parts = (rows + most - 1) / most; parts > 0; parts--) {
    long m = (rows + parts - 1) / parts;
    switch (m) {
      case 1: tile<1, P>(by, x, row, panel, end); break;
      case 2: tile<2, P>(by, x, row, panel, end); break;
      case 3: tile<3, P>(by, x, row, panel, end); break;
      case 4: tile<4, P>(by, x, row, panel, end); break;
      case 5: tile<5, P>(by, x, row, panel, end); break;
      default: tile<6, P>(by, x, row, panel, end); break;
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
