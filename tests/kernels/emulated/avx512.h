// AVX-512 in what this machine has, by SIMDe, for tests of the kernels that are compiled for it; and the few instructions that SIMDe
// lacks, or emulates by touching memory beside what its mask names.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/fma.h>
#include <simde/x86/svml.h>

#include <math.h>
#include <stdint.h>

template <class Vector, class Element> struct Lanes {
  static constexpr int N = sizeof(Vector) / sizeof(Element);
  Element at[N];
  Lanes(Vector x) { __builtin_memcpy(at, &x, sizeof x); }
  Vector vector() const {
    Vector x;
    __builtin_memcpy(&x, at, sizeof x);
    return x;
  }
  void store(void *to, uint32_t mask) const {
    for (int i = 0; i < N; i++)
      if (mask >> i & 1) ((Element *)to)[i] = at[i];
  }
  Vector loaded(const void *from, uint32_t mask) {
    for (int i = 0; i < N; i++)
      if (mask >> i & 1) at[i] = ((const Element *)from)[i];
    return vector();
  }
  template <class Two> Element folded(const Two &two) {
    for (int half = N / 2; half; half /= 2)
      for (int i = 0; i < half; i++) at[i] = two(at[i], at[i + half]);
    return at[0];
  }
};
using Floats16 = Lanes<__m512, float>;
using Doubles8 = Lanes<__m512d, double>;

inline void store_ps(void *to, uint32_t mask, __m512 x) { Floats16(x).store(to, mask); }
inline void store_16(void *to, uint32_t mask, __m256i x) { Lanes<__m256i, uint16_t>(x).store(to, mask); }
inline void store_8(void *to, uint32_t mask, __m128i x) { Lanes<__m128i, uint8_t>(x).store(to, mask); }
inline __m512 load_ps(__m512 x, uint32_t mask, const void *from) { return Floats16(x).loaded(from, mask); }
inline __m512i load_16(uint32_t mask, const void *from) { return Lanes<__m512i, uint16_t>(_mm512_setzero_si512()).loaded(from, mask); }
inline float add_ps(__m512 x) { return Floats16(x).folded([](float a, float b) { return a + b; }); }
inline float max_ps(__m512 x) { return Floats16(x).folded([](float a, float b) { return a > b ? a : b; }); }
inline double add_pd(__m512d x) { return Doubles8(x).folded([](double a, double b) { return a + b; }); }
inline float first_ps(__m512 x) { return Floats16(x).at[0]; }
inline __m512d wide_pd(__m256 x) {
  const Lanes<__m256, float> from(x);
  Doubles8 to(_mm512_setzero_pd());
  for (int i = 0; i < 8; i++) to.at[i] = from.at[i];
  return to.vector();
}
inline __m512d scalef_pd(__m512d x, __m512d n) {
  Doubles8 to(x);
  const Doubles8 by(n);
  for (int i = 0; i < 8; i++) to.at[i] = scalbn(to.at[i], (int)by.at[i]);
  return to.vector();
}
template <class To, class Small> inline To narrow(__m512i x) {
  const Lanes<__m512i, uint32_t> from(x);
  To zero;
  __builtin_memset(&zero, 0, sizeof zero);
  Lanes<To, Small> to(zero);
  for (int i = 0; i < 16; i++) to.at[i] = (Small)from.at[i];
  return to.vector();
}
inline __m512i whole_ps(__m512 x) {
  const Floats16 from(x);
  Lanes<__m512i, int32_t> to(_mm512_setzero_si512());
  for (int i = 0; i < 16; i++) to.at[i] = (int32_t)nearbyintf(from.at[i]);
  return to.vector();
}
inline __m512 float_32(__m512i x) {
  const Lanes<__m512i, int32_t> from(x);
  Floats16 to(_mm512_setzero_ps());
  for (int i = 0; i < 16; i++) to.at[i] = (float)from.at[i];
  return to.vector();
}
inline __m512i whole_8(__m128i x) {
  const Lanes<__m128i, int8_t> from(x);
  Lanes<__m512i, int32_t> to(_mm512_setzero_si512());
  for (int i = 0; i < 16; i++) to.at[i] = from.at[i];
  return to.vector();
}
inline __m512 scalef_ps(uint32_t mask, __m512 x, __m512 n) {
  Floats16 to(x);
  const Floats16 by(n);
  for (int i = 0; i < 16; i++) to.at[i] = mask >> i & 1 ? (isnan(by.at[i]) ? NAN : scalbnf(to.at[i], (int)by.at[i])) : 0;
  return to.vector();
}

#undef _knot_mask16
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtps_epi32
#undef _mm512_cvtepi32_epi16
#undef _mm512_cvtepi32_epi8
#undef _mm512_mask_storeu_ps
#undef _mm256_mask_storeu_epi16
#undef _mm_mask_storeu_epi8
#undef _mm512_mask_loadu_ps
#undef _mm512_maskz_loadu_ps
#undef _mm512_maskz_loadu_epi16
#undef _mm512_reduce_add_ps
#undef _mm512_reduce_max_ps
#undef _mm512_reduce_add_pd
#undef _mm512_cvtss_f32
#undef _mm512_cvtps_pd
#undef _mm512_scalef_pd
#undef _mm512_maskz_scalef_ps
#define _mm512_cvtps_epi32 whole_ps
#define _mm512_cvtepi32_ps float_32
#define _mm512_cvtepi8_epi32 whole_8
#define _knot_mask16(mask) ((__mmask16) ~(mask))
#define _mm512_cvtepi32_epi16(x) narrow<__m256i, uint16_t>(x)
#define _mm512_cvtepi32_epi8(x) narrow<__m128i, uint8_t>(x)
#define _mm512_mask_storeu_ps store_ps
#define _mm256_mask_storeu_epi16 store_16
#define _mm_mask_storeu_epi8 store_8
#define _mm512_mask_loadu_ps load_ps
#define _mm512_maskz_loadu_ps(mask, from) load_ps(_mm512_setzero_ps(), mask, from)
#define _mm512_maskz_loadu_epi16 load_16
#define _mm512_reduce_add_ps add_ps
#define _mm512_reduce_max_ps max_ps
#define _mm512_reduce_add_pd add_pd
#define _mm512_cvtss_f32 first_ps
#define _mm512_cvtps_pd wide_pd
#define _mm512_scalef_pd scalef_pd
#define _mm512_maskz_scalef_ps scalef_ps
