// Attention of some queries, all of one request and one key head, over one chunk of the request's context.
//
//     part = (top, total, sums):    top = max_j s_j    total = sum_j e^(s_j - top)    sums = sum_j e^(s_j - top) v_j
//     s_j = q k_j                   the parts of all chunks, folded in their order, are the attention of the query
//
// Chunks begin at multiples of CHUNK positions, so that what a query gives depends on its own context alone: neither on the queries
// beside it, nor on who works on which chunk. Keys and values are bfloat16 or float32 [slots, kv_heads, D]; all else is float32.
//
// Keys are widened and turned first, 64 positions [D][64] at a time. That costs as much as two or three queries, and saves each
// query the sums across its vectors.
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "linear.h"

namespace tokenrouter {

constexpr long CHUNK = 256;  // positions
constexpr long TURNED = 64;  // positions that are turned together
constexpr int TILE = 6;      // queries at a time: 6 by 4 vectors of sums fill the registers

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

// What keys and values are made of; WORD: elements of 32 bits.
struct Narrow {
  using Element = uint16_t;  // bfloat16
  static constexpr int LANES = 32, WORD = 2;
  struct Pair {
    __m512 even, odd;
  };
  // The even elements of a vector of bfloat16 are one shift away from float32, the odd ones one mask.
  static Pair widened(__m512i pairs) {
    return {(__m512)_mm512_slli_epi32(pairs, 16), (__m512)_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000))};
  }
  static Pair load(const Element *at, long left) {
    return widened(left >= LANES ? _mm512_loadu_si512(at) : _mm512_maskz_loadu_epi16((__mmask32)((1u << left) - 1), at));
  }
  struct Sum {
    __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
    void add(__m512 weight, const Pair &value) {
      even = _mm512_fmadd_ps(weight, value.even, even);
      odd = _mm512_fmadd_ps(weight, value.odd, odd);
    }
    void store(float *out) const {
      const __m512i lower = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      const __m512i upper = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
      _mm512_storeu_ps(out, _mm512_permutex2var_ps(even, lower, odd));
      _mm512_storeu_ps(out + 16, _mm512_permutex2var_ps(even, upper, odd));
    }
  };
  static void put(__m512i word, float *out) {  // elements 2 w and 2 w + 1 of 16 keys
    const Pair both = widened(word);
    _mm512_store_ps(out, both.even);
    _mm512_store_ps(out + TURNED, both.odd);
  }
};

struct Wide {
  using Element = float;
  static constexpr int LANES = 16, WORD = 1;
  static __m512 load(const Element *at, long left) {
    return left >= LANES ? _mm512_loadu_ps(at) : _mm512_maskz_loadu_ps(mask_of(left), at);
  }
  struct Sum {
    __m512 all = _mm512_setzero_ps();
    void add(__m512 weight, __m512 value) { all = _mm512_fmadd_ps(weight, value, all); }
    void store(float *out) const { _mm512_storeu_ps(out, all); }
  };
  static void put(__m512i word, float *out) { _mm512_store_ps(out, (__m512)word); }
};

// The keys and values of one key head and one request.
template <class E> struct Context {
  const int32_t *slots;                      // by position
  const typename E::Element *keys, *values;
  long stride;                               // elements from slot to slot
  long width;                                // D
};

// A part of attention: 16 floats (top, total, nothing), D sums, filled up to whole vectors of either kind.
inline long part_size(long width) { return 16 + (width + 31) / 32 * 32; }

// What one query has to do with a chunk: positions [from, to), counted from the chunk's begin, and where its part goes.
struct Query {
  const float *q;  // [D], scaled
  long from, to;
  float *part;
};

// What a thread keeps of a chunk.
struct Room {
  float *keys;    // [CHUNK / TURNED][D][TURNED]; where there is one tile only, the first of them serves for all
  float *scores;  // [TILE][CHUNK]
};

inline long room_size(long width) { return CHUNK * width + TILE * CHUNK; }

