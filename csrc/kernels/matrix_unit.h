// The tile registers of Intel's matrix unit (AMX): for blocked.cc and attention_blocked.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

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

// The tile registers by number. The compiler's own functions for these do not say which memory they read. `row`: floats
// from a row to the next.
template <int kTile>
[[gnu::always_inline]] inline void load_matrix(const float* from, ptrdiff_t row) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row * static_cast<ptrdiff_t>(sizeof(float))), "i"(kTile)
               : "memory");
}
template <int kTile>
[[gnu::always_inline]] inline void store_matrix(float* to, ptrdiff_t row) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row * static_cast<ptrdiff_t>(sizeof(float))), "i"(kTile)
               : "memory");
}
template <int kTile>
[[gnu::always_inline]] inline void clear_matrix() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
// sum += a * b
template <int kSum, int kA, int kB>
[[gnu::always_inline]] inline void multiply_matrices() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
}

// Calls body(i) for kFirst <= i < kCount, i being a constant. Only the compiler sees these calls.
template <int kCount, int kFirst = 0, class Body>
[[gnu::always_inline]] inline void unrolled(Body&& body) {
  if constexpr (kFirst < kCount) {
    body(std::integral_constant<int, kFirst>{});
    unrolled<kCount, kFirst + 1>(body);
  }
}

}  // namespace gyre

#endif
