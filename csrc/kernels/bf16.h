// Vectors of f32 numbers rounded to bf16, and back. The scalar functions are in precision.h.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "kernels/panel.h"
#include "kernels/precision.h"
#include "kernels/vec.h"

namespace gyre {

typedef uint16_t vh __attribute__((vector_size(2 * kLanes)));  // as many bf16 numbers as vf has lanes

inline constexpr int32_t kUpperHalf = static_cast<int32_t>(0xffff0000u);

// The numbers of words of two, widened: those in the lower halves, and those in the upper ones.
inline vf lower(vf words) { return reinterpret_cast<vf>(reinterpret_cast<vi>(words) << 16); }
inline vf upper(vf words) { return reinterpret_cast<vf>(reinterpret_cast<vi>(words) & kUpperHalf); }

// The numbers that to_bf16() would give, in the upper halves of the lanes: valid floats.
inline vi rounded_bits(vf x) {
  const vi bits = reinterpret_cast<vi>(x), even = bits + 0x7fff + ((bits >> 16) & 1);
  const vi finite = (bits & 0x7f800000) == 0 ? bits & static_cast<int32_t>(0x80000000u) : even & kUpperHalf;
  return (bits & 0x7fffffff) > 0x7f800000 ? (bits | 0x400000) & kUpperHalf : finite;
}
inline vf rounded(vf x) { return reinterpret_cast<vf>(rounded_bits(x)); }

inline vf load_elements(const float* p) { return load(p); }
inline vf load_elements(const uint16_t* p) {
  vh half;
  std::memcpy(&half, p, sizeof half);
  typedef uint32_t vu __attribute__((vector_size(4 * kLanes)));
  return reinterpret_cast<vf>(__builtin_convertvector(half, vu) << 16);
}

inline void round_row(float* x, int64_t n) {
  for (int64_t j = 0; j < n; j += kLanes) store_first(x + j, rounded(load_first(x + j, n - j)), n - j);
}

// The pairs of inner positions of n numbers as multiply_panel<Widened> and, unpacked, <Floats> take them: rounded, the
// odd position before the even one, a zero where there is none. Writes round_up(n, 2) numbers.
inline void swap_pairs(const float* x, int64_t n, float* to) {
  const vi other = lane_index() ^ 1;
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) store(to + j, __builtin_shuffle(rounded(load(x + j)), other));
  for (; j < n; j += 2) {
    to[j] = j + 1 < n ? from_bf16(to_bf16(x[j + 1])) : 0.0f;
    to[j + 1] = from_bf16(to_bf16(x[j]));
  }
}

// The same as multiply_panel<Paired> takes them: two bf16 numbers in each of ceil_div(n, 2) words.
inline void join_pairs(const float* x, int64_t n, float* to) {
  int64_t j = 0;
#if defined(__AVX512BF16__)
  for (; j + 2 * kLanes <= n; j += 2 * kLanes) {
    store(to + j / 2, (vf)_mm512_cvtne2ps_pbh((__m512)load(x + j + kLanes), (__m512)load(x + j)));
  }
#endif
  for (; j < n; j += 2) {
    const uint32_t odd = j + 1 < n ? to_bf16(x[j + 1]) : 0, word = odd << 16 | to_bf16(x[j]);
    std::memcpy(to + j / 2, &word, sizeof word);
  }
}

// A row of n numbers as operands (gemm.h).
inline void to_operand(const float* x, int64_t n, float* to) {
  if constexpr (kWords) {
    join_pairs(x, n, to);
  } else {
    swap_pairs(x, n, to);
  }
}

// Rows of even and odd inner positions of a panel as words of pairs.
inline vf joined(vf even, vf odd) {
#if defined(__AVX512BF16__)
  const __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)even)),
                high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)odd));
  return (vf)_mm512_or_si512(low, _mm512_slli_epi32(high, 16));
#else
  return reinterpret_cast<vf>(((rounded_bits(even) >> 16) & 0xffff) | rounded_bits(odd));
#endif
}

}  // namespace gyre
