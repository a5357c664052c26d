// The tile registers of Intel's matrix unit (AMX): for blocked.cc and attention_blocked.cc.
#pragma once

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

#endif
