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

#include <stdint.h>

#include "vector.h"

namespace tokenrouter {

constexpr long CHUNK = 256;  // positions
constexpr long TURNED = 64;  // positions that are turned together
constexpr int TILE = 6;      // queries at a time
constexpr long KEYS_AHEAD = 24;  // positions, that are asked for before they are read

// What keys and values are made of; LANES: elements that are loaded together, WORD: elements of 32 bits.
struct Narrow : Bfloats {
  using Element = uint16_t;  // bfloat16
  static constexpr int WORD = 2;
  static void put(Words word, float *out) {  // elements 2 w and 2 w + 1 of WIDTH keys
    store(out, even_of(word));
    store(out + TURNED, odd_of(word));
  }
};

struct Wide {
  using Element = float;
  static constexpr int LANES = WIDTH, SUMS_EACH = 1, WORD = 1;
  static Floats load(const Element *at, long left) { return left >= LANES ? tokenrouter::load(at) : tokenrouter::load(at, left); }
  struct Sum {
    Floats all = zeros();
    void add(Floats weight, Floats value) { all = fmadd(weight, value, all); }
    void store(float *out) const { tokenrouter::store(out, all); }
  };
  static void put(Words word, float *out) { store(out, as_floats(word)); }
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

// Lets each of Q rows meet each of V columns, in the order that registers hold: all rows and a column, or all columns and a row.
template <int Q, int EACH, int V, class Row, class Column, class Meet>
__attribute__((always_inline)) inline void meet(const Row &row, const Column &column, const Meet &met) {
  if constexpr (rows_stay(Q, EACH, V)) {
    decltype(row(0)) rows[Q];
    for (int i = 0; i < Q; i++) rows[i] = row(i);
    for (int v = 0; v < V; v++) {
      const auto one = column(v);
      for (int i = 0; i < Q; i++) met(i, v, rows[i], one);
    }
  } else {
    decltype(column(0)) columns[V];
    for (int v = 0; v < V; v++) columns[v] = column(v);
    for (int i = 0; i < Q; i++) {
      const auto one = row(i);
      for (int v = 0; v < V; v++) met(i, v, one, columns[v]);
    }
  }
}

// Turns the keys of WIDTH positions from `begin`, of which those from `end` on repeat the last.
//
// Contexts come from memory, and the processor cannot guess where the next page lies. So the values of these positions are asked for, and the
// keys of some further on, as far as they lie before `last`.
template <class E> inline void turn_keys(const Context<E> &in, long begin, long end, long last, float *out) {
  constexpr long LINE = 64 / sizeof(typename E::Element);
  auto slot = [&](long at) { return in.slots[at < last ? at : last - 1] * in.stride; };
  for (int i = 0; i < WIDTH; i++) {
    const auto *keys = in.keys + slot(begin + KEYS_AHEAD + i), *values = in.values + slot(begin + i);
    for (long at = 0; at < in.width; at += LINE) {
      _mm_prefetch((const char *)(keys + at), _MM_HINT_T0);
      _mm_prefetch((const char *)(values + at), _MM_HINT_T0);
    }
  }
  const typename E::Element *key[WIDTH];
  for (int i = 0; i < WIDTH; i++) key[i] = in.keys + in.slots[begin + i < end ? begin + i : end - 1] * in.stride;
  auto turn = [&](long word, long n, auto four_of) {
    Words v[4];
    for (int i = 0; i < 4; i++) v[i] = words_of([&](int j) { return four_of(key[j] + word * E::WORD); }, i);
    const Words a = unpack_low_32(v[0], v[1]), b = unpack_high_32(v[0], v[1]), c = unpack_low_32(v[2], v[3]), d = unpack_high_32(v[2], v[3]);
    const Words turned[4] = {unpack_low_64(a, c), unpack_high_64(a, c), unpack_low_64(b, d), unpack_high_64(b, d)};
    for (int i = 0; i < n; i++) E::put(turned[i], out + (word + i) * E::WORD * TURNED);
  };
  const long words = in.width / E::WORD, rest = words % 4;
  for (long word = 0; word < words - rest; word += 4) turn(word, 4, [](const void *at) { return _mm_loadu_si128((const __m128i *)at); });
  if (rest) turn(words - rest, rest, [&](const void *at) {
    alignas(16) int32_t some[4] = {};
    __builtin_memcpy(some, at, 4 * rest);
    return _mm_load_si128((const __m128i *)some);
  });
}

// Scores of Q queries and N vectors of turned keys, as many of them together as registers hold.
template <int Q, int N> inline void score(const Query *query, long width, const float *keys, float *scores) {
  constexpr int V = together(Q, 1, N);
  Floats sums[Q][V];
  for (int i = 0; i < Q; i++)
    for (int v = 0; v < V; v++) sums[i][v] = zeros();
  const float *q[Q];
  for (int i = 0; i < Q; i++) q[i] = query[i].q;
  for (long d = 0; d < width; d++)
    meet<Q, 1, V>([&](int i) { return same(q[i][d]); }, [&](int v) { return load(keys + d * TURNED + WIDTH * v); },
                  [&](int i, int v, Floats one, Floats key) { sums[i][v] = fmadd(one, key, sums[i][v]); });
  for (int i = 0; i < Q; i++)
    for (int v = 0; v < V; v++) store(scores + i * CHUNK + WIDTH * v, sums[i][v]);
  if constexpr (V < N) score<Q, N - V>(query, width, keys + WIDTH * V, scores + WIDTH * V);
}

// Turns the scores of one query into weights, and tells the largest score and the sum of the weights.
inline void weigh(float *scores, long from, long to, float *part) {
  auto seen = [&](long at) { return mask_of(from - at, to - at); };
  Floats top = same(-1e30f), total = zeros();
  for (long at = from / WIDTH * WIDTH; at < to; at += WIDTH) top = where(seen(at), larger(top, load(scores + at)), top);
  const float most = largest_of(top);
  for (long at = from / WIDTH * WIDTH; at < to; at += WIDTH) {
    const Floats weight = where(seen(at), exponential(load(scores + at) - same(most)));
    store(scores + at, weight);
    total = total + weight;
  }
  part[0] = most;
  part[1] = sum_of(total);
}

// Adds up N vectors, as many of them together as registers hold, of the weighted values of Q queries, from the element `first` of a head.
// WHOLE: none of them reaches beyond the head.
template <class E, int Q, int N, bool WHOLE>
inline void add_up(const Context<E> &in, long begin, const Query *query, const float *scores, long first) {
  constexpr int V = together(Q, E::SUMS_EACH, N);
  typename E::Sum sums[Q][V];
  const int32_t *slots = in.slots + begin;
  const typename E::Element *values = in.values + first;
  const long stride = in.stride, left = in.width - first;  // not to be read anew for each position
  auto value = [&](long at, int v) { return E::load(values + slots[at] * stride + E::LANES * v, WHOLE ? E::LANES : left - E::LANES * v); };
  auto weight = [&](int i, long at) { return same(scores[i * CHUNK + at]); };
  // What only some of the queries see is added to these alone: a number beyond float32 must not meet the others' weights of 0.
  long all = query[0].from, none = query[0].to;
  for (int i = 1; i < Q; i++) {
    if (query[i].from > all) all = query[i].from;
    if (query[i].to < none) none = query[i].to;
  }
  if (none <= all) all = none = CHUNK;
  auto alone = [&](int i, long at, long to) __attribute__((always_inline)) {  // a call would keep the sums out of registers
    for (; at < to; at++)
      for (int v = 0; v < V; v++) sums[i][v].add(weight(i, at), value(at, v));
  };
  for (int i = 0; i < Q; i++) alone(i, query[i].from, query[i].to < all ? query[i].to : all);
  for (long at = all; at < none; at++)
    meet<Q, E::SUMS_EACH, V>([&](int i) { return weight(i, at); }, [&](int v) { return value(at, v); },
                             [&](int i, int v, Floats by, const auto &here) { sums[i][v].add(by, here); });
  for (int i = 0; i < Q; i++) alone(i, none, query[i].to);
  for (int i = 0; i < Q; i++)
    for (int v = 0; v < V; v++) sums[i][v].store(query[i].part + 16 + first + E::LANES * v);
  if constexpr (V < N) add_up<E, Q, N - V, WHOLE>(in, begin, query, scores, first + E::LANES * V);
}

// Which positions [least, most) of a chunk some queries see, and what is left to do for it.
struct Span {
  long begin, least, most;
  bool alone, first;  // the only tile of queries; the first, which turns keys
};

template <class E, int Q>
inline void attend_tile(const Context<E> &in, const Span &span, const Query *query, const Room &room) {
  constexpr int SIXTEEN = 16 / WIDTH;  // vectors
  for (long at = span.least / TURNED * TURNED; at < span.most; at += TURNED) {
    float *keys = room.keys + (span.alone ? 0 : at * in.width);
    float *scores = room.scores + at;
    const long end = span.most - at < TURNED ? span.most : at + TURNED;
    for (long some = at < span.least ? span.least / WIDTH * WIDTH : at; span.first && some < end; some += WIDTH)
      turn_keys(in, span.begin + some, span.begin + end, span.begin + span.most, keys + some - at);
    switch ((end - at + 15) / 16) {
      case 1: score<Q, 1 * SIXTEEN>(query, in.width, keys, scores); break;
      case 2: score<Q, 2 * SIXTEEN>(query, in.width, keys, scores); break;
      case 3: score<Q, 3 * SIXTEEN>(query, in.width, keys, scores); break;
      default: score<Q, 4 * SIXTEEN>(query, in.width, keys, scores); break;
    }
  }
  for (int i = 0; i < Q; i++) weigh(room.scores + i * CHUNK, query[i].from, query[i].to, query[i].part);
  constexpr int SOME = E::LANES < 16 ? 16 : E::LANES, N = SOME / E::LANES, MOST = 64 / SOME;
  for (long first = 0; first < in.width; first += 64) {
    const long left = in.width - first;
    if (left >= 64) {
      add_up<E, Q, N * MOST, true>(in, span.begin, query, room.scores, first);
      continue;
    }
    switch ((left + SOME - 1) / SOME) {
      case 1: add_up<E, Q, N, false>(in, span.begin, query, room.scores, first); break;
      case 2: add_up<E, Q, 2 * N, false>(in, span.begin, query, room.scores, first); break;
      case 3: add_up<E, Q, N * (MOST < 3 ? MOST : 3), false>(in, span.begin, query, room.scores, first); break;
      default: add_up<E, Q, N * MOST, false>(in, span.begin, query, room.scores, first); break;
    }
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
  for (long at = 0; at < part_size(width); at += WIDTH) store(part + at, zeros());
  part[0] = -1e30f;
}

// part <- that of both. One copy of it for all callers, so that the compiler cannot choose other roundings for some.
__attribute__((noinline)) inline void fold(float *part, const float *more, long width) {
  const float top = part[0] > more[0] ? part[0] : more[0];
  const Floats by = exponential(same(part[0] - top)), by_more = exponential(same(more[0] - top));
  const float total = part[1] * first_of(by) + more[1] * first_of(by_more);
  for (long at = 16; at < part_size(width); at += WIDTH) store(part + at, fmadd(load(part + at), by, load(more + at) * by_more));
  part[0] = top;
  part[1] = total;
}

// out [D] <- the attention that a part of a whole context is.
inline void finish(const float *part, long width, float *out) {
  const Floats by = same(1.0f / part[1]);
  for (long at = 0; at < width; at += WIDTH) store(out + at, load(part + 16 + at) * by, width - at);
}

}  // namespace tokenrouter
