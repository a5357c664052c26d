// R rows by C vectors of accumulators that stay in registers: what the multiply kernels, tile.cc and attention_tile.cc,
// do with them. Only the compiler sees these as functions.
#pragma once

#include <cstddef>
#include <cstring>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "kernels/bf16.h"
#include "kernels/panel.h"
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

// The engines of panel.h that work in registers. A step adds the products of a[r * row] ..., kNumbers side by side, and
// the words that load(c) gives of column vector c.
struct Floats {
  static constexpr int kNumbers = 1;
  template <int R, int C, class Load>
  [[gnu::always_inline]] static void step(RegisterTile<R, C>& acc, const float* a, ptrdiff_t row, Load&& load) {
    vf w[C];
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) w[c] = load(c);
    add_products<R, C>(acc, a, row, w);
  }
};

// Does nothing, but has all accumulators in registers at this point: the compiler would otherwise begin the products
// after it early and, where every register is taken, spill accumulators to do so.
template <int R, int C>
[[gnu::always_inline]] inline void settle([[maybe_unused]] RegisterTile<R, C>& acc) {
#if defined(__x86_64__)
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) asm("" : "+v"(acc[r][c]));
  }
#endif
}

struct Widened {
  static constexpr int kNumbers = 2;
  template <int R, int C, class Load>
  [[gnu::always_inline]] static void step(RegisterTile<R, C>& acc, const float* a, ptrdiff_t row, Load&& load) {
    if constexpr (R < C) {  // few rows: their numbers stay in registers, the panel's pass through
      vf odd[R], even[R];
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) odd[r] = splat(a[r * row]), even[r] = splat(a[r * row + 1]);
#pragma GCC unroll 16
      for (int c = 0; c < C; ++c) {
        const vf words = load(c), high = upper(words), low = lower(words);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) acc[r][c] += odd[r] * high;
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) acc[r][c] += even[r] * low;
      }
    } else {
      vf w[C];
#pragma GCC unroll 16
      for (int c = 0; c < C; ++c) w[c] = upper(load(c));
      add_products<R, C>(acc, a, row, w);
      settle<R, C>(acc);
#pragma GCC unroll 16
      for (int c = 0; c < C; ++c) w[c] = lower(load(c));
      add_products<R, C>(acc, a + 1, row, w);
    }
  }
};

#if defined(__AVX512BF16__)
struct Paired {
  static constexpr int kNumbers = 1;
  template <int R, int C, class Load>
  [[gnu::always_inline]] static void step(RegisterTile<R, C>& acc, const float* a, ptrdiff_t row, Load&& load) {
    vf w[C];
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) w[c] = load(c);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      int32_t word;
      std::memcpy(&word, a + r * row, sizeof word);
      const auto x = (__m512bh)_mm512_set1_epi32(word);
#pragma GCC unroll 16
      for (int c = 0; c < C; ++c) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], (__m512bh)w[c], x);
    }
  }
};
#endif

}  // namespace gyre
