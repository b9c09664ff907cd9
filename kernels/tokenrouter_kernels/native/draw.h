// One token a row, drawn as ../sampling.py defines it, and the uniform numbers of ../philox.py.
//
// Weights and their sums are float64. Only the ids near the largest logit are put in order, and more of them where those do not decide.
#pragma once

#include <algorithm>
#include <cmath>
#include <stdint.h>
#include <vector>

#include "certainty.h"

namespace tokenrouter {

struct Choice {
  double temperature;  // 0: the likeliest
  int64_t top_k;       // 0: all
  double top_p, min_p;
};

// The sum of all weights e^((x - top) / temperature).
inline double weight_of_all(const float *x, long n, double top, double temperature) {
  const Doubles most = same(top), by = same(1 / temperature);
  Doubles sum = same(0.0);
  for (long at = 0; at < n; at += WIDTH / 2) sum = sum + exponential((load_doubles(x + at, n - at, -INFINITY) - most) * by);
  return sum_of(sum);
}

// Some ids in the order of their logits, ties by id, and the running sums of their weights.
struct Head {
  struct Item {
    float logit;
    int32_t id;
  };
  std::vector<Item> items;
  std::vector<double> weights, sums;

  void take(const float *x, long n, float least, double top, double temperature) {
    items.clear();
    const Floats from = same(least);
    for (long at = 0; at < n; at += WIDTH)
      for (unsigned found = at_least(some_of(x, n, at), from) & bits_of(n - at); found; found &= found - 1) {
        const long id = at + __builtin_ctz(found);
        items.push_back({x[id], (int32_t)id});
      }
    std::sort(items.begin(), items.end(), [](const Item &a, const Item &b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); });
    weights.resize(items.size());
    sums.resize(items.size());
    double running = 0;
    for (size_t i = 0; i < items.size(); i++) {
      weights[i] = exp(((double)items[i].logit - top) / temperature);
      sums[i] = running += weights[i];
    }
  }

  // The first of `n` items whose running sum is beyond a target; n where there is none.
  long beyond(long n, double target) const { return std::upper_bound(sums.begin(), sums.begin() + n, target) - sums.begin(); }
};

inline int64_t draw(const float *x, long n, const Choice &by, double u, Head &head) {
  if (!(by.temperature > 0)) return likeliest(x, n);
  const double top = tops_of(x, n).first;
  if (!std::isfinite(top)) return likeliest(x, n);  // nothing but banned ids and what is no number, or one beyond all others
  long limit = by.top_k > 0 && by.top_k < n ? by.top_k : n;
  const double all = limit == n ? weight_of_all(x, n, top, by.temperature) : 0;
  for (double reach = 4 * by.temperature;; reach *= 2) {
    const bool whole = reach > 800 * by.temperature;  // weights beyond are 0
    head.take(x, n, whole ? -INFINITY : (float)(top - reach), top, by.temperature);
    const long known = head.items.size();
    if (limit < n && known < limit) {
      if (!whole) continue;
      limit = known;  // the other logits are no numbers
    }
    long kept = limit;
    if (by.top_p < 1) {
      const double nucleus = by.top_p * (limit < n ? head.sums[limit - 1] : all);
      const long below = std::lower_bound(head.sums.begin(), head.sums.end(), nucleus) - head.sums.begin();
      if (below == known && !whole) continue;
      kept = std::min(kept, below + 1);
    }
    if (by.min_p > 0) {
      long likely = 1;
      while (likely < known && head.weights[likely] >= by.min_p) likely++;
      if (likely == known && !whole) continue;
      kept = std::min(kept, likely);
    }
    const long here = std::min(kept, known);
    long at = head.beyond(here, u * (kept <= known ? head.sums[kept - 1] : all));
    if (at == here) {
      if (here < kept && !whole) continue;
      for (at = here - 1; head.weights[at] == 0;) at--;  // rounding: the last that may be drawn
    }
    return head.items[at].id;
  }
}

// Philox4x32-10: a number in [0, 1) with 53 bits.
inline double uniform(uint64_t seed, uint32_t position, uint32_t model, uint32_t purpose) {
  uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, word[4] = {position, model, purpose, 0};
  for (int round = 0; round < 10; round++) {
    const uint64_t a = (uint64_t)word[0] * 0xD2511F53u, b = (uint64_t)word[2] * 0xCD9E8D57u;
    const uint32_t next[4] = {(uint32_t)(b >> 32) ^ word[1] ^ key[0], (uint32_t)b, (uint32_t)(a >> 32) ^ word[3] ^ key[1], (uint32_t)a};
    std::copy(next, next + 4, word);
    key[0] += 0x9E3779B9u, key[1] += 0xBB67AE85u;
  }
  return (double)(((uint64_t)word[0] << 21) | (word[1] >> 11)) * 0x1p-53;
}

}  // namespace tokenrouter
