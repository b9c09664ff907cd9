// The products of a linear layer in AVX2, whose registers hold 12 vectors of sums: some rows by a few vectors of one panel, over so much
// of K that it stays in the first-level cache for the panel's other vectors.
#pragma once

#include <type_traits>

#include "layers.h"
#include "words.h"

namespace tokenrouter {

constexpr int SPAN_BYTES = 8192;  // of a panel: they and those that come next fill half of a first-level cache
constexpr int ASKERS = 4;  // tiles: where more meet a panel, waiting for it is little

// How weights meet a row. Of what lies together in K, TURNS are multiplied one after the other; `odd`: a mask.
struct ByFloats {
  using Weight = float;
  using Row = float;
  using Sum = Floats;
  static constexpr int DEPTH = 1, TURNS = 1;
  static constexpr bool ASKS = true;  // for what comes later
  static constexpr long LONGEST = 1L << 40;
  static const Row *rows(const Rows &x) { return x.fp32; }
  static Sum none() { return zeros(); }
  static Floats weights(const Weight *at, int, Words) { return load(at); }
  static Floats same(const Row *at) { return tokenrouter::same(*at); }
  static Sum add(Floats x, Floats weight, Sum to) { return fmadd(x, weight, to); }
  static Floats floats(Sum sum) { return sum; }
};

struct ByBfloats : ByFloats {
  using Weight = uint16_t;
  static constexpr int DEPTH = 2, TURNS = 2;
  static Floats weights(const Weight *at, int turn, Words odd) { return turn == 0 ? even_of(load_words(at)) : odd_of(load_words(at), odd); }
};

// M rows by V vectors of each of P panels, `size` weights apart, from `first` on, over `span` of K. What they are added to is added up first:
// one long chain of additions would lose two digits. PART: which of PARTS of what comes next to ask for; ASKS: and of what
// will be wanted later, from `far` on, `step` bytes further each time. A function of its own, since together with others its sums do not stay
// in registers (GCC 12).
template <class By, int M, int V, int P, int PART, int PARTS, bool ASKS>
__attribute__((noinline)) void products_of(const typename By::Weight *w, long size, const typename By::Row *a, long stride, long span, int first,
                                           Floats (*sums)[M], const char *far, long step) {
  constexpr long DEPTH = By::DEPTH, STEP = PANEL * DEPTH * sizeof(*w) / PARTS;
  constexpr long FROM = (M == 1 ? AHEAD : SPAN_BYTES / 2) + PART * (SPAN_BYTES / PARTS);
  typename By::Sum some[M][P * V];
  for (int m = 0; m < M; m++)
    for (int v = 0; v < P * V; v++) some[m][v] = By::none();
  const typename By::Row *row[M];
  for (int m = 0; m < M; m++) {
    row[m] = a + m * stride;
    if (ASKS) asm("" : "+r"(row[m]));  // or pointers for each turn would be held
  }
  for (long at = 0; at < span / DEPTH; at++) {
    for (int p = 0; p < P; p++) {
      const char *next = (const char *)(w + p * size) + FROM + at * STEP;
      for (long byte = 0; byte < STEP; byte += 64) _mm_prefetch(next + byte, _MM_HINT_T0);
    }
    if constexpr (ASKS) {
      _mm_prefetch(far, _MM_HINT_T1);
      far += step;
    }
    auto turn = [&](auto of) __attribute__((always_inline)) {  // as a loop it would be unrolled too late for the sums to stay in registers
      constexpr bool again = ASKS && M * V * P == SUMS && of > 0;
      const Words odd = again ? *anew(&ODD) : ODD;
      decltype(By::weights(w, of, odd)) weight[P * V];
      for (int p = 0; p < P; p++) {
        const typename By::Weight *own = w + p * size + (at * PANEL + first * WIDTH) * DEPTH;
        if (again) own = anew(own);
        for (int v = 0; v < V; v++) {
          const auto one = By::weights(own + v * WIDTH * DEPTH, of, odd);
          weight[p * V + v] = M > 1 ? held(one) : one;
        }
      }
      for (int m = 0; m < M; m++) {
        const auto one = By::same(row[m] + at * DEPTH + of);
        for (int v = 0; v < P * V; v++) some[m][v] = By::add(one, weight[v], some[m][v]);
      }
    };
    turn(std::integral_constant<int, 0>());
    if constexpr (By::TURNS == 2) turn(std::integral_constant<int, 1>());
  }
  for (int m = 0; m < M; m++)
    for (int p = 0; p < P; p++)
      for (int v = 0; v < V; v++) {
        Floats &sum = sums[p * vectors(1) + first + v][m];
        sum = sum + By::floats(some[m][p * V + v]);
      }
}

// M rows by P panels: sums [M][vectors(P)] of WIDTH outputs each. Where other rows meet the same panels, only the first of them wait for
// memory; so each asks for its share of the P panels that come next.
template <class By, int M, int P>
inline void products(const Linear &by, const Rows &x, long row, long panel, Tile tile, Floats (&sums)[M][vectors(P)]) {
  // One row has registers for both panels: two streams of weights come in faster than one.
  constexpr int Q = M == 1 ? P : 1, N = vectors(1), V = together(M, N), PARTS = (N + V - 1) / V;
  static_assert(PARTS == 1 || PARTS == 2);
  using Weight = typename By::Weight;
  constexpr long SPAN = SPAN_BYTES / (PANEL * sizeof(Weight));
  static_assert(SPAN <= By::LONGEST && PANEL % By::DEPTH == 0);
  const long k = filled(by.k), size = k * PANEL;
  const typename By::Row *a = By::rows(x) + row * x.stride;
  Floats of[vectors(P)][M];
  for (int v = 0; v < vectors(P); v++)
    for (int m = 0; m < M; m++) of[v][m] = zeros();
  const long share = P * size * sizeof(Weight) / tile.of, step = share / (P / Q * PARTS * (k / By::DEPTH));
  const char *far = (const char *)((const Weight *)by.weight + (panel + P) * size) + tile.at * share;
  for (int p = 0; p < P; p += Q) {
    const Weight *w = (const Weight *)by.weight + (panel + p) * size;
    for (long at = 0; at < k; at += SPAN) {
      const long span = SPAN < k - at ? SPAN : k - at;
      auto part = [&](auto asks) __attribute__((always_inline)) {
        products_of<By, M, V, Q, 0, PARTS, asks>(w + at * PANEL, size, a + at, x.stride, span, 0, of + p * N, far, step);
        far += span / By::DEPTH * step;
        if constexpr (PARTS == 2) {
          products_of<By, M, N - V, Q, 1, PARTS, asks>(w + at * PANEL, size, a + at, x.stride, span, V, of + p * N, far, step);
          far += span / By::DEPTH * step;
        }
      };
      if (tile.of > 1 && tile.of <= ASKERS)
        part(std::bool_constant<By::ASKS && (M > 1)>());
      else
        part(std::false_type());
    }
  }
  for (int m = 0; m < M; m++)
    for (int v = 0; v < vectors(P); v++) sums[m][v] = of[v][m];
}

template <int M, int P> inline void products_bf16(const Linear &by, const Rows &x, long row, long panel, Tile tile, Floats (&sums)[M][vectors(P)]) {
  products<ByBfloats, M, P>(by, x, row, panel, tile, sums);
}
template <int M, int P> inline void products_fp32(const Linear &by, const Rows &x, long row, long panel, Tile tile, Floats (&sums)[M][vectors(P)]) {
  products<ByFloats, M, P>(by, x, row, panel, tile, sums);
}
template <int M, int P> inline void products_int8(const Linear &by, const Rows &x, long row, long panel, Tile tile, Floats (&sums)[M][vectors(P)]) {
  products<ByWords, M, P>(by, x, row, panel, tile, sums);
  scale(by, panel, sums);
  for (int m = 0; m < M; m++)
    for (int v = 0; v < vectors(P); v++) sums[m][v] = sums[m][v] * same(x.scale[row + m]);
}

}  // namespace tokenrouter
