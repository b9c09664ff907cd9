// vector.h in AVX2 with FMA.
#pragma once

namespace tokenrouter {

using Floats = __m256;
using Words = __m256i;    // of 32 bits
using Doubles = __m256d;
using Mask = __m256;      // all bits of a lane, or none

constexpr int WIDTH = 8;
constexpr int REGISTERS = 16, SUMS = 12;

inline Mask mask_of(long from, long left) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i first = _mm256_set1_epi32(from > WIDTH ? WIDTH : (int)from), end = _mm256_set1_epi32(left > WIDTH ? WIDTH : (int)left);
  return _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_cmpgt_epi32(first, lane), _mm256_cmpgt_epi32(end, lane)));
}
inline Mask mask_of(long left) { return mask_of(0, left); }

inline Floats zeros() { return _mm256_setzero_ps(); }
inline Floats same(float x) { return _mm256_set1_ps(x); }
inline Floats load(const float *at) { return _mm256_loadu_ps(at); }
inline Floats load(const float *at, long left) {
  return left >= WIDTH ? load(at) : _mm256_maskload_ps(at, _mm256_castps_si256(mask_of(left)));
}
inline void store(float *at, Floats x) { _mm256_storeu_ps(at, x); }
inline void store(float *at, Floats x, long left) {
  if (left >= WIDTH)
    store(at, x);
  else
    _mm256_maskstore_ps(at, _mm256_castps_si256(mask_of(left)), x);
}

inline Floats fmadd(Floats x, Floats y, Floats z) { return _mm256_fmadd_ps(x, y, z); }
inline Floats fmsub(Floats x, Floats y, Floats z) { return _mm256_fmsub_ps(x, y, z); }
inline Floats fnmadd(Floats x, Floats y, Floats z) { return _mm256_fnmadd_ps(x, y, z); }
// The second where one is no number.
inline Floats larger(Floats x, Floats y) { return _mm256_max_ps(x, y); }
inline Floats smaller(Floats x, Floats y) { return _mm256_min_ps(x, y); }
inline Floats absolute(Floats x) { return _mm256_andnot_ps(same(-0.0f), x); }
inline Floats rounded(Floats x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline float sum_of(Floats x) {
  const __m128 four = _mm256_castps256_ps128(x) + _mm256_extractf128_ps(x, 1), two = four + _mm_movehl_ps(four, four);
  return two[0] + two[1];
}
inline float largest_of(Floats x) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1)), two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return two[0] > two[1] ? two[0] : two[1];
}
inline float first_of(Floats x) { return _mm256_cvtss_f32(x); }

inline Mask is_below(Floats x, Floats y) { return _mm256_cmp_ps(x, y, _CMP_LT_OQ); }
inline Floats where(Mask mask, Floats yes, Floats no) { return _mm256_blendv_ps(no, yes, mask); }
inline Floats where(Mask mask, Floats yes) { return _mm256_and_ps(mask, yes); }
inline Floats load(const float *at, long left, float beyond) { return left >= WIDTH ? load(at) : where(mask_of(left), load(at, left), same(beyond)); }
// x 2^n for -126 <= n <= 127, 0 where the mask says so.
inline Floats zero_or_scaled(Mask zero, Floats x, Floats n) {
  const Words power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_andnot_ps(zero, x * _mm256_castsi256_ps(power));
}

// Bits of lanes.
inline unsigned equal(Floats x, Floats y) { return _mm256_movemask_ps(_mm256_cmp_ps(x, y, _CMP_EQ_OQ)); }
inline unsigned above(Floats x, Floats y) { return _mm256_movemask_ps(_mm256_cmp_ps(x, y, _CMP_GT_OQ)); }
inline unsigned at_least(Floats x, Floats y) { return _mm256_movemask_ps(_mm256_cmp_ps(x, y, _CMP_GE_OQ)); }