// Turns the keys of 16 positions from `begin`, of which those from `end` on repeat the last.
template <class E> inline void turn_keys(const Context<E> &in, long begin, long end, float *out) {
  const typename E::Element *key[16];
  for (int i = 0; i < 16; i++) key[i] = in.keys + in.slots[begin + i < end ? begin + i : end - 1] * in.stride;
  auto turn = [&](long word, long n, auto four_of) {
    __m512i v[4];  // v[i]: four words of keys i, 4 + i, 8 + i, 12 + i
    for (int i = 0; i < 4; i++) {
      v[i] = _mm512_castsi128_si512(four_of(key[i] + word * E::WORD));
      v[i] = _mm512_inserti32x4(v[i], four_of(key[4 + i] + word * E::WORD), 1);
      v[i] = _mm512_inserti32x4(v[i], four_of(key[8 + i] + word * E::WORD), 2);
      v[i] = _mm512_inserti32x4(v[i], four_of(key[12 + i] + word * E::WORD), 3);
    }
    const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    const __m512i turned[4] = {_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c), _mm512_unpacklo_epi64(b, d), _mm512_unpackhi_epi64(b, d)};
    for (int i = 0; i < n; i++) E::put(turned[i], out + (word + i) * E::WORD * TURNED);
  };
  const long words = in.width / E::WORD, rest = words % 4;
  for (long word = 0; word < words - rest; word += 4) turn(word, 4, [](const void *at) { return _mm_loadu_si128((const __m128i *)at); });
  if (rest) turn(words - rest, rest, [&](const void *at) { return _mm_maskz_loadu_epi32((1 << rest) - 1, at); });
}

// Scores of Q queries and 16 B turned keys.
template <int Q, int B> inline void score(const Query *query, long width, const float *keys, float *scores) {
  __m512 sums[Q][B];
  for (int i = 0; i < Q; i++)
    for (int b = 0; b < B; b++) sums[i][b] = _mm512_setzero_ps();
  const float *q[Q];
  for (int i = 0; i < Q; i++) q[i] = query[i].q;
  for (long d = 0; d < width; d++) {
    __m512 key[B];
    for (int b = 0; b < B; b++) key[b] = _mm512_load_ps(keys + d * TURNED + 16 * b);
    for (int i = 0; i < Q; i++) {
      const __m512 one = _mm512_set1_ps(q[i][d]);
      for (int b = 0; b < B; b++) sums[i][b] = _mm512_fmadd_ps(one, key[b], sums[i][b]);
    }
  }
  for (int i = 0; i < Q; i++)
    for (int b = 0; b < B; b++) _mm512_store_ps(scores + i * CHUNK + 16 * b, sums[i][b]);
}

// Turns the scores of one query into weights, and tells the largest score and the sum of the weights.
inline void weigh(float *scores, long from, long to, float *part) {
  auto seen = [&](long at) { return (__mmask16)(mask_of(to - at) & (at < from ? ~mask_of(from - at) : -1)); };
  __m512 top = _mm512_set1_ps(-1e30f), total = _mm512_setzero_ps();
  for (long at = from / 16 * 16; at < to; at += 16) top = _mm512_mask_max_ps(top, seen(at), top, _mm512_load_ps(scores + at));
  const float most = _mm512_reduce_max_ps(top);
  for (long at = from / 16 * 16; at < to; at += 16) {
    const __m512 w = exponential(_mm512_sub_ps(_mm512_load_ps(scores + at), _mm512_set1_ps(most)));
    const __m512 weight = _mm512_maskz_mov_ps(seen(at), w);
    _mm512_store_ps(scores + at, weight);
    total = _mm512_add_ps(total, weight);
  }
  part[0] = most;
  part[1] = _mm512_reduce_add_ps(total);
}

// Adds up N vectors of the weighted values of Q queries, from the element `first` of a head.
template <class E, int Q, int N>
inline void add_up(const Context<E> &in, long begin, const Query *query, const float *scores, long first) {
  typename E::Sum sums[Q][N];
  auto value = [&](long at, int c) {
    return E::load(in.values + in.slots[begin + at] * in.stride + first + E::LANES * c, in.width - first - E::LANES * c);
  };
  // What only some of the queries see is added to these alone: a number beyond float32 must not meet the others' weights of 0.
  long all = query[0].from, none = query[0].to;
  for (int i = 1; i < Q; i++) {
    if (query[i].from > all) all = query[i].from;
    if (query[i].to < none) none = query[i].to;
  }
  if (none <= all) all = none = CHUNK;
  auto alone = [&](int i, long at, long to) {
    for (; at < to; at++)
      for (int c = 0; c < N; c++) sums[i][c].add(_mm512_set1_ps(scores[i * CHUNK + at]), value(at, c));
  };
  for (int i = 0; i < Q; i++) alone(i, query[i].from, query[i].to < all ? query[i].to : all);
  for (long at = all; at < none; at++)
    for (int c = 0; c < N; c++) {
      const auto here = value(at, c);
      for (int i = 0; i < Q; i++) sums[i][c].add(_mm512_set1_ps(scores[i * CHUNK + at]), here);
    }
  for (int i = 0; i < Q; i++) alone(i, none, query[i].to);
  for (int i = 0; i < Q; i++)
    for (int c = 0; c < N; c++) sums[i][c].store(query[i].part + 16 + first + E::LANES * c);
}

