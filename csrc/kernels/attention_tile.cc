#include "kernels/attention_tile.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "kernels/bf16.h"
#include "kernels/buffer.h"
#include "kernels/panel.h"
#include "kernels/register_tile.h"

namespace gyre {
namespace {

constexpr int64_t kPageVectors = kPageTokens / kLanes;  // of keys
static_assert(kPageTokens % kLanes == 0);
constexpr int64_t kFetchedAhead = 5;  // pages between what is multiplied and what is fetched

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kValueRows = 6, kValueVectors = 4;
#else
constexpr int kValueRows = kTileRows, kValueVectors = kTileVectors;
#endif

template <class T>
struct ScoreTile {
  const float* q;
  ptrdiff_t ldq;
  int64_t depth;
  const T* keys[kTileVectors];   // one vector of keys each
  const T* ahead[kTileVectors];  // as far along as keys
  float* scores;
  ptrdiff_t ldc;
};

// A vector of numbers, or of words of two, which widen faster than numbers side by side.
template <class T>
vf load_words(const T* p) {
  return load(reinterpret_cast<const float*>(p));
}
// Component `which` of words.
template <class T>
vf component(vf words, int which) {
  return components_per_word<T> == 1 ? words : which ? upper(words) : lower(words);
}

template <class T, int R, int C>
void score_tile(const ScoreTile<T>& t) {
  constexpr int kStep = components_per_word<T>;
  RegisterTile<R, C> acc = {};
  for (int64_t i = 0; i < t.depth; i += kStep) {
    vf words[C], w[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      words[c] = load_words(t.keys[c] + i * kPageTokens);
      __builtin_prefetch(t.ahead[c] + i * kPageTokens, 0, 2);
    }
#pragma GCC unroll 2
    for (int which = 0; which < kStep; ++which) {
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) w[c] = component<T>(words[c], which);
      add_products<R, C>(acc, t.q + i + which, t.ldq, w);
    }
  }
  store_tile<R, C>(acc, t.scores, t.ldc);
}

template <class T>
struct ValueTile {
  const float* p;
  ptrdiff_t ldp;
  HeadPages<T> values;  // data at the tile's first column
  int64_t first, last, width;
  float* sums;
  ptrdiff_t ldc;
};

template <class T, int R, int C>
void value_tile(const ValueTile<T>& t) {
  constexpr int64_t kStep = components_per_word<T>;
  RegisterTile<R, C> acc;
  load_tile<R, C>(acc, t.sums, t.ldc);
  const int64_t last_page = (t.last - 1) / kPageTokens;
  for (int64_t key = t.first; key < t.last;) {
    const int64_t page = key / kPageTokens, row = key % kPageTokens / kStep * kStep * t.width;
    const int64_t end = std::min(t.last, (page + 1) * kPageTokens);
    const T* v = t.values.page(page) + row;
    const T* ahead = t.values.page(std::min(page + kFetchedAhead, last_page)) + row;
    for (; key < end; v += kStep * t.width, ahead += kStep * t.width) {
      vf words[C], w[C];
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        words[c] = load_words(v + c * kLanes * kStep);
        __builtin_prefetch(ahead + c * kLanes * kStep, 0, 2);
      }
#pragma GCC unroll 2
      for (int which = 0; which < kStep; ++which) {
        if (kStep > 1 && (key % kStep != which || key == end)) continue;
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) w[c] = component<T>(words[c], which);
        add_products<R, C>(acc, t.p + key++, t.ldp, w);
      }
    }
  }
  store_tile<R, C>(acc, t.sums, t.ldc);
}

template <class T, int... I>
constexpr std::array<void (*)(const ScoreTile<T>&), sizeof...(I)> score_tiles(std::integer_sequence<int, I...>) {
  return {score_tile<T, I / kTileVectors + 1, I % kTileVectors + 1>...};
}
template <class T>
constexpr auto kScoreTiles = score_tiles<T>(std::make_integer_sequence<int, kTileRows * kTileVectors>{});

template <class T, int... I>
constexpr std::array<void (*)(const ValueTile<T>&), sizeof...(I)> value_tiles(std::integer_sequence<int, I...>) {
  return {value_tile<T, I / kValueVectors + 1, I % kValueVectors + 1>...};
}
template <class T>
constexpr auto kValueTiles = value_tiles<T>(std::make_integer_sequence<int, kValueRows * kValueVectors>{});

