// R rows by C vectors of accumulators that stay in registers: what the multiply kernels, tile.cc and attention_tile.cc,
// do with them. Only the compiler sees these as functions.
#pragma once

#include <cstddef>

#include "kernels/vec.h"

namespace gyre {

template <int R, int C>
using RegisterTile = vf[R][C];

template <int R, int C>
[[gnu::always_inline]] inline void load_tile(RegisterTile<R, C>& acc, const float* from, ptrdiff_t row) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) acc[r][c] = load(from + r * row + c * kLanes);
  }
}

// acc[r] += a[r * row] * w: one fused multiply-add per element.
template <int R, int C>
[[gnu::always_inline]] inline void add_products(RegisterTile<R, C>& acc, const float* a, ptrdiff_t row,
                                                const vf (&w)[C]) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const vf x = splat(a[r * row]);
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) acc[r][c] += x * w[c];
  }
}

template <int R, int C>
[[gnu::always_inline]] inline void store_tile(const RegisterTile<R, C>& acc, float* to, ptrdiff_t row) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) store(to + r * row + c * kLanes, acc[r][c]);
  }
}

}  // namespace gyre
