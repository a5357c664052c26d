// The two products of attention over paged keys and values, on register tiles of a few queries. As in tile.h every
// element is one chain of fused multiply-adds in ascending order, resumed exactly from memory, so queries and keys may
// be cut in any way without changing a bit. While a page is multiplied, a later one is fetched: pages lie anywhere in
// memory, and no hardware prefetcher guesses where.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
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

// Numbers of bf16 are read as words of two: a key's components 2c and 2c + 1 lie side by side,
//   keys [head_dim / 2][kPageTokens][2],
// and sums of values come with the even columns of every two vectors before the odd ones (sum_place).
template <class T>
inline constexpr int components_per_word = sizeof(T) == 2 ? 2 : 1;

// scores[r][j] = sum over c < depth of q[r][c] * key j's component c, for r < rows and the keys of the first num_pages
// pages. q's rows are ldq apart, scores' ldc.
template <class T>
void score_keys(int64_t rows, const float* q, ptrdiff_t ldq, int64_t depth, const HeadPages<T>& keys, int64_t num_pages,
                float* scores, ptrdiff_t ldc);

// sums[r][c] += sum over first <= j < last of p[r][j] * value j's component c, for r < rows and c < width; computed in
// whole vectors, so that up to kLanes - 1 numbers beyond width are read in values and written in sums. Column c of the
// sums is at sum_place<T>(c, width).
template <class T>
void add_values(int64_t rows, const float* p, ptrdiff_t ldp, const HeadPages<T>& values, int64_t first, int64_t last,
                int64_t width, float* sums, ptrdiff_t ldc);

template <class T>
int64_t sum_place(int64_t column, int64_t width) {
  constexpr int64_t kTwo = 2 * kLanes;
  const int64_t first = column / kTwo * kTwo, at = column - first;
  if (components_per_word<T> == 1 || first + kLanes >= width) return column;  // a vector by itself
  return first + at % 2 * kLanes + at / 2;
}

}  // namespace gyre
