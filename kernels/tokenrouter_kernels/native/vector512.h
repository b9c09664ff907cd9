// vector.h in AVX-512.
#pragma once

namespace tokenrouter {

using Floats = __m512;
using Words = __m512i;    // of 32 bits
using Doubles = __m512d;
using Mask = __mmask16;

constexpr int WIDTH = 16;
constexpr int REGISTERS = 32, SUMS = 24;

inline Mask mask_of(long left) { return left >= 16 ? (Mask)0xffff : (Mask)((1u << left) - 1); }
inline Mask mask_of(long from, long left) { return (Mask)(mask_of(left) & (from > 0 ? ~mask_of(from) : -1)); }

inline Floats zeros() { return _mm512_setzero_ps(); }
inline Floats same(float x) { return _mm512_set1_ps(x); }
inline Floats load(const float *at) { return _mm512_loadu_ps(at); }
inline Floats load(const float *at, long left) { return _mm512_maskz_loadu_ps(mask_of(left), at); }
inline Floats load(const float *at, long left, float beyond) { return _mm512_mask_loadu_ps(same(beyond), mask_of(left), at); }
inline void store(float *at, Floats x) { _mm512_storeu_ps(at, x); }
inline void store(float *at, Floats x, long left) { _mm512_mask_storeu_ps(at, mask_of(left), x); }

inline Floats fmadd(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats fmsub(Floats a, Floats b, Floats c) { return _mm512_fmsub_ps(a, b, c); }
inline Floats fnmadd(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }
// The second where one is no number.
inline Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Floats smaller(Floats a, Floats b) { return _mm512_min_ps(a, b); }
inline Floats absolute(Floats x) { return _mm512_abs_ps(x); }
inline Floats rounded(Floats x) { return _mm512_roundscale_ps(x, 0); }
inline float sum_of(Floats x) { return _mm512_reduce_add_ps(x); }
inline float largest_of(Floats x) { return _mm512_reduce_max_ps(x); }
inline float first_of(Floats x) { return _mm512_cvtss_f32(x); }

inline Mask is_below(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline Floats where(Mask mask, Floats yes, Floats no) { return _mm512_mask_mov_ps(no, mask, yes); }
inline Floats where(Mask mask, Floats yes) { return _mm512_maskz_mov_ps(mask, yes); }
inline Floats zero_or_scaled(Mask zero, Floats x, Floats n) { return _mm512_maskz_scalef_ps(_knot_mask16(zero), x, n); }  // x 2^n

// Bits of lanes.
inline unsigned equal(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
inline unsigned above(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
inline unsigned at_least(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }

inline Words load_words(const void *at) { return _mm512_loadu_si512(at); }
inline Floats as_floats(Words x) { return _mm512_castsi512_ps(x); }
// Four words of each key from the i-th on, four keys apart.
template <class Four> inline Words words_of(const Four &four, int i) {
  const Words one = _mm512_inserti32x4(_mm512_castsi128_si512(four(i)), four(4 + i), 1);
  return _mm512_inserti32x4(_mm512_inserti32x4(one, four(8 + i), 2), four(12 + i), 3);
}
inline Words unpack_low_32(Words a, Words b) { return _mm512_unpacklo_epi32(a, b); }  // within four words each
inline Words unpack_high_32(Words a, Words b) { return _mm512_unpackhi_epi32(a, b); }
inline Words unpack_low_64(Words a, Words b) { return _mm512_unpacklo_epi64(a, b); }
inline Words unpack_high_64(Words a, Words b) { return _mm512_unpackhi_epi64(a, b); }

// Of pairs of bfloat16 the even ones are one shift away from float32, the odd ones one mask.
inline Floats even_of(Words pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }
inline Floats odd_of(Words pairs) { return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000))); }

inline Floats load_weights(const int8_t *at) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)at))); }

inline Floats load_weights(const float *at) { return load(at); }

// Rounds to the nearest, ties to even.
inline void store_bf16(uint16_t *at, Floats x, long left) {
#if defined(__AVX512BF16__)
  const __m256i out = (__m256i)_mm512_cvtneps_pbh(x);
#else
  const Words bits = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const Words near = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const Words none = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));  // or a NaN could round to an infinity
  const Words whole = _mm512_mask_mov_epi32(near, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), none);
  const __m256i out = _mm512_cvtepi32_epi16(_mm512_srli_epi32(whole, 16));
#endif
  _mm256_mask_storeu_epi16(at, mask_of(left), out);
}

// x as bfloat16 has it, the nearest, ties to even.
inline Floats as_bf16(Floats x) {
  alignas(32) uint16_t some[WIDTH];
  store_bf16(some, x, WIDTH);
  return even_of(_mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)some)));
}

// Values of bfloat16 that are weighted and added up, even and odd ones apart until they are stored.
struct Bfloats {
  static constexpr int LANES = 2 * WIDTH, SUMS_EACH = 2;
  struct Pair {
    Floats even, odd;
  };
  static Pair load(const uint16_t *at, long left) {
    const Words pairs = left >= LANES ? load_words(at) : _mm512_maskz_loadu_epi16((__mmask32)((1u << left) - 1), at);
    return {even_of(pairs), odd_of(pairs)};
  }
  struct Sum {
    Floats even = zeros(), odd = zeros();
    void add(Floats weight, const Pair &value) {
      even = fmadd(weight, value.even, even);
      odd = fmadd(weight, value.odd, odd);
    }
    void store(float *out) const {
      const Words lower = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      const Words upper = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
      tokenrouter::store(out, _mm512_permutex2var_ps(even, lower, odd));
      tokenrouter::store(out + 16, _mm512_permutex2var_ps(even, upper, odd));
    }
  };
};

inline Doubles same(double x) { return _mm512_set1_pd(x); }
inline Doubles load_doubles(const float *at, long left, float beyond) {  // of half as many floats
  const Mask mask = mask_of(left < 8 ? left : 8);
  return _mm512_cvtps_pd(_mm512_castps512_ps256(_mm512_mask_loadu_ps(same(beyond), mask, at)));
}
inline Doubles fmadd(Doubles a, Doubles b, Doubles c) { return _mm512_fmadd_pd(a, b, c); }
inline Doubles fnmadd(Doubles a, Doubles b, Doubles c) { return _mm512_fnmadd_pd(a, b, c); }
inline Doubles larger(Doubles a, Doubles b) { return _mm512_max_pd(a, b); }
inline Doubles rounded(Doubles x) { return _mm512_roundscale_pd(x, 0); }
inline Doubles scaled(Doubles x, Doubles n) { return _mm512_scalef_pd(x, n); }  // x 2^n
inline double sum_of(Doubles x) { return _mm512_reduce_add_pd(x); }

}  // namespace tokenrouter
