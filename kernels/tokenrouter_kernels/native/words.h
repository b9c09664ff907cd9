// int8 weights and activations of 16 bits by AVX2, whose instruction multiplies words of 16 bits and adds pairs of products up:
//
// x ~ scale * q with -32767 <= q <= 32767 of a row's own scale, so that
//     y = scale * weight_scale * sum q w
// and the sums of a span are exact integers.
#pragma once

#include "layers.h"

#if defined(TOKENROUTER_WORDS)

namespace tokenrouter {

// Writes one row as words. What is filled up may be anything: its weights are zeros.
inline void encode_words(const float *x, long n, const Rows &to, long row) {
  Floats top = zeros(), bad = zeros();  // bad: zeros, or no number where x is none or infinite
  for (long at = 0; at < n; at += WIDTH) {
    const Floats v = load(x + at, n - at);
    top = larger(top, absolute(v));
    bad = fmadd(v, zeros(), bad);
  }
  const float largest = largest_of(top), scale = largest > 0 ? largest / 32767.0f : 1.0f;
  to.scale[row] = scale + sum_of(bad);
  const Floats by = same(1.0f / scale);
  int16_t *out = to.words + row * to.stride;
  for (long at = 0; at < n; at += WIDTH) {
    const Words q = _mm256_cvtps_epi32(load(x + at, n - at) * by);
    _mm_storeu_si128((__m128i *)(out + at), _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1)));
  }
}

// How weights meet a row as words: see products256.h.
struct ByWords {
  using Weight = int8_t;
  using Row = int16_t;
  using Sum = Words;
  static constexpr int DEPTH = 2, TURNS = 1;
  static constexpr bool ASKS = false;  // half as many bytes: nothing is gained
  static constexpr long LONGEST = 0x7fffffff / (127 * 32768);  // span of K whose sums cannot overflow
  static const Row *rows(const Rows &x) { return x.words; }
  static Sum none() { return _mm256_setzero_si256(); }
  static Words weights(const Weight *at, int, Words) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)at)); }
  static Words same(const Row *at) {
    int32_t pair;
    __builtin_memcpy(&pair, at, 4);
    return _mm256_set1_epi32(pair);
  }
  static Sum add(Words x, Words weight, Sum to) { return held(_mm256_add_epi32(to, _mm256_madd_epi16(x, weight))); }
  static Floats floats(Sum sum) { return _mm256_cvtepi32_ps(sum); }
};

}  // namespace tokenrouter

#endif
