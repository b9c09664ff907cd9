// One step of a decoder of the Llama family on a CPU with AVX-512 or AVX2: all layers in one call, without a tensor library.
//
// The residual stream, norms, rotary turns, attention and logits are float32; a linear layer reads float32 (or bfloat16 where AMX multiplies it,
// or, where int8 weights meet integers, two bytes a number). A row's result does not depend on the other rows, to the bit.
//
// The caller owns all memory but the scratch of a model.

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "certainty.h"
#include "draw.h"
#include "linear.h"
#include "pieces.h"
#include "team.h"

using namespace tokenrouter;

extern "C" {

struct Layer {
  const float *attention_norm;
  const float *query_norm, *key_norm;  // [D], or null
  const float *feed_forward_norm;
  Linear qkv, out, gate_up, down;  // gate_up: panels of gate and up in turn
  int64_t window;                  // 0: none
};

struct Model {
  int32_t layers, hidden, intermediate, heads, kv_heads, width;
  float eps;
  int32_t wide;           // keys, values and the embedding are float32; otherwise bfloat16
  const void *embedding;  // [vocab rows, hidden]; null: the head's weight is the embedding too
  const float *norm;
  const Layer *layer;
  Linear head;
};

struct Step {
  int64_t tokens, requests, samples, pages, page_size, turned;  // turned: dimensions of a head that turn
  const int64_t *token_ids, *positions, *slots;  // [tokens]
  const int64_t *rows;                 // [samples]
  const int64_t *offsets, *lengths;    // [requests + 1], [requests]
  const int64_t *page_table;           // [requests, pages]
  const float *rotary;                 // cos and sin of every position: [positions, 2, turned]
  void *const *keys, *const *values;   // by layer
  float *logits;                       // [samples, n of head]
  float *hidden;                       // [samples, hidden], or null
  int64_t vocabulary;                  // how many of a row's logits count in what follows
  int64_t *ids;                        // [samples]: the likeliest, or null
  float *columns;                      // [COLUMNS, samples] of them, but for those that take a way of their own
};

}  // extern "C"

