// The one multiply kernel under linear layers and attention: a register tile of a few rows by a few vectors of columns,
// each element one chain of fused multiply-adds over k in ascending order. Because the chain does not depend on the
// tile's size, and because partial sums resumed from memory are exact, callers may cut rows, columns and k as they like
// without changing a bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/vec.h"

namespace gyre {

#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kTileRows = 8, kTileVectors = 3;  // 24 of 32 registers accumulate
#else
inline constexpr int kTileRows = 6, kTileVectors = 2;  // 12 of 16
#endif

// Size of the next of the even parts that `left` is cut into, none above `most`.
inline int64_t even_part(int64_t left, int64_t most) { return ceil_div(left, ceil_div(left, most)); }

// A[r][i] = data[r * row + i * column].
struct Strided {
  const float* data;
  ptrdiff_t row, column;
};

// c[r][j] = start[r][j] + sum over i < k of a[r][i] * b[i * ldb + j], for r < rows (any number) and j < vectors *
// kLanes. start (row stride start_row, 0 = the same row for all) may be c itself, or null for zero. Serial.
void multiply_tile(int64_t rows, int64_t vectors, Strided a, const float* b, ptrdiff_t ldb, int64_t k,
                   const float* start, ptrdiff_t start_row, float* c, ptrdiff_t ldc);

// Matrices that many rows are multiplied with are packed in panels of this many columns, [k][kPanel] each: three
// 16-lane vectors, six 8-lane ones.
inline constexpr int64_t kPanel = 48;
static_assert(kPanel % kLanes == 0);

// multiply_tile for b = a panel, which also brings the memory after the panel, where the next one lies, nearer. a_tile:
// 0, or the distance of one tile of kTileRows rows to the next where it is not kTileRows * a.row.
void multiply_panel(int64_t rows, int64_t vectors, Strided a, ptrdiff_t a_tile, const float* panel, int64_t k,
                    const float* start, ptrdiff_t start_row, float* c, ptrdiff_t ldc);

}  // namespace gyre