// Which positions [least, most) of a chunk some queries see, and what is left to do for it.
struct Span {
  long begin, least, most;
  bool alone, first;  // the only tile of queries; the first, which turns keys
};

template <class E, int Q>
inline void attend_tile(const Context<E> &in, const Span &span, const Query *query, const Room &room) {
  for (long at = span.least / TURNED * TURNED; at < span.most; at += TURNED) {
    float *keys = room.keys + (span.alone ? 0 : at * in.width);
    float *scores = room.scores + at;
    const long end = span.most - at < TURNED ? span.most : at + TURNED;
    for (long some = at < span.least ? span.least / 16 * 16 : at; span.first && some < end; some += 16)
      turn_keys(in, span.begin + some, span.begin + end, keys + some - at);
    switch ((end - at + 15) / 16) {
      case 1: score<Q, 1>(query, in.width, keys, scores); break;
      case 2: score<Q, 2>(query, in.width, keys, scores); break;
      case 3: score<Q, 3>(query, in.width, keys, scores); break;
      default: score<Q, 4>(query, in.width, keys, scores); break;
    }
  }
  for (int i = 0; i < Q; i++) weigh(room.scores + i * CHUNK, query[i].from, query[i].to, query[i].part);
  constexpr int MOST = 64 / E::LANES;  // vectors, 4 of sums
  for (long first = 0; first < in.width; first += 64) switch ((in.width - first + E::LANES - 1) / E::LANES) {
    case 1: add_up<E, Q, 1>(in, span.begin, query, room.scores, first); break;
    case 2: add_up<E, Q, 2>(in, span.begin, query, room.scores, first); break;
    case 3: add_up<E, Q, MOST < 3 ? MOST : 3>(in, span.begin, query, room.scores, first); break;
    default: add_up<E, Q, MOST>(in, span.begin, query, room.scores, first); break;
  }
}

// The parts of n queries over the chunk from position `begin`.
template <class E> inline void attend(const Context<E> &in, long begin, const Query *query, long n, const Room &room) {
  Span span{begin, query[0].from, query[0].to, n <= TILE, true};
  for (long i = 1; i < n; i++) {
    if (query[i].from < span.least) span.least = query[i].from;
    if (query[i].to > span.most) span.most = query[i].to;
  }
  for (long parts = (n + TILE - 1) / TILE; parts > 0; parts--, span.first = false) {
    const long here = (n + parts - 1) / parts;
    switch (here) {
      case 1: attend_tile<E, 1>(in, span, query, room); break;
      case 2: attend_tile<E, 2>(in, span, query, room); break;
      case 3: attend_tile<E, 3>(in, span, query, room); break;
      case 4: attend_tile<E, 4>(in, span, query, room); break;
      case 5: attend_tile<E, 5>(in, span, query, room); break;
      default: attend_tile<E, 6>(in, span, query, room); break;
    }
    query += here, n -= here;
  }
}

// The part of no position at all.
inline void clear(float *part, long width) {
  for (long at = 0; at < part_size(width); at += 16) _mm512_storeu_ps(part + at, _mm512_setzero_ps());
  part[0] = -1e30f;
}

// part <- that of both. One copy of it for all callers, so that the compiler cannot choose other roundings for some.
__attribute__((noinline)) inline void fold(float *part, const float *more, long width) {
  const float top = part[0] > more[0] ? part[0] : more[0];
  const __m512 by = exponential(_mm512_set1_ps(part[0] - top)), by_more = exponential(_mm512_set1_ps(more[0] - top));
  const float total = part[1] * _mm512_cvtss_f32(by) + more[1] * _mm512_cvtss_f32(by_more);
  for (long at = 16; at < part_size(width); at += 16)
    _mm512_storeu_ps(part + at, _mm512_fmadd_ps(_mm512_loadu_ps(part + at), by, _mm512_mul_ps(_mm512_loadu_ps(more + at), by_more)));
  part[0] = top;
  part[1] = total;
}

// out [D] <- the attention that a part of a whole context is.
inline void finish(const float *part, long width, float *out) {
  const __m512 by = _mm512_set1_ps(1.0f / part[1]);
  for (long at = 0; at < width; at += 16) _mm512_mask_storeu_ps(out + at, mask_of(width - at), _mm512_mul_ps(_mm512_loadu_ps(part + 16 + at), by));
}

}  // namespace tokenrouter
