#include "kernels/attention_tile.h"

#include <algorithm>
#include <array>
#include <bit>
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
constexpr int64_t kBlockPages = 8;    // of values, which stay in the first-level cache for all tiles of queries

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kValueRows = 6, kValueVectors = 4;
#else
constexpr int kValueRows = kTileRows, kValueVectors = kTileVectors;
#endif

// What multiplies queries by keys and probabilities by values, and the steps that so many inner positions take.
template <class T>
using EngineOf = std::conditional_t<sizeof(T) == 2, RegisterPairs, Floats>;
template <class T>
constexpr int64_t steps_of(int64_t positions) {
  return ceil_div(positions, components_per_word<T>);
}

// Vector `v` of a page's words.
template <class T>
const float* words_of(const T* page, int64_t v) {
  return reinterpret_cast<const float*>(page) + v * kLanes;
}

struct ScoreTile {
  const float* q;
  ptrdiff_t ldq;
  int64_t steps;
  const float* keys[kTileVectors];   // one vector of keys each
  const float* ahead[kTileVectors];  // as far along as keys
  float scale;
  float* scores;
  ptrdiff_t ldc;
};

template <class T, int R, int C>
void score_tile(const ScoreTile& t) {
  using Engine = EngineOf<T>;
  RegisterTile<R, C> acc = {};
  const float* q = t.q;
  for (int64_t i = 0; i < t.steps; ++i, q += Engine::kNumbers) {
    Engine::template step<R, C>(acc, q, t.ldq, [&](int c) { return load(t.keys[c] + i * kPageTokens); });
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) __builtin_prefetch(t.ahead[c] + i * kPageTokens, 0, 2);
  }
  if constexpr (sizeof(T) == 2) {  // queries of float are scaled before
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) acc[r][c] *= t.scale;
    }
  }
  store_tile<R, C>(acc, t.scores, t.ldc);
}

template <class T>
struct ValueTile {
  const float* p;
  ptrdiff_t ldp;
  HeadPages<T> values;
  int64_t column, first, last, width;  // words from column on of rows first .. last-1, which are `width` words long
  float* sums;
  ptrdiff_t ldc;
};

template <class T, int R, int C>
void value_tile(const ValueTile<T>& t) {
  using Engine = EngineOf<T>;
  constexpr int64_t kPageRows = steps_of<T>(kPageTokens);
  RegisterTile<R, C> acc;
  load_tile<R, C>(acc, t.sums, t.ldc);
  const int64_t last_page = (t.last - 1) / kPageRows;
  const float* p = t.p + t.first * Engine::kNumbers;
  for (int64_t row = t.first; row < t.last;) {
    const int64_t page = row / kPageRows, at = t.column + row % kPageRows * t.width;
    const int64_t end = std::min(t.last, (page + 1) * kPageRows);
    const float* v = words_of(t.values.page(page), 0) + at;
    const float* ahead = words_of(t.values.page(std::min(page + kFetchedAhead, last_page)), 0) + at;
    for (; row < end; ++row, v += t.width, ahead += t.width, p += Engine::kNumbers) {
      Engine::template step<R, C>(acc, p, t.ldp, [&](int c) { return load(v + c * kLanes); });
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) __builtin_prefetch(ahead + c * kLanes, 0, 2);
    }
  }
  store_tile<R, C>(acc, t.sums, t.ldc);
}

