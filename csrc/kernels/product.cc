#include "kernels/product.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/buffer.h"
#include "kernels/parallel.h"

namespace gyre {
namespace {

constexpr int64_t kDepth = 768;  // inner positions per pass: a panel (144 KiB) stays in the second-level cache
constexpr int64_t kStrip = 8;    // rows of b packed at a time, which keeps their lines in the first-level cache
constexpr int64_t kRows = 96;    // rows of a per task, at most

// Rows first .. last-1 of a block of b[depth, n] to their places in the panels, zeros after the last column.
void pack_rows(const float* b, ptrdiff_t ldb, int64_t n, int64_t depth, int64_t first, int64_t last, float* panels) {
  for (int64_t p = 0; p * kPanel < n; ++p) {
    const int64_t width = std::min(kPanel, n - p * kPanel);
    float* panel = panels + p * depth * kPanel;
    for (int64_t i = first; i < last; ++i) {
      const float* from = b + i * ldb + p * kPanel;
      for (int64_t j = 0; j < width; j += kLanes) store(panel + i * kPanel + j, load_first(from + j, width - j));
    }
  }
}

// Rows of a that one task multiplies.
struct Part {
  Strided a;
  ptrdiff_t tile;  // as multiply_panel's a_tile
};

// a[rows, depth] whose columns lie side by side, copied tile by tile: [tile][depth][kTileRows].
Part pack_columns(Strided a, int64_t rows, int64_t depth, float* to) {
  const int64_t whole = rows / kTileRows * kTileRows;
  for (int64_t i = 0; i < depth; ++i) {
    const float* from = a.data + i * a.column;
    float* column = to + i * kTileRows;
    for (int64_t r = 0; r < whole; r += kTileRows) std::copy_n(from + r, kTileRows, column + r * depth);
    std::copy_n(from + whole, rows - whole, column + whole * depth);
  }
  return {{to, 1, kTileRows}, depth * kTileRows};
}

// multiply_panel for a last panel of no whole number of vectors, so that c is never touched past its row.
void multiply_narrow(int64_t rows, int64_t width, const Part& part, const float* panel, int64_t depth, bool add,
                     float* c, ptrdiff_t ldc) {
  thread_local Buffer buffer;
  buffer.reserve(rows * kPanel);
  for (int64_t r = 0; add && r < rows; ++r) std::copy_n(c + r * ldc, width, buffer.data() + r * kPanel);
  multiply_panel(rows, ceil_div(width, kLanes), part.a, part.tile, panel, depth, add ? buffer.data() : nullptr, kPanel,
                 buffer.data(), kPanel);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(buffer.data() + r * kPanel, width, c + r * ldc);
}

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

void multiply(int64_t m, int64_t n, int64_t k, Strided a, const float* b, ptrdiff_t ldb, bool add, float* c,
              ptrdiff_t ldc) {
  if (m <= 0 || n <= 0) return;
  thread_local Buffer panels;
  const int64_t most_depth = k ? ceil_div(k, ceil_div(k, kDepth)) : 0;
  const int64_t num_panels = ceil_div(n, kPanel);
  // As many for one thread as for another.
  const int64_t tasks =
      round_up(std::max(ceil_div(m, kRows), std::min<int64_t>(4 * num_threads(), ceil_div(m, 16))), num_threads());
  const int64_t task_rows = round_up(ceil_div(m, tasks), kTileRows);
  panels.reserve(num_panels * most_depth * kPanel);
  float* packed = panels.data();
  for (int64_t first = 0; first < k; first += most_depth) {
    const int64_t depth = std::min(most_depth, k - first);
    parallel_for(ceil_div(depth, kStrip), std::max<int64_t>(1, 65536 / (kStrip * n)), [&](int64_t strip) {
      pack_rows(b + first * ldb, ldb, n, depth, strip * kStrip, std::min(depth, (strip + 1) * kStrip), packed);
    });
    const bool resume = add || first > 0;
    parallel_for(ceil_div(m, task_rows), std::max<int64_t>(1, 400000 / (task_rows * n * depth)), [&](int64_t t) {
      thread_local Buffer columns;
      const int64_t row = t * task_rows, rows = std::min(task_rows, m - row);
      Part part{{a.data + row * a.row + first * a.column, a.row, a.column}, 0};
      if (a.row == 1 && a.column != 1) {
        columns.reserve(round_up(task_rows, kTileRows) * depth);
        part = pack_columns(part.a, rows, depth, columns.data());
      }
      for (int64_t p = 0; p < num_panels; ++p) {
        const int64_t width = std::min(kPanel, n - p * kPanel);
        const float* panel = packed + p * depth * kPanel;
        float* to = c + row * ldc + p * kPanel;
        if (width % kLanes) {
          multiply_narrow(rows, width, part, panel, depth, resume, to, ldc);
        } else {
          multiply_panel(rows, width / kLanes, part.a, part.tile, panel, depth, resume ? to : nullptr, ldc, to, ldc);
        }
      }
    });
  }
}

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
