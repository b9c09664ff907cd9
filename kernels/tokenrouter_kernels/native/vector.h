// WIDTH numbers at a time: a register of AVX-512 or of AVX2. What both can do has one name in vector512.h and vector256.h; but for
// bytes.h and words.h the rest of the sources knows no instruction of either.
//
// `left` counts the lanes that are there: those from it on read as zeros (or as what is said), and are not written.
#pragma once

#include <immintrin.h>
#include <stdint.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define TOKENROUTER_AVX512 1
#if defined(__AVX512VNNI__)
#define TOKENROUTER_BYTES 1  // int8 weights meet bytes of activations
#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AMX_INT8__) && !defined(TOKENROUTER_NO_TILES)
#define TOKENROUTER_TILES 1  // 16 rows of them, or of bfloat16, at a time
#endif
#endif
#include "vector512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#define TOKENROUTER_WORDS 1  // int8 weights meet words of activations
#include "vector256.h"
#else
#error "AVX2 with FMA, or AVX-512 with BW and VL, is needed"
#endif

namespace tokenrouter {

// How many of n sums of each of `rows` rows are added to together: so many that they, what they are multiplied by, and one more stay in
// registers, in parts of about one size.
constexpr int together(int rows, int n) {
  int most = n;
  while (most > 1 && (rows * most > SUMS || (rows > 1 && (rows + 1) * most + 1 > REGISTERS))) most--;
  const int parts = (n + most - 1) / most;
  return (n + parts - 1) / parts;
}

// Likewise where a row has `each` sums of what comes together, and the rows' numbers may stay in registers instead (`rows_stay`).
constexpr bool rows_stay(int rows, int each, int most) { return rows + each <= each * most + 1; }
constexpr int together(int rows, int each, int n) {
  int most = n;
  while (most > 1 && each * rows * most + (rows_stay(rows, each, most) ? rows + each : each * most + 1) > REGISTERS) most--;
  while (most > 1 && each * rows * most > SUMS) most--;
  const int parts = (n + most - 1) / most;
  return (n + parts - 1) / parts;
}

inline float from_bf16(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float out;
  __builtin_memcpy(&out, &bits, 4);
  return out;
}

// Bits of the lanes that are there.
inline unsigned bits_of(long left) { return (1u << (left < WIDTH ? left : WIDTH)) - 1; }

// e^x for x <= 0, to about 2 units in the last place; 0 below -87.
inline Floats exponential(Floats x) {
  const Mask low = is_below(x, same(-87.0f));
  Floats n = rounded(x * same(1.44269504f));
  Floats r = fnmadd(n, same(0.693359375f), x);
  r = fnmadd(n, same(-2.12194440e-4f), r);
  Floats p = same(1.0f / 5040);
  p = fmadd(p, r, same(1.0f / 720));
  p = fmadd(p, r, same(1.0f / 120));
  p = fmadd(p, r, same(1.0f / 24));
  p = fmadd(p, r, same(1.0f / 6));
  p = fmadd(p, r, same(0.5f));
  p = fmadd(p, r, same(1.0f));
  p = fmadd(p, r, same(1.0f));
  return zero_or_scaled(low, p, n);
}

// e^x for x <= 0, to about 1 unit in the last place.
inline Doubles exponential(Doubles x) {
  x = larger(x, same(-800.0));
  const Doubles n = rounded(x * same(1.4426950408889634));
  Doubles r = fnmadd(n, same(6.93147180369123816490e-01), x);
  r = fnmadd(n, same(1.90821492927058770002e-10), r);
  double over = 6227020800.0;  // 13!
  Doubles p = same(1 / over);
#pragma GCC unroll 13
  for (int i = 13; i > 0; i--) over /= i, p = fmadd(p, r, same(1 / over));
  return scaled(p, n);
}

}  // namespace tokenrouter