inline Words load_words(const void *at) { return _mm256_loadu_si256((const __m256i *)at); }
inline Floats as_floats(Words x) { return _mm256_castsi256_ps(x); }
// Four words of each key from the i-th on, four keys apart.
template <class Four> inline Words words_of(const Four &four, int i) { return _mm256_set_m128i(four(4 + i), four(i)); }
inline Words unpack_low_32(Words x, Words y) { return _mm256_unpacklo_epi32(x, y); }  // within four words each
inline Words unpack_high_32(Words x, Words y) { return _mm256_unpackhi_epi32(x, y); }
inline Words unpack_low_64(Words x, Words y) { return _mm256_unpacklo_epi64(x, y); }
inline Words unpack_high_64(Words x, Words y) { return _mm256_unpackhi_epi64(x, y); }

// The same, in a register from here on. GCC would read weights anew for each row, which takes up to half as long again, and all rows before
// it multiplies the first, and then has no registers left for the sums.
template <class T> inline T held(T x) {
  __asm__("" : "+x"(x));
  return x;
}

// Of pairs of bfloat16 the even ones are one shift away from float32, the odd ones one mask.
inline Floats even_of(Words pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
inline Floats odd_of(Words pairs, Words mask) { return _mm256_castsi256_ps(_mm256_and_si256(pairs, mask)); }
constexpr int UPPER = (int)0xffff0000;  // half of a word
inline Floats odd_of(Words pairs) { return odd_of(pairs, _mm256_set1_epi32(UPPER)); }
const Words ODD = _mm256_set1_epi32(UPPER);
// What is read from there is read again, and not held in a register that sums need (GCC 12).
template <class T> inline const T *anew(const T *at) {
  __asm__ volatile("" : "+r"(at));
  return at;
}

// Rounds to the nearest, ties to even.
inline void store_bf16(uint16_t *at, Floats x, long left) {
  const Words bits = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const Words near = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const Words none = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));  // or a NaN could round to an infinity
  const Words whole = _mm256_srli_epi32(_mm256_blendv_epi8(near, none, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q))), 16);
  const __m128i out = _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(whole, whole), 0x08));
  if (left >= WIDTH) return _mm_storeu_si128((__m128i *)at, out);
  uint16_t all[WIDTH];
  _mm_storeu_si128((__m128i *)all, out);
  for (long i = 0; i < left; i++) at[i] = all[i];
}

// Values of bfloat16 that are weighted and added up.
struct Bfloats {
  static constexpr int LANES = WIDTH, SUMS_EACH = 1;
  static Floats load(const uint16_t *at, long left) {
    uint16_t all[WIDTH] = {};
    if (left < WIDTH) {
      for (long i = 0; i < left; i++) all[i] = at[i];
      at = all;
    }
    return even_of(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)at)));
  }
  struct Sum {
    Floats all = zeros();
    void add(Floats weight, Floats value) { all = fmadd(weight, value, all); }
    void store(float *out) const { tokenrouter::store(out, all); }
  };
};

inline Doubles same(double x) { return _mm256_set1_pd(x); }
inline Doubles load_doubles(const float *at, long left, float beyond) {  // of half as many floats
  return _mm256_cvtps_pd(left >= WIDTH / 2 ? _mm_loadu_ps(at) : _mm256_castps256_ps128(load(at, left, beyond)));
}
inline Doubles fmadd(Doubles x, Doubles y, Doubles z) { return _mm256_fmadd_pd(x, y, z); }
inline Doubles fnmadd(Doubles x, Doubles y, Doubles z) { return _mm256_fnmadd_pd(x, y, z); }
inline Doubles larger(Doubles x, Doubles y) { return _mm256_max_pd(x, y); }
inline Doubles rounded(Doubles x) { return _mm256_round_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
// x 2^n in two steps, since 2^n itself may be too small to be written down: the first is exact.
inline Doubles scaled(Doubles x, Doubles n) {
  const __m128i whole = _mm256_cvtpd_epi32(n), half = _mm_srai_epi32(whole, 1);
  auto power = [](__m128i of) { return _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_cvtepi32_epi64(_mm_add_epi32(of, _mm_set1_epi32(1023))), 52)); };
  return x * power(half) * power(_mm_sub_epi32(whole, half));
}
inline double sum_of(Doubles x) {
  const __m128d two = _mm256_castpd256_pd128(x) + _mm256_extractf128_pd(x, 1);
  return two[0] + two[1];
}

}  // namespace tokenrouter