namespace {

struct Aligned {
  char *at = nullptr;
  size_t size = 0;
  void *need(size_t bytes) {
    if (bytes > size) {
      free(at);
      size = (bytes + bytes / 4 + 4095) / 4096 * 4096;
      at = (char *)aligned_alloc(4096, size);
      if (!at) {
        size = 0;  // or the next call would take what is not there
        throw std::bad_alloc();
      }
      memset(at, 0, size);  // what fills rows up must be finite
    }
    return at;
  }
  template <class T> T *of(long n) { return (T *)need(n * sizeof(T)); }
  ~Aligned() { free(at); }
};

struct Scratch {
  Aligned x, normed, qkv, attended, gated, moved, slots, apart, parts, desks;
  Aligned fp32, hi, lo, words, scale, bf16;
};

void rms_norm(const float *x, const float *weight, long n, float eps, float *out) {
  Floats sum = zeros();
  for (long at = 0; at < n; at += WIDTH) {
    const Floats v = load(x + at, n - at);
    sum = fmadd(v, v, sum);
  }
  const Floats by = same(1.0f / sqrtf(sum_of(sum) / n + eps));
  for (long at = 0; at < n; at += WIDTH) store(out + at, load(x + at, n - at) * by * load(weight + at, n - at), n - at);
}

void rotate(float *x, const float *cos, const float *sin, long turned) {
  const long half = turned / 2;
  for (long at = 0; at < half; at += WIDTH) {
    const long left = half - at;
    const Floats a = load(x + at, left), b = load(x + half + at, left), c = load(cos + at, left), s = load(sin + at, left);
    store(x + at, fmsub(a, c, b * s), left);
    store(x + half + at, fmadd(b, c, a * s), left);
  }
}

// Writes the n-th row of a packed weight.
void unpack(const Linear &from, long n, float *out) {
  const long panel = n / PANEL * PANEL * filled(from.k), at = n % PANEL;
  if (from.kind == FP32) {
    const float *w = (const float *)from.weight + panel + at;
    for (long k = 0; k < from.k; k++) out[k] = w[k * PANEL];
  } else {
    constexpr long deep = BF16_DEPTH;
    const uint16_t *w = (const uint16_t *)from.weight + panel + deep * at;
    for (long k = 0; k < from.k; k++) out[k] = from_bf16(w[k / deep * deep * PANEL + k % deep]);
  }
}

void keep(const float *x, long n, float *out) { memcpy(out, x, n * sizeof(float)); }

void keep(const float *x, long n, uint16_t *out) {
  for (long at = 0; at < n; at += WIDTH) store_bf16(out + at, load(x + at, n - at), n - at);
}

// What becomes of the sums of a linear layer.
struct Store {
  float *out;
  long stride, n;
  template <int P> void take(long row, long at, const Floats *sums) const {
    for (int v = 0; v < vectors(P); v++) {
      const long left = n - at - WIDTH * v;
      if (left > 0) store(out + row * stride + at + WIDTH * v, sums[v], left);
    }
  }
};

struct Add {
  float *out;
  long stride, n;
  template <int P> void take(long row, long at, const Floats *sums) const {
    for (int v = 0; v < vectors(P); v++) {
      const long left = n - at - WIDTH * v;
      if (left <= 0) continue;
      float *to = out + row * stride + at + WIDTH * v;
      store(to, sums[v] + load(to, left), left);
    }
  }
};

struct Gate {
  Rows to;
  bool in_bf16;
  template <int P> void take(long row, long at, const Floats *sums) const {
    if constexpr (P == 2) {
      for (int v = 0; v < vectors(1); v++) {
        // e^-|x| never overflows: x / (1 + e^-x) = x e^-|x| / (1 + e^-|x|) where x < 0.
        const Floats g = sums[v], e = exponential(zeros() - absolute(g));
        const Floats over = where(is_below(g, zeros()), g * e, g);
        const Floats gated = over / (same(1.0f) + e) * sums[vectors(1) + v];
        const long here = at / 2 + WIDTH * v;
        if (in_bf16)
          put_bf16(gated, to, row, here);
        else
          store(to.fp32 + row * to.stride + here, gated);
      }
    }
  }
};

// One thread's way through a step, E: what keys and values are made of.
template <class E> struct Walk {
  using Element = typename E::Element;
  const Model &model;
  const Step &step;
  Scratch &scratch;
  const Requests &requests;
  bool apart;  // some request is taken apart
  int thread, threads;

  long first(long n) const { return n * thread / threads; }
  long end(long n) const { return n * (thread + 1) / threads; }
  void meet() const { Team::get().meet(); }

  // Of n rows of K elements.
  Rows rows(long n, long k) const {
    return Rows{row_stride(k),
                (float *)scratch.fp32.at,
                (uint8_t *)scratch.hi.at,
                (uint8_t *)scratch.lo.at,
                (int16_t *)scratch.words.at,
                (float *)scratch.scale.at,
                (uint16_t *)scratch.bf16.at,
                n > FEW};
  }

  // `kept`: where the rows go besides; otherwise one row's place by thread serves for all of them, and stays near.
  void norm(const float *x, long n, const float *weight, int kind, float *kept = nullptr) const {
    const long H = model.hidden;
    const Rows to = rows(n, H);
    for (long row = first(n); row < end(n); row++) {
      float *out = kept ? kept + row * H : (float *)scratch.normed.at + thread * H;
      rms_norm(x + row * H, weight, H, model.eps, out);
      encode(out, H, kind, to, row);
    }
  }

  void turn(const Layer &layer, Element *keys, Element *values) const {
    const long D = model.width, heads = model.heads, kv = model.kv_heads, stride = (heads + 2 * kv) * D;
    const Floats scale = same(1.0f / sqrtf((float)D));
    for (long row = first(step.tokens); row < end(step.tokens); row++) {
      float *qkv = (float *)scratch.qkv.at + row * stride;
      for (long head = 0; head < heads + kv; head++) {
        const float *weight = head < heads ? layer.query_norm : layer.key_norm;
        if (weight) rms_norm(qkv + head * D, weight, D, model.eps, qkv + head * D);
        const float *cos = step.rotary + step.positions[row] * 2 * step.turned;
        rotate(qkv + head * D, cos, cos + step.turned, step.turned);
      }
      for (long at = 0; at < heads * D; at += WIDTH) store(qkv + at, load(qkv + at, heads * D - at) * scale, heads * D - at);
      keep(qkv + heads * D, kv * D, keys + step.slots[row] * kv * D);
      keep(qkv + (heads + kv) * D, kv * D, values + step.slots[row] * kv * D);
    }
  }

  void attend(const Layer &layer, const Element *keys, const Element *values) const {
    const long stride = (model.heads + 2 * model.kv_heads) * model.width;
    const Desk desk(requests, (float *)scratch.desks.at + thread * Desk::size(requests));
    const Attention<E> attention{requests, (float *)scratch.qkv.at, stride, keys, values, layer.window, desk,
                                 (float *)scratch.parts.at, (float *)scratch.attended.at, thread, threads};
    attention.go();
    if (!apart) return;
    meet();
    attention.join();
  }

  void embed(long token, float *out) const {
    const long H = model.hidden;
    if (!model.embedding) return unpack(model.head, token, out);
    const Element *row = (const Element *)model.embedding + token * H;
    for (long at = 0; at < H; at++) out[at] = widened(row[at]);
  }

  static float widened(float x) { return x; }
  static float widened(uint16_t x) { return from_bf16(x); }

  // Writes rows of float32 in the form that a linear layer reads.
  void ready(const float *x, long n, long k, int kind) const {
    const Rows to = rows(n, k);
    for (long row = first(n); row < end(n); row++) encode(x + row * k, k, kind, to, row);
  }

  void keep_sampled(float *x, long k) const {
    if (thread != 0) return;
    float *moved = scratch.moved.of<float>(step.samples * k);
    for (long i = 0; i < step.samples; i++) memcpy(moved + i * k, x + step.rows[i] * k, k * sizeof(float));
    memcpy(x, moved, step.samples * k * sizeof(float));
  }

  void go() const {
    const long D = model.width, H = model.hidden, queries = model.heads * D, all = queries + 2 * model.kv_heads * D;
    float *x = (float *)scratch.x.at, *attended = (float *)scratch.attended.at;
    long n = step.tokens;
    for (long row = first(n); row < end(n); row++) embed(step.token_ids[row], x + row * H);
    for (long at = 0; at < model.layers; at++) {
      const Layer &layer = model.layer[at];
      norm(x, n, layer.attention_norm, layer.qkv.kind);
      meet();
      multiply(layer.qkv, rows(n, H), n, thread, threads, false, Store{(float *)scratch.qkv.at, all, all});
      meet();
      turn(layer, (Element *)step.keys[at], (Element *)step.values[at]);
      meet();
      attend(layer, (const Element *)step.keys[at], (const Element *)step.values[at]);
      meet();
      if (at == model.layers - 1) {  // from here on, rows that nobody samples from matter to nobody
        keep_sampled(x, H);
        keep_sampled(attended, queries);
        n = step.samples;
        meet();
      }
      ready(attended, n, queries, layer.out.kind);
      meet();
      multiply(layer.out, rows(n, queries), n, thread, threads, false, Add{x, H, H});
      meet();
      norm(x, n, layer.feed_forward_norm, layer.gate_up.kind);
      meet();
      // What the next layer reads cannot lie where this one reads: other threads are not done yet.
      Rows inputs = rows(n, model.intermediate), gated = inputs;
      gated.fp32 = (float *)scratch.gated.at;
      gated.bf16 = (uint16_t *)scratch.gated.at;
      multiply(layer.gate_up, rows(n, H), n, thread, threads, true, Gate{gated, in_bf16(layer.down.kind)});
      meet();
      if (in_integers(layer.down.kind)) {
        for (long row = first(n); row < end(n); row++) encode(gated.fp32 + row * gated.stride, model.intermediate, INT8, inputs, row);
        meet();
      } else {
        inputs = gated;
      }
      multiply(layer.down, inputs, n, thread, threads, false, Add{x, H, H});
      meet();
    }
    norm(x, n, model.norm, model.head.kind, step.hidden);
    meet();
    multiply(model.head, rows(n, H), n, thread, threads, false, Store{step.logits, model.head.n, model.head.n});
    if (!step.ids) return;
    meet();
    for (long row = first(n); row < end(n); row++)
      step.ids[row] = look(step.logits + row * model.head.n, step.vocabulary, step.columns + row, n);
  }
};

}  // namespace

