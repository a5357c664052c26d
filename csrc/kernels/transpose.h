// Square tiles between the two layouts of a matrix.
#pragma once

#include <cstddef>

#include "kernels/vec.h"

namespace gyre {

// to[j * ld_to + i] = from[i * ld_from + j] for i, j < kLanes. In registers: rows at distance h exchange the lanes at
// distance h, for h = kLanes / 2, kLanes / 4, ... 1.
inline void transpose_tile(const float* from, ptrdiff_t ld_from, float* to, ptrdiff_t ld_to) {
  vf row[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) row[i] = load(from + i * ld_from);
#pragma GCC unroll 4
  for (int h = kLanes / 2; h > 0; h /= 2) {
    // Lanes 0 .. kLanes-1 are those of the first row of a pair, the others those of the second.
    const vi lane = lane_index(), upper = (lane & h) != 0;
    const vi first = upper ? lane - h + kLanes : lane, second = upper ? lane + kLanes : lane + h;
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if (i & h) continue;
      const vf a = row[i], b = row[i + h];
      row[i] = __builtin_shuffle(a, b, first);
      row[i + h] = __builtin_shuffle(a, b, second);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) store(to + i * ld_to, row[i]);
}

}  // namespace gyre
