// What a row of logits says: its likeliest id, and the signals of certainty for which all of it is read (see ../signals.py).
//
// Sums are float32 over SUMMED values and float64 from there on. A row's result does not depend on the other rows, to the bit.
#pragma once

#include <cmath>
#include <immintrin.h>
#include <stdint.h>

#include "attention.h"

namespace tokenrouter {

enum Column { ENTROPY, VARENTROPY, MAXPROB, MARGIN, LOGPROB, RANK, COLUMNS };

struct Tops {
  float first, second;  // equal where two ids share the largest logit
};

inline __m512 some_of(const float *x, long n, long at) {
  return _mm512_mask_loadu_ps(_mm512_set1_ps(-INFINITY), mask_of(n - at), x + at);
}

// Of values that are numbers: of two operands, min and max return the second where one is none.
inline Tops tops_of(const float *x, long n) {
  __m512 first = _mm512_set1_ps(-INFINITY), second = first;
  for (long at = 0; at < n; at += 16) {
    const __m512 v = some_of(x, n, at);
    second = _mm512_max_ps(_mm512_min_ps(first, v), second);
    first = _mm512_max_ps(v, first);
  }
  float lanes[32];
  _mm512_storeu_ps(lanes, first);
  _mm512_storeu_ps(lanes + 16, second);
  Tops tops{-INFINITY, -INFINITY};
  for (float v : lanes) {
    if (v > tops.first)
      tops = {v, tops.first};
    else if (v > tops.second)
      tops.second = v;
  }
  return tops;
}

// The lowest id of a logit that is there; 0 where it is not.
inline int64_t id_of(const float *x, long n, float logit) {
  const __m512 most = _mm512_set1_ps(logit);
  for (long at = 0; at < n; at += 16) {
    const __mmask16 found = _mm512_mask_cmp_ps_mask(mask_of(n - at), some_of(x, n, at), most, _CMP_EQ_OQ);
    if (found) return at + __builtin_ctz(found);
  }
  return 0;
}

// The lowest id of the largest logit.
inline int64_t likeliest(const float *x, long n) { return id_of(x, n, tops_of(x, n).first); }

// Ids before `candidate` in the order of logits, ties by id.
inline long ids_before(const float *x, long n, long candidate) {
  const __m512 chosen = _mm512_set1_ps(x[candidate]);
  long before = 0;
  for (long at = 0; at < n; at += 16) {
    const __m512 v = some_of(x, n, at);
    const __mmask16 lower = at < candidate ? mask_of(candidate - at) : 0;
    before += __builtin_popcount(_mm512_cmp_ps_mask(v, chosen, _CMP_GT_OQ) | _mm512_mask_cmp_ps_mask(lower, v, chosen, _CMP_EQ_OQ));
  }
  return before;
}

constexpr long SUMMED = 1024;  // values whose sum is float32

// Of -ln p around the entropy, which is that of `below` around its mean.
inline double variance(const float *x, long n, __m512 most, __m512 least, double mean, double total) {
  const __m512 centre = _mm512_set1_ps((float)mean);
  double sum = 0;
  for (long begin = 0; begin < n; begin += SUMMED) {
    const long end = begin + SUMMED < n ? begin + SUMMED : n;
    __m512 some = _mm512_setzero_ps();
    for (long at = begin; at < end; at += 16) {
      const __m512 below = _mm512_max_ps(_mm512_sub_ps(some_of(x, n, at), most), least), off = _mm512_sub_ps(below, centre);
      some = _mm512_fmadd_ps(_mm512_mul_ps(exponential(below), off), off, some);
    }
    sum += _mm512_reduce_add_ps(some);
  }
  return sum / total;
}

// Writes the columns of one row, `stride` apart; those that take a way of their own only where they are wanted (bits by column).
inline void certainty(const float *x, long n, const Tops &tops, long candidate, int wanted, float *out, long stride) {
  // e^-88 counts as 0, and so does its product with the distance: a banned id, at minus infinity, adds nothing.
  const __m512 most = _mm512_set1_ps(tops.first), least = _mm512_set1_ps(-88.0f);
  double total = 0, weighted = 0;
  for (long begin = 0; begin < n; begin += SUMMED) {
    const long end = begin + SUMMED < n ? begin + SUMMED : n;
    __m512 some = _mm512_setzero_ps(), of = _mm512_setzero_ps();
    for (long at = begin; at < end; at += 16) {
      const __m512 below = _mm512_max_ps(_mm512_sub_ps(some_of(x, n, at), most), least), e = exponential(below);
      some = _mm512_add_ps(some, e);
      of = _mm512_fmadd_ps(e, below, of);
    }
    total += _mm512_reduce_add_ps(some);
    weighted += _mm512_reduce_add_ps(of);
  }
  const double log_total = log(total), mean = weighted / total, entropy = log_total - mean;
  const float columns[COLUMNS] = {
      (float)entropy,  // never below 0: the sum is 1 at least and no distance is above 0
      wanted >> VARENTROPY & 1 ? (float)variance(x, n, most, least, mean, total) : 0,
      (float)(1 / total),
      (float)((1 - exp((double)tops.second - tops.first)) / total),
      (float)((double)x[candidate] - tops.first - log_total),
      wanted >> RANK & 1 ? (float)(1 + ids_before(x, n, candidate)) : 0,
  };
  for (int column = 0; column < COLUMNS; column++) out[column * stride] = columns[column];
}

inline void certainty(const float *x, long n, long candidate, int wanted, float *out, long stride) {
  certainty(x, n, tops_of(x, n), candidate, wanted, out, stride);
}

// The likeliest id, and its columns.
inline int64_t look(const float *x, long n, float *out, long stride) {
  const Tops tops = tops_of(x, n);
  const int64_t id = id_of(x, n, tops.first);
  certainty(x, n, tops, id, 0, out, stride);
  return id;
}

}  // namespace tokenrouter