extern "C" {

int tr_sizes(int64_t *out) {  // of the records that Python fills in
  out[0] = sizeof(Linear), out[1] = sizeof(Layer), out[2] = sizeof(Model), out[3] = sizeof(Step);
  return 0;
}

// Numbers in a vector.
int tr_width() { return WIDTH; }

// Whether AMX multiplies.
int tr_tiles() { return TILES; }

// Neighbours in K that lie together.
int tr_depth(int kind) { return kind == BF16 ? BF16_DEPTH : kind == INT8 ? INT8_DEPTH : 1; }

void tr_pack_bf16(const uint16_t *weight, int64_t n, int64_t k, uint16_t *out) { pack<uint16_t, BF16_DEPTH>(weight, n, k, out); }
void tr_pack_fp32(const float *weight, int64_t n, int64_t k, float *out) { pack<float, 1>(weight, n, k, out); }
void tr_pack_int8(const int8_t *weight, int64_t n, int64_t k, int8_t *out) { pack<int8_t, INT8_DEPTH>(weight, n, k, out); }

void *tr_scratch_new() { return new (std::nothrow) Scratch; }
void tr_scratch_free(void *scratch) { delete (Scratch *)scratch; }

// Returns 0, or 1 where memory is short.
int tr_step(const Model *model, const Step *step, void *scratch_, int threads) {
  Scratch &scratch = *(Scratch *)scratch_;
  const long T = step->tokens, D = model->width, H = model->hidden;
  const long all = (model->heads + 2 * model->kv_heads) * D, F = row_stride(model->intermediate), whole = whole_tiles(T);
  long room = 0;
  for (long i = 0; i < step->requests; i++) room = step->lengths[i] > room ? step->lengths[i] : room;
  Requests requests{step->requests, model->heads, model->kv_heads, D, step->offsets, step->lengths, nullptr, room, nullptr};
  long apart = 0;
  long widest = row_stride(H > model->heads * D ? H : model->heads * D);
  if (F > widest) widest = F;
  try {
    scratch.x.of<float>(T * H);
    scratch.normed.of<float>(threads * H);
    scratch.qkv.of<float>(T * all);
    scratch.attended.of<float>(T * model->heads * D);
    scratch.gated.of<float>(whole * F);
    scratch.moved.of<float>(step->samples * (H > model->heads * D ? H : model->heads * D));
    scratch.desks.of<float>(threads * Desk::size(requests));
    if (in_bf16(model->head.kind)) {
      scratch.bf16.of<uint16_t>(whole * widest);
      scratch.fp32.of<float>(FEW * widest);
    } else if (!in_integers(model->head.kind)) {
      scratch.fp32.of<float>(T * widest);
    } else if (WORDS) {
      scratch.words.of<int16_t>(T * widest);
    } else {
      scratch.hi.of<uint8_t>(whole * widest);
      scratch.lo.of<uint8_t>(whole * widest);
    }
    scratch.scale.of<float>(T);
    int32_t *slots = scratch.slots.of<int32_t>(step->requests * room);
    for (long i = 0; i < step->requests; i++)
      for (long page = 0, at = 0; at < step->lengths[i]; page++)
        for (long j = 0; j < step->page_size && at < step->lengths[i]; j++, at++)
          slots[i * room + at] = (int32_t)(step->page_table[i * step->pages + page] * step->page_size + j);
    requests.slots = slots;
    requests.apart = scratch.apart.of<long>(step->requests);
    apart = requests.choose(threads);
    scratch.parts.of<float>(apart);
  } catch (const std::bad_alloc &) {
    return 1;
  }
  Team::get().run(threads, [&](int thread) {
    if (model->wide)
      Walk<Wide>{*model, *step, scratch, requests, apart > 0, thread, threads}.go();
    else
      Walk<Narrow>{*model, *step, scratch, requests, apart > 0, thread, threads}.go();
  });
  return 0;
}

// ids [rows]: the likeliest of logits [rows][stride], of which n count.
void tr_greedy(const float *logits, int64_t rows, int64_t n, int64_t stride, int64_t *ids) {
  for (long row = 0; row < rows; row++) ids[row] = likeliest(logits + row * stride, n);
}

// out [COLUMNS][rows], of a candidate a row; `wanted` has a bit for each column.
void tr_certainty(const float *logits, int64_t rows, int64_t n, int64_t stride, const int64_t *candidates, int wanted, float *out) {
  for (long row = 0; row < rows; row++) certainty(logits + row * stride, n, candidates[row], wanted, out + row, rows);
}

// ids [rows], each drawn by its own choice and number in [0, 1).
void tr_sample(const float *logits, int64_t rows, int64_t n, int64_t stride, const double *temperatures, const int64_t *top_k,
               const double *top_p, const double *min_p, const double *uniforms, int64_t *ids) {
  static thread_local Head head;
  for (long row = 0; row < rows; row++)
    ids[row] = draw(logits + row * stride, n, Choice{temperatures[row], top_k[row], top_p[row], min_p[row]}, uniforms[row], head);
}

void tr_uniform(const int64_t *seeds, const int64_t *positions, int64_t rows, int64_t model, int64_t purpose, double *out) {
  for (long row = 0; row < rows; row++) out[row] = uniform((uint64_t)seeds[row], (uint32_t)positions[row], (uint32_t)model, (uint32_t)purpose);
}

}  // extern "C"
