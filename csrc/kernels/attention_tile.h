// Attention of a few queries over paged keys and values, and its two products, on register tiles. As in tile.h every
// element is one chain of fused multiply-adds in ascending order, resumed exactly from memory, so queries and keys may
// be cut in any way without changing a bit. While a page is multiplied, a later one is fetched: pages lie anywhere in
// memory, and no hardware prefetcher guesses where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/attention.h"
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
};

// o of every query: the values weighted with the softmax of its scores. At most kQueriesAtOnce<T> queries.
template <class T>
void attend_tile(const QueryTile& queries, int64_t depth, const HeadPages<T>& keys, const HeadPages<T>& values);
template <class T>
inline constexpr int64_t kQueriesAtOnce = kTileRows;
#if defined(__AMX_BF16__)
template <>  // attention_blocked.cc
void attend_tile<uint16_t>(const QueryTile& queries, int64_t depth, const HeadPages<uint16_t>& keys,
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

}  // namespace gyre
