// The attention of a step in pieces, and which thread has which.
//
// A piece is some queries of one request over some chunks of its context. Requests with so much to do that the threads would wait for the
// one that has them are taken apart by chunk; the parts are folded once all are there, in the order in which one thread folds them as it
// goes. So who does what changes no bit.
#pragma once

#include "attention.h"

namespace tokenrouter {

constexpr long BLOCK_TOKENS = 16;  // of a prompt, that share what is turned and widened

// What is attended to, in all layers alike.
struct Requests {
  long n, heads, kv_heads, width;
  const int64_t *offsets, *lengths;  // [n + 1], [n]
  const int32_t *slots;              // [n][room]
  long room;
  long *apart;                       // [n]: where the parts of a request lie that is taken apart; otherwise -1

  long tokens(long request) const { return offsets[request + 1] - offsets[request]; }
  // A token sees positions [first, last).
  long last(long request, long token) const { return lengths[request] - tokens(request) + token + 1; }
  long first(long request, long token, long window) const {
    const long last = this->last(request, token);
    return window && last > window ? last - window : 0;
  }
  // Where the first chunk begins that one of the tokens from `token` on sees.
  long begin(long request, long token, long window) const { return first(request, token, window) / CHUNK * CHUNK; }
  long seen(long request, long from, long to, long window) const {  // positions, by all tokens [from, to)
    long sum = 0;
    for (long token = from; token < to; token++) sum += last(request, token) - first(request, token, window);
    return sum;
  }
  long chunks(long request) const { return (lengths[request] + CHUNK - 1) / CHUNK; }

