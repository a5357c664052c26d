// The f32 vector of this processor's register width, by GCC/Clang vector extensions, and the few functions on it that
// the kernels share. `acc += x * y` is one fused multiply-add per lane (-ffp-contract=fast), scalar or vector, so every
// kernel variant does the same arithmetic per element. Reductions over lanes have one fixed order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/tile.h"

namespace gyre {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float vf __attribute__((vector_size(4 * kLanes)));
typedef int32_t vi __attribute__((vector_size(4 * kLanes)));
typedef float unaligned_vf __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

inline vf load(const float* p) { return *reinterpret_cast<const unaligned_vf*>(p); }
inline void store(float* p, vf v) { *reinterpret_cast<unaligned_vf*>(p) = v; }
inline vf splat(float x) { return x - vf{}; }  // x - 0 folds to x, signed zeros included

// The first n lanes (0 < n <= kLanes), zeros after them.
inline vf load_first(const float* p, int64_t n) {
  if (n >= kLanes) return load(p);
  vf v{};
  std::memcpy(&v, p, static_cast<size_t>(n) * sizeof(float));
  return v;
}
inline void store_first(float* p, vf v, int64_t n) {
  if (n >= kLanes) return store(p, v);
  std::memcpy(p, &v, static_cast<size_t>(n) * sizeof(float));
}

inline vi lane_index() {
  vi v{};
  for (int i = 0; i < kLanes; ++i) v[i] = i;
  return v;
}

inline vf maximum(vf a, vf b) { return a > b ? a : b; }

// Lanes at distance kLanes / 2, then / 4, ... 1 are combined: in registers.
template <class Combine>
inline float reduce(vf v, Combine&& combine) {
#pragma GCC unroll 4
  for (int half = kLanes / 2; half > 0; half /= 2) {
    v = combine(v, __builtin_shuffle(v, (lane_index() + half) & (kLanes - 1)));
  }
  return v[0];
}
inline float reduce_sum(vf v) {
  return reduce(v, [](vf a, vf b) { return a + b; });
}
inline float reduce_max(vf v) { return reduce(v, maximum); }

// e^x to about 1 ulp; 0 below the smallest normal result, infinity from 2^127.5 on, NaN for NaN.
// Range reduction x = n ln 2 + r, |r| <= ln 2 / 2, with ln 2 in two parts (Cody & Waite 1980), then a minimax
// polynomial for e^r.
inline vf exponential(vf x) {
  constexpr float kLowest = -87.33654f, kHighest = 88.37626f,
                  kMagic = 12582912.0f;  // kMagic = 1.5 * 2^23 rounds to an integer
  vf y = x < splat(kLowest) ? splat(kLowest) : x;
  y = y > splat(kHighest) ? splat(kHighest) : y;
  const vf shifted = y * 1.44269504f + splat(kMagic);
  const vf n = shifted - kMagic;
  vf r = y - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  vf p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const vf r2 = r * r;
  p = p * r2 + r;
  p = p + 1.0f;
  vi bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = ((bits - 0x4B400000 /* bits of kMagic */) + 127) << 23;
  vf scale;
  std::memcpy(&scale, &bits, sizeof scale);
  p = p * scale;
  p = x > splat(kHighest) ? splat(std::numeric_limits<float>::infinity()) : p;
  return x < splat(kLowest) ? vf{} : p;
}

// tanh x to a few ulp: a polynomial near 0 (Cephes, Moshier 1989), elsewhere by e^2x.
inline vf hyperbolic_tangent(vf x) {
  const vf z = x * x, size = x < vf{} ? -x : x;
  vf p = splat(-5.70498872745e-3f);
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const vf near = p * z * x + x, far = 1.0f - 2.0f / (exponential(size + size) + 1.0f);
  return size < splat(0.625f) ? near : x < vf{} ? -far : far;
}

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