// scores[r][j] = sum over c < depth of q[r][c] * key j's component c, for r < rows and the keys of the first num_pages
// pages. q's rows are ldq apart, scores' ldc. Meanwhile the first pages of `values` are fetched.
template <class T>
void score_keys(int64_t rows, const float* q, ptrdiff_t ldq, int64_t depth, const HeadPages<T>& keys,
                const HeadPages<T>& values, int64_t num_pages, float* scores, ptrdiff_t ldc) {
  const int64_t vectors = num_pages * kPageVectors;
  const auto at = [&](int64_t v) {
    const int64_t page = v / kPageVectors;
    const T* start = page < num_pages ? keys.page(page) : values.page(std::min(page - num_pages, num_pages - 1));
    return start + v % kPageVectors * kLanes * components_per_word<T>;
  };
  for (int64_t v = 0, nv; v < vectors; v += nv) {
    nv = std::min<int64_t>(kTileVectors, vectors - v);
    ScoreTile<T> tile{};
    tile.ldq = ldq;
    tile.depth = depth;
    tile.ldc = ldc;
    for (int64_t c = 0; c < nv; ++c) {
      tile.keys[c] = at(v + c);
      tile.ahead[c] = at(v + c + kFetchedAhead * kPageVectors);
    }
    for (int64_t r = 0, nr; r < rows; r += nr) {
      nr = even_part(rows - r, kTileRows);
      tile.q = q + r * ldq;
      tile.scores = scores + r * ldc + v * kLanes;
      kScoreTiles<T>[static_cast<size_t>((nr - 1) * kTileVectors + nv - 1)](tile);
    }
  }
}

// sums[r][c] += sum over first <= j < last of p[r][j] * value j's component c, for r < rows and c < width; computed in
// whole vectors, so that up to kLanes - 1 words beyond width are read in values and numbers written in sums.
template <class T>
void add_values(int64_t rows, const float* p, ptrdiff_t ldp, const HeadPages<T>& values, int64_t first, int64_t last,
                int64_t width, float* sums, ptrdiff_t ldc) {
  if (first >= last) return;
  const int64_t vectors = ceil_div(width, kLanes);
  for (int64_t r = 0, nr; r < rows; r += nr) {
    nr = even_part(rows - r, kValueRows);
    for (int64_t v = 0, nv; v < vectors; v += nv) {
      nv = even_part(vectors - v, kValueVectors);
      kValueTiles<T>[static_cast<size_t>((nr - 1) * kValueVectors + nv - 1)](
          {p + r * ldp,
           ldp,
           {values.data + v * kLanes * components_per_word<T>, values.stride, values.table},
           first,
           last,
           width,
           sums + r * ldc + v * kLanes,
           ldc});
    }
  }
}

// Turns n scores into exp(score - max), zeros after them in the last vector. Returns their sum.
float exponentiate(float* scores, int64_t n, float max) {
  vf sum{};
  for (int64_t j = 0; j < n; j += kLanes) {
    const vf p = exponential(load(scores + j) - max);
    store(scores + j, p);
    sum += p;
  }
  return reduce_sum(sum);
}

thread_local Buffer scratch;  // of the function below

}  // namespace

template <class T>
void attend_tile(const QueryTile& queries, int64_t depth, const HeadPages<T>& keys, const HeadPages<T>& values) {
  const int64_t n = queries.count, padded = round_up(depth, kLanes), shared = queries.limit[0];
  const int64_t num_pages = queries.pages(), ld = num_pages * kPageTokens;
  scratch.reserve(n * (ld + 2 * padded));
  float* scores = scratch.data();
  float* sums = scores + n * ld;
  float* q = sums + n * padded;

  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < depth; ++j) q[i * padded + j] = queries.q[i][j] * queries.scale;
  }
  score_keys(n, q, padded, depth, keys, values, num_pages, scores, ld);
  float max[kTileRows], total[kTileRows];
  for (int64_t i = 0; i < n; ++i) {
    shape_scores(queries, i, scores + i * ld);
    max[i] = largest_score(scores + i * ld, queries.limit[i]);
    total[i] = exponentiate(scores + i * ld, queries.limit[i], max[i]);
  }

  std::fill(sums, sums + n * padded, 0.0f);
  add_values(n, scores, ld, values, 0, shared, depth, sums, padded);  // keys that every query sees, then each one's own
  for (int64_t i = 0; i < n; ++i) {
    add_values(1, scores + i * ld, ld, values, shared, queries.limit[i], depth, sums + i * padded, padded);
  }
  for (int64_t i = 0; i < n; ++i) {
    const float inverse = 1.0f / total[i];
    for (int64_t j = 0; j < depth; ++j) queries.o[i][j] = sums[i * padded + j] * inverse;
    if (queries.logsumexp[i]) *queries.logsumexp[i] = max[i] + std::log(total[i]);
  }
}

template void attend_tile<float>(const QueryTile&, int64_t, const HeadPages<float>&, const HeadPages<float>&);
#if !defined(__AMX_BF16__)
template void attend_tile<uint16_t>(const QueryTile&, int64_t, const HeadPages<uint16_t>&, const HeadPages<uint16_t>&);
#endif

}  // namespace gyre
