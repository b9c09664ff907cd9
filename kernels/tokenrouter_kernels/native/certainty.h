// What a row of logits says: its likeliest id, and the signals of certainty for which all of it is read (see ../signals.py).
//
// Sums are float32 over SUMMED values and float64 from there on. A row's result does not depend on the other rows, to the bit.
#pragma once

#include <cmath>
#include <stdint.h>

#include "vector.h"

namespace tokenrouter {

enum Column { ENTROPY, VARENTROPY, MAXPROB, MARGIN, LOGPROB, RANK, COLUMNS };

struct Tops {
  float first, second;  // equal where two ids share the largest logit
};

inline Floats some_of(const float *x, long n, long at) { return load(x + at, n - at, -INFINITY); }

// Of values that are numbers: of two operands, min and max return the second where one is none.
inline Tops tops_of(const float *x, long n) {
  Floats first = same(-INFINITY), second = first;
  for (long at = 0; at < n; at += WIDTH) {
    const Floats v = some_of(x, n, at);
    second = larger(smaller(first, v), second);
    first = larger(v, first);
  }
  float lanes[2 * WIDTH];
  store(lanes, first);
  store(lanes + WIDTH, second);
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
  const Floats most = same(logit);
  for (long at = 0; at < n; at += WIDTH) {
    const unsigned found = equal(some_of(x, n, at), most) & bits_of(n - at);
    if (found) return at + __builtin_ctz(found);
  }
  return 0;
}

// The lowest id of the largest logit.
inline int64_t likeliest(const float *x, long n) { return id_of(x, n, tops_of(x, n).first); }

// Ids before `candidate` in the order of logits, ties by id.
inline long ids_before(const float *x, long n, long candidate) {
  const Floats chosen = same(x[candidate]);
  long before = 0;
  for (long at = 0; at < n; at += WIDTH) {
    const Floats v = some_of(x, n, at);
    const unsigned lower = at < candidate ? bits_of(candidate - at) : 0;
    before += __builtin_popcount(above(v, chosen) | (equal(v, chosen) & lower));
  }
  return before;
}

constexpr long SUMMED = 1024;  // values whose sum is float32

// Of -ln p around the entropy, which is that of `below` around its mean.
inline double variance(const float *x, long n, Floats most, Floats least, double mean, double total) {
  const Floats centre = same((float)mean);
  double sum = 0;
  for (long begin = 0; begin < n; begin += SUMMED) {
    const long end = begin + SUMMED < n ? begin + SUMMED : n;
    Floats some = zeros();
    for (long at = begin; at < end; at += WIDTH) {
      const Floats below = larger(some_of(x, n, at) - most, least), off = below - centre;
      some = fmadd(exponential(below) * off, off, some);
    }
    sum += sum_of(some);
  }
  return sum / total;
}

// Writes the columns of one row, `stride` apart; those that take a way of their own only where they are wanted (bits by column).
inline void certainty(const float *x, long n, const Tops &tops, long candidate, int wanted, float *out, long stride) {
  // e^-88 counts as 0, and so does its product with the distance: a banned id, at minus infinity, adds nothing.
  const Floats most = same(tops.first), least = same(-88.0f);
  double total = 0, weighted = 0;
  for (long begin = 0; begin < n; begin += SUMMED) {
    const long end = begin + SUMMED < n ? begin + SUMMED : n;
    Floats some = zeros(), of = zeros();
    for (long at = begin; at < end; at += WIDTH) {
      const Floats below = larger(some_of(x, n, at) - most, least), e = exponential(below);
      some = some + e;
      of = fmadd(e, below, of);
    }
    total += sum_of(some);
    weighted += sum_of(of);
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
