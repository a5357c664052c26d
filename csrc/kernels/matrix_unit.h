// The tile registers of Intel's matrix unit (AMX), or the fused multiply-adds that give the same bits: for blocked.cc
// and attention_blocked.cc.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/panel.h"

#if defined(__AMX_BF16__)

namespace gyre {

inline constexpr int64_t kMatrixRows = 16;  // of a tile register

// What registers 0 to 7 hold: first sums of `rows` rows and 16 columns, then operands of as many rows and `steps`
// words, last blocks of `steps` rows and 16 words that those are multiplied by.
struct TileShapes {
  int64_t rows, steps;
  int sums, operands;
  bool operator==(const TileShapes&) const = default;
};

// Sets the registers up, which clears them, unless they are. They are given back at the end of a PairsScope.
void set_shapes(const TileShapes& shapes);

}  // namespace gyre

// The compiler's own functions for these do not say which memory they read. `row`: floats from a row to the next.
#define GYRE_LOAD(tile, from, row)                                                                               \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #tile::"r"(from), "r"((row) * static_cast<ptrdiff_t>(sizeof(float))) \
               : "memory")
#define GYRE_STORE(tile, to, row)                                                                                   \
  asm volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"((row) * static_cast<ptrdiff_t>(sizeof(float))) \
               : "memory")
#define GYRE_ZERO(tile) asm volatile("tilezero %%tmm" #tile::)
// sum += a * b
#define GYRE_MULTIPLY(sum, a, b) asm volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sum::)

#elif defined(GYRE_BLOCKED)

namespace gyre {

// sum[r] += the products of R rows of at most kChainSteps words and a vector's columns of as many words, as one
// instruction of the matrix unit adds them. While FlushDenormals lives.
template <int R>
[[gnu::always_inline]] inline void add_block(vf (&sum)[R], const float* a, ptrdiff_t lda, const float* b, ptrdiff_t ldb,
                                             int64_t steps) {
  vf even[R] = {}, odd[R] = {};
  for (int64_t i = 0; i < steps; ++i) {
    const vf words = load(b + i * ldb), high = upper(words), low = lower(words);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const vf pair = reinterpret_cast<vf>(std::bit_cast<int32_t>(a[r * lda + i]) + vi{});
      even[r] += lower(pair) * low;
      odd[r] += upper(pair) * high;
    }
  }
  for (int r = 0; r < R; ++r) sum[r] += even[r] + odd[r];
}

}  // namespace gyre

#endif
