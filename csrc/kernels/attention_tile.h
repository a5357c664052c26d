// Attention of a few queries over paged keys and values, and its two products, on register tiles. As in tile.h every
// element is one chain of fused multiply-adds in ascending order, resumed exactly from memory, so queries and keys may
// be cut in any way without changing a bit. Over numbers of bf16 the other factors are rounded to it, too: queries, and
// probabilities before they are divided by their sum. While a page is multiplied, a later one is fetched: pages lie
// anywhere in memory, and no hardware prefetcher guesses where.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/attention.h"
#include "kernels/bf16.h"
#include "kernels/panel.h"
#include "kernels/vec.h"

namespace gyre {

// The pages of one key/value head of a sequence: page i at data + table[i] * stride. T: float, or uint16_t for bf16.
template <class T>
struct HeadPages {
  const T* data;
  ptrdiff_t stride;
  const int32_t* table;
  const T* page(int64_t i) const { return data + table[i] * stride; }
};

// Numbers of bf16 are read as words of two inner positions: of keys components 2c and 2c + 1, of values keys 2j and
// 2j + 1.
template <class T>
inline constexpr int components_per_word = sizeof(T) == 2 ? 2 : 1;

// Queries that share one key/value head: their components, where their results go, and how many keys each may see.
inline constexpr int64_t kMostQueries = 16;
struct QueryTile {
  int64_t count;
  const float* q[kMostQueries];
  float* o[kMostQueries];
  float* logsumexp[kMostQueries];  // or null
  int64_t limit[kMostQueries];     // ascending
  int64_t start[kMostQueries];     // the first key that each sees, ascending
  float scale, cap;                // AttentionShape
  int64_t pages() const { return (limit[count - 1] + kPageTokens - 1) / kPageTokens; }
  QueryTile only(int64_t i) const { return {1, {q[i]}, {o[i]}, {logsumexp[i]}, {limit[i]}, {start[i]}, scale, cap}; }
};

// o of every query: the values weighted with the softmax of its scores. At most kQueriesAtOnce<T> queries. False: some
// number of o is not finite.
template <class T>
bool attend_tile(const QueryTile& queries, int64_t depth, const HeadPages<T>& keys, const HeadPages<T>& values);
template <class T>
inline constexpr int64_t kQueriesAtOnce = kTileRows;
#if defined(__AMX_BF16__)
template <>  // attention_blocked.cc
bool attend_tile<uint16_t>(const QueryTile& queries, int64_t depth, const HeadPages<uint16_t>& keys,
                           const HeadPages<uint16_t>& values);
template <>
inline constexpr int64_t kQueriesAtOnce<uint16_t> = kMostQueries;
#endif

// What becomes of a query's scores before they are compared.
inline void shape_scores(const QueryTile& queries, int64_t query, float* scores) {
  if (queries.cap > 0) {
    for (int64_t j = 0; j < queries.limit[query]; j += kLanes) {
      store(scores + j, queries.cap * hyperbolic_tangent(load(scores + j) / queries.cap));
    }
  }
  for (int64_t j = 0; j < queries.start[query]; ++j) scores[j] = -std::numeric_limits<float>::infinity();
}

// The largest of the first n scores. What is after them in their last vector becomes -infinity: scores of keys that
// must not be seen.
inline float largest_score(float* scores, int64_t n) {
  const vf lowest = splat(-std::numeric_limits<float>::infinity());
  const int64_t whole = n / kLanes * kLanes;
  vf best = lowest;
  for (int64_t j = 0; j < whole; j += kLanes) best = maximum(load(scores + j), best);
  if (whole < n) {
    const vi past = lane_index() >= static_cast<int32_t>(n - whole);
    store(scores + whole, past ? lowest : load(scores + whole));
    best = maximum(load(scores + whole), best);
  }
  return reduce_max(best);
}

// Turns n scores into probabilities exp(score - max) as operands of T, zeros after them up to `keys`, a multiple of 2 *
// kLanes. Returns their sum before they are rounded.
template <class T>
float exponentiate(float* scores, int64_t n, int64_t keys, float max) {
  vf sum{};
  const auto next = [&](int64_t j) {
    if (j >= n) return vf{};
    const vf p = exponential(load(scores + j) - max);
    sum += p;
    return p;
  };
  for (int64_t j = 0; j < keys; j += 2 * kLanes) {
    float both[2 * kLanes];
    store(both, next(j));
    store(both + kLanes, next(j + kLanes));
    if constexpr (sizeof(T) == 2) {
      to_operand(both, 2 * kLanes, scores + (kWords ? j / 2 : j));
    } else {
      std::copy_n(both, 2 * kLanes, scores + j);
    }
  }
  return reduce_sum(sum);
}

// A query's output from the weighted sums of values, which are whole vectors, and the logsumexp of its scores. Returns
// zeros, NaN where the output is not finite.
inline vf store_output(const QueryTile& queries, int64_t query, const float* sums, int64_t depth, float max,
                       float total) {
  const float inverse = 1.0f / total;
  vf zeros{};
  for (int64_t j = 0; j < depth; j += kLanes) {
    // The zero added makes one of both zeros: which it is may depend on how many keys the other queries see.
    const vf o = load(sums + j) * inverse + 0.0f;
    store_first(queries.o[query] + j, o, depth - j);
    zeros += (j + kLanes <= depth ? o : load_first(queries.o[query] + j, depth - j)) * 0.0f;
  }
  if (queries.logsumexp[query]) *queries.logsumexp[query] = max + std::log(total);
  return zeros;
}

}  // namespace gyre
