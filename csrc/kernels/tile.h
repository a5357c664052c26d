// The one multiply kernel under linear layers and attention: a register tile of a few rows by a few vectors of columns,
// each element one chain of fused multiply-adds over k in one order. Because the chain does not depend on the tile's
// size, and because partial sums resumed from memory are exact, callers may cut rows, columns and k (between pairs, in
// bf16) as they like without changing a bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"
#include "kernels/precision.h"

namespace gyre {

inline constexpr int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
inline constexpr int64_t ceil_div(int64_t n, int64_t by) { return (n + by - 1) / by; }

// Size of the next of the even parts that `left` is cut into, none above `most`.
inline int64_t even_part(int64_t left, int64_t most) { return ceil_div(left, ceil_div(left, most)); }

// A[r][i] = data[r * row + i * column].
struct Strided {
  const float* data;
  ptrdiff_t row, column;
};

// Matrices that many rows are multiplied with are packed in panels of this many columns, [k][kPanel] each: three
// 16-lane vectors, six 8-lane ones.
inline constexpr int64_t kPanel = 48;

// Runs the largest tile on operands that stay in the first-level cache, and returns the floating-point operations done.
GYRE_KERNEL(double, tile_work, Precision precision, int64_t tiles);

}  // namespace gyre