template <class T, int... I>
constexpr std::array<void (*)(const ScoreTile&), sizeof...(I)> score_tiles(std::integer_sequence<int, I...>) {
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
void score_keys(int64_t rows, const float* q, ptrdiff_t ldq, int64_t depth, float scale, const HeadPages<T>& keys,
                const HeadPages<T>& values, int64_t num_pages, float* scores, ptrdiff_t ldc) {
  const int64_t vectors = num_pages * kPageVectors;
  const auto at = [&](int64_t v) {
    const int64_t page = v / kPageVectors;
    const T* start = page < num_pages ? keys.page(page) : values.page(std::min(page - num_pages, num_pages - 1));
    return words_of(start, v % kPageVectors);
  };
  for (int64_t v = 0, nv; v < vectors; v += nv) {
    nv = std::min<int64_t>(kTileVectors, vectors - v);
    ScoreTile tile{};
    tile.ldq = ldq;
    tile.steps = steps_of<T>(depth);
    tile.scale = scale;
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

// sums[r][c] += sum over the first `count` rows of values of p[r][j] * row j's component c, for r < rows and c < width;
// computed in whole vectors, so that up to kLanes - 1 words beyond width are read in values and numbers written in
// sums.
template <class T>
void add_values(int64_t rows, const float* p, ptrdiff_t ldp, const HeadPages<T>& values, int64_t count, int64_t width,
                float* sums, ptrdiff_t ldc) {
  const int64_t vectors = ceil_div(width, kLanes);
  const int64_t block = rows > kValueRows ? steps_of<T>(kBlockPages * kPageTokens) : count;
  for (int64_t first = 0; first < count; first += block) {
    for (int64_t r = 0, nr; r < rows; r += nr) {
      nr = even_part(rows - r, kValueRows);
      for (int64_t v = 0, nv; v < vectors; v += nv) {
        nv = even_part(vectors - v, kValueVectors);
        kValueTiles<T>[static_cast<size_t>((nr - 1) * kValueVectors + nv - 1)](
            {p + r * ldp, ldp, values, v * kLanes, first, std::min(count, first + block), width,
             sums + r * ldc + v * kLanes, ldc});
      }
    }
  }
}

thread_local Buffer scratch;  // of the function below

}  // namespace

template <class T>
bool attend_tile(const QueryTile& queries, int64_t depth, const HeadPages<T>& keys, const HeadPages<T>& values) {
  using Engine = EngineOf<T>;
  [[maybe_unused]] const ScopeOf<Engine> scope{};
  const int64_t n = queries.count, padded = round_up(depth, kLanes), num_pages = queries.pages();
  const int64_t ld = round_up(num_pages * kPageTokens, 2 * kLanes), seen = queries.limit[n - 1];
  scratch.reserve(n * (ld + 2 * padded) + padded);
  float* scores = scratch.data();
  float* sums = scores + n * ld;
  float* q = sums + n * padded;
  float* last = q + n * padded;

  for (int64_t i = 0; i < n; ++i) {
    if constexpr (sizeof(T) == 2) {
      to_operand(queries.q[i], depth, q + i * padded);
    } else {
      for (int64_t j = 0; j < depth; ++j) q[i * padded + j] = queries.q[i][j] * queries.scale;
    }
  }
  score_keys(n, q, padded, depth, queries.scale, keys, values, num_pages, scores, ld);
  float max[kTileRows], total[kTileRows];
  for (int64_t i = 0; i < n; ++i) {
    shape_scores(queries, i, scores + i * ld);
    max[i] = largest_score(scores + i * ld, queries.limit[i]);
    total[i] = exponentiate<T>(scores + i * ld, queries.limit[i], ld, max[i]);
  }

  // Keys that a query does not see weigh nothing. Nobody may have written the one after the last.
  std::fill(sums, sums + n * padded, 0.0f);
  const int64_t whole = seen / components_per_word<T>;
  add_values(n, scores, ld, values, whole, depth, sums, padded);
  if (whole < steps_of<T>(seen)) {
    constexpr int64_t kPageRows = steps_of<T>(kPageTokens);
    const float* row = words_of(values.page(whole / kPageRows), 0) + whole % kPageRows * depth;
    std::fill(last, last + padded, 0.0f);
    for (int64_t j = 0; j < depth; ++j) last[j] = std::bit_cast<float>(std::bit_cast<uint32_t>(row[j]) & 0xffff);
    multiply_tile<Engine>(n, padded / kLanes, {scores + whole * Engine::kNumbers, ld, 1}, last, padded, 1, sums, padded,
                          sums, padded);
  }
  vf zeros{};
  for (int64_t i = 0; i < n; ++i) zeros += store_output(queries, i, sums + i * padded, depth, max[i], total[i]);
  return reduce_sum(zeros) == 0;
}

template bool attend_tile<float>(const QueryTile&, int64_t, const HeadPages<float>&, const HeadPages<float>&);
#if !defined(__AMX_BF16__)
template bool attend_tile<uint16_t>(const QueryTile&, int64_t, const HeadPages<uint16_t>&, const HeadPages<uint16_t>&);
#endif

}  // namespace gyre