  // Chooses what is taken apart, and returns how many floats the parts take.
  long choose(long threads) const {
    long all = 0, size = 0;
    for (long i = 0; i < n; i++) all += seen(i, 0, tokens(i), 0);
    for (long i = 0; i < n; i++) {
      const bool large = 2 * threads * seen(i, 0, tokens(i), 0) > all;
      apart[i] = threads > 1 && large && tokens(i) <= BLOCK_TOKENS && chunks(i) > 1 ? size : -1;
      if (apart[i] >= 0) size += tokens(i) * heads * chunks(i) * part_size(width);
    }
    return size;
  }
};

// What one thread needs: room for a chunk, and of each query of a piece a part, what it was folded to, and the query.
struct Desk {
  float *room, *fresh, *folded;
  Query *query;
  static long part_count(const Requests &of) { return BLOCK_TOKENS * of.heads; }
  static long size(const Requests &of) {  // floats
    return room_size(of.width) + part_count(of) * (2 * part_size(of.width) + (long)(sizeof(Query) / sizeof(float)));
  }
  Desk(const Requests &of, float *at)
      : room(at), fresh(room + room_size(of.width)), folded(fresh + part_count(of) * part_size(of.width)),
        query((Query *)(folded + part_count(of) * part_size(of.width))) {}
};

// Deals pieces out in their order, to each thread about as much to do.
struct Deal {
  long all;
  int thread, threads;
  long done = 0;
  bool mine(long work) {
    const long middle = 2 * done + work;
    done += work;
    return middle * threads / (2 * all) == thread;
  }
};

// One thread's way through one layer.
template <class E> struct Attention {
  const Requests &of;
  const float *queries;                      // [tokens][heads][D], scaled, `stride` floats from token to token
  long stride;
  const typename E::Element *keys, *values;  // [slots, kv_heads, D]
  long window;
  Desk desk;
  float *parts;                              // of what is taken apart: [tokens][heads][chunks]
  float *out;                                // [tokens, heads, D]
  int thread, threads;

  float *part(long request, long token, long head, long begin) const {
    return parts + of.apart[request] + ((token * of.heads + head) * of.chunks(request) + begin / CHUNK) * part_size(of.width);
  }
  float *result(long request, long token, long head) const { return out + ((of.offsets[request] + token) * of.heads + head) * of.width; }

  // The parts of the queries of tokens [from, to) and one key head over the chunk from `begin`, where `place(token, head)` says;
  // then `then(token, head)` for each.
  template <class Place, class Then>
  void chunk(long request, long group, long from, long to, long begin, const Place &place, const Then &then) const {
    const long share = of.heads / of.kv_heads;
    long n = 0;
    auto each = [&](const auto &what) {
      for (long token = from; token < to; token++) {
        const long first = of.first(request, token, window) - begin, last = of.last(request, token) - begin;
        if (last > 0 && first < CHUNK)
          for (long head = group * share; head < (group + 1) * share; head++) what(token, head, first, last);
      }
    };
    each([&](long token, long head, long first, long last) {
      const float *q = queries + (of.offsets[request] + token) * stride + head * of.width;
      desk.query[n++] = {q, first > 0 ? first : 0, last < CHUNK ? last : CHUNK, place(token, head)};
    });
    const Context<E> in{of.slots + request * of.room, keys + group * of.width, values + group * of.width, of.kv_heads * of.width, of.width};
    attend(in, begin, desk.query, n, Room{desk.room, desk.room + CHUNK * of.width});
    each([&](long token, long head, long, long) { then(token, head); });
  }

  // The attention of tokens [from, to) and the key heads [group, groups), chunk by chunk.
  void whole(long request, long from, long to, long group, long groups) const {
    const long size = part_size(of.width), share = of.heads / of.kv_heads;
    auto of_query = [&](float *at, long token, long head) { return at + ((token - from) * of.heads + head) * size; };
    auto each = [&](const auto &what) {
      for (long token = from; token < to; token++)
        for (long head = group * share; head < groups * share; head++) what(token, head);
    };
    each([&](long token, long head) { clear(of_query(desk.folded, token, head), of.width); });
    for (long begin = of.begin(request, from, window); begin < of.last(request, to - 1); begin += CHUNK)
      for (long g = group; g < groups; g++)
        chunk(request, g, from, to, begin, [&](long token, long head) { return of_query(desk.fresh, token, head); },
              [&](long token, long head) { fold(of_query(desk.folded, token, head), of_query(desk.fresh, token, head), of.width); });
    each([&](long token, long head) { finish(of_query(desk.folded, token, head), of.width, result(request, token, head)); });
  }

  void go() const {
    Deal deal{0, thread, threads};
    for (long i = 0; i < of.n; i++) deal.all += of.seen(i, 0, of.tokens(i), window) * of.kv_heads;
    for (long i = 0; i < of.n; i++) {
      const long tokens = of.tokens(i);
      if (of.apart[i] >= 0) {
        for (long begin = of.begin(i, 0, window); begin < of.lengths[i]; begin += CHUNK)
          for (long g = 0; g < of.kv_heads; g++)
            if (deal.mine(seen_of(i, begin)))
              chunk(i, g, 0, tokens, begin, [&](long token, long head) { return part(i, token, head, begin); }, [](long, long) {});
        continue;
      }
      // One token's key heads are visited together, since they lie together; a prompt's are not, since its chunks stay near.
      const long together = tokens == 1 && of.chunks(i) > 1 ? of.kv_heads : 1;
      for (long from = 0; from < tokens; from += BLOCK_TOKENS)
        for (long g = 0; g < of.kv_heads; g += together) {
          const long to = from + BLOCK_TOKENS < tokens ? from + BLOCK_TOKENS : tokens;
          if (deal.mine(of.seen(i, from, to, window) * together)) whole(i, from, to, g, g + together);
        }
    }
  }

  // What all tokens of a request see of the chunk from `begin`.
  long seen_of(long request, long begin) const {
    long sum = 0;
    for (long token = 0; token < of.tokens(request); token++) {
      const long first = of.first(request, token, window) - begin, last = of.last(request, token) - begin;
      if (last > 0 && first < CHUNK) sum += (last < CHUNK ? last : CHUNK) - (first > 0 ? first : 0);
    }
    return sum;
  }

  // Once all threads are here: what was taken apart, put together.
  void join() const {
    long piece = 0;
    for (long i = 0; i < of.n; i++) {
      if (of.apart[i] < 0) continue;
      for (long token = 0; token < of.tokens(i); token++)
        for (long head = 0; head < of.heads; head++, piece++) {
          if (piece % threads != thread) continue;
          clear(desk.folded, of.width);
          for (long begin = of.begin(i, token, window); begin < of.last(i, token); begin += CHUNK)
            fold(desk.folded, part(i, token, head, begin), of.width);
          finish(desk.folded, of.width, result(i, token, head));
        }
    }
  }
};

}  // namespace tokenrouter
