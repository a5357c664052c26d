#include "kernels/dot.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gyre {
namespace {

constexpr int kStripes = 8;
// Pairs of vectors at a time, a square of them: all sums stay in registers, and each vector is converted once for many.
#if defined(__AVX512F__)
constexpr int kSide = 4;
#else
constexpr int kSide = 2;
#endif

typedef float Floats __attribute__((vector_size(4 * kStripes), aligned(4), may_alias));
typedef double Doubles __attribute__((vector_size(8 * kStripes)));

Doubles widen(const float* x) { return __builtin_convertvector(*reinterpret_cast<const Floats*>(x), Doubles); }

using Sums = std::array<std::array<double, kSide>, kSide>;

// sums[a][b] = the inner product of x[a] and y[b].
template <int A, int B>
void square(const float* const* x, const float* const* y, int64_t n, Sums& sums) {
  Doubles acc[A][B] = {};
  int64_t i = 0;
  for (; i + kStripes <= n; i += kStripes) {
    Doubles wide[B];
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) wide[b] = widen(y[b] + i);
#pragma GCC unroll 4
    for (int a = 0; a < A; ++a) {
      const Doubles v = widen(x[a] + i);
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) acc[a][b] += v * wide[b];
    }
  }
  for (int a = 0; a < A; ++a) {
    for (int b = 0; b < B; ++b) {
      for (int64_t k = i; k < n; ++k) acc[a][b][k - i] += static_cast<double>(x[a][k]) * y[b][k];
      double sum = 0;
      for (int s = 0; s < kStripes; ++s) sum += acc[a][b][s];
      sums[static_cast<size_t>(a)][static_cast<size_t>(b)] = sum;
    }
  }
}

using Square = void (*)(const float* const*, const float* const*, int64_t, Sums&);

template <int... I>
constexpr std::array<Square, sizeof...(I)> squares(std::integer_sequence<int, I...>) {
  return {square<I / kSide + 1, I % kSide + 1>...};
}
constexpr auto kSquares = squares(std::make_integer_sequence<int, kSide * kSide>{});

}  // namespace

double dot(const float* a, const float* b, int64_t n) {
  Sums sums;
  square<1, 1>(&a, &b, n, sums);
  return sums[0][0];
}

void dot_pairs(std::span<const float* const> vectors, int64_t n, double* out) {
  const auto count = static_cast<int64_t>(vectors.size());
  const auto row = [&](int64_t a) { return out + a * count - a * (a - 1) / 2 - a; };  // row(a)[b] is pair a, b
  Sums sums;
  for (int64_t a = 0; a < count; a += kSide) {
    const int64_t height = std::min<int64_t>(kSide, count - a);
    for (int64_t b = a; b < count; b += kSide) {
      const int64_t width = std::min<int64_t>(kSide, count - b);
      kSquares[static_cast<size_t>((height - 1) * kSide + width - 1)](&vectors[static_cast<size_t>(a)],
                                                                      &vectors[static_cast<size_t>(b)], n, sums);
      for (int64_t i = 0; i < height; ++i) {
        for (int64_t j = std::max(b, a + i) - b; j < width; ++j) {
          row(a + i)[b + j] = sums[static_cast<size_t>(i)][static_cast<size_t>(j)];
        }
      }
    }
  }
}

}  // namespace gyre
