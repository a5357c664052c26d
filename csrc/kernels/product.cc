#include "kernels/product.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/bf16.h"
#include "kernels/buffer.h"
#include "kernels/panel.h"
#include "kernels/parallel.h"

namespace gyre {
namespace {

constexpr int64_t kDepth = 768;  // inner positions per pass: a panel (144 KiB) stays in the second-level cache
constexpr int64_t kStrip = 8;    // rows of b packed at a time, which keeps their lines in the first-level cache

// Rows of a that one task multiplies.
struct Part {
  Strided a;
  ptrdiff_t tile;  // as multiply_panel's a_tile
};

// How numbers of a factor are read: `n` of them, or as many as a vector has, from number `at` of a row in memory on.
struct Plain {
  static constexpr bool kRounded = false;
  static vf numbers(const float* row, int64_t at, int64_t n) { return load_first(row + at, n); }
};
struct Operand {  // `at` is even
  static constexpr bool kRounded = true;
  static vf numbers(const float* row, int64_t at, int64_t n) {
    if constexpr (kWords) {
      uint16_t some[kLanes] = {};
      const auto* from = reinterpret_cast<const char*>(row) + at * 2;
      if (n >= kLanes) {
        std::memcpy(some, from, sizeof some);
      } else {
        std::memcpy(some, from, static_cast<size_t>(n) * 2);
      }
      return load_elements(some);
    } else {
      return __builtin_shuffle(load_first(row + at, round_up(n, 2)), lane_index() ^ 1);
    }
  }
};

// Words of pairs, of numbers that are rounded already or not.
template <class From>
vf words_of(vf even, vf odd) {
  if constexpr (!From::kRounded) return joined(even, odd);
  return reinterpret_cast<vf>(((reinterpret_cast<vi>(even) >> 16) & 0xffff) | reinterpret_cast<vi>(odd));
}

// Some rows of a: number i of row r is number `at` + r or i of a row in memory.
struct RowsOfA {
  Strided of;
  int64_t at;
};

// How blocks of a and b lie in memory while they are multiplied. A block's `positions` inner positions make depth()
// rows of a panel. pack_rows: positions first .. last-1 of b[positions, n] to their places in the panels, zeros after
// the last column. pack: a[rows, positions] as the engine takes it; `to` has room for rows in whole tiles.
struct Exact {
  using Engine = Floats;
  static constexpr int64_t kRows = 96;  // of a per task, at most
  static int64_t depth(int64_t positions) { return positions; }

  template <class From>
  static void pack_rows(const float* b, ptrdiff_t ldb, int64_t n, int64_t positions, int64_t first, int64_t last,
                        float* panels) {
    for (int64_t p = 0; p * kPanel < n; ++p) {
      const int64_t width = std::min(kPanel, n - p * kPanel);
      float* panel = panels + p * positions * kPanel;
      for (int64_t i = first; i < last; ++i) {
        const float* from = b + i * ldb + p * kPanel;
        for (int64_t j = 0; j < width; j += kLanes) store(panel + i * kPanel + j, load_first(from + j, width - j));
      }
    }
  }

  // Columns that lie side by side are copied tile by tile: [tile][depth][kTileRows].
  template <class From>
  static Part pack(const RowsOfA& some, int64_t rows, int64_t positions, float* to) {
    const Strided a{some.of.data + some.at, some.of.row, some.of.column};
    if (a.row != 1 || a.column == 1) return {a, 0};
    const int64_t whole = rows / kTileRows * kTileRows;
    for (int64_t i = 0; i < positions; ++i) {
      const float* from = a.data + i * a.column;
      float* column = to + i * kTileRows;
      for (int64_t r = 0; r < whole; r += kTileRows) std::copy_n(from + r, kTileRows, column + r * positions);
      std::copy_n(from + whole, rows - whole, column + whole * positions);
    }
    return {{to, 1, kTileRows}, positions * kTileRows};
  }
};

// Pairs of numbers rounded to bf16: in words where the processor multiplies those, widened and swapped otherwise.
struct Rounded {
  using Engine = std::conditional_t<kWords, Pairs, Floats>;
  // The matrix unit is done with a panel sooner than the next one has come: each is used for twice as many rows.
  static constexpr int64_t kRows = std::is_same_v<Engine, Blocked> ? 192 : 96;
  static int64_t depth(int64_t positions) { return kWords ? ceil_div(positions, 2) : round_up(positions, 2); }

  template <class From>
  static void pack_rows(const float* b, ptrdiff_t ldb, int64_t n, int64_t positions, int64_t first, int64_t last,
                        float* panels) {
    for (int64_t p = 0; p * kPanel < n; ++p) {
      const int64_t width = std::min(kPanel, n - p * kPanel);
      float* panel = panels + p * depth(positions) * kPanel;
      for (int64_t i = first; i < last; i += 2) {
        const float* from = b + i * ldb;
        for (int64_t j = 0; j < width; j += kLanes) {
          const int64_t at = p * kPanel + j;
          const vf even = From::numbers(from, at, width - j),
                   odd = i + 1 < last ? From::numbers(from + ldb, at, width - j) : vf{};
          if constexpr (kWords) {
            store(panel + i / 2 * kPanel + j, words_of<From>(even, odd));
          } else {
            store(panel + i * kPanel + j, rounded(odd));
            store(panel + (i + 1) * kPanel + j, rounded(even));
          }
        }
      }
    }
  }

  template <class From>
  static Part pack(const RowsOfA& some, int64_t rows, int64_t positions, float* to) {
    const int64_t steps = depth(positions);
    const auto& [a, at] = some;
    if (a.column == 1) {
      for (int64_t r = 0; r < rows; ++r) {
        const float* from = a.data + r * a.row;
        if constexpr (From::kRounded) {  // a copy: rows that lie close together are read faster
          std::copy_n(from + (kWords ? at / 2 : at), steps, to + r * steps);
        } else {
          to_operand(from + at, positions, to + r * steps);
        }
      }
      return {{to, steps, 1}, 0};
    }
    if constexpr (std::is_same_v<Pairs, Blocked>) return turn<From>(some, rows, positions, to);
    // [tile][depth][kTileRows]. A position's rows are read side by side: each lies on a page of its own.
    constexpr int64_t kAtOnce = kTileRows * std::max(1, kLanes / kTileRows);
    for (int64_t i = 0; i < positions; i += 2) {
      for (int64_t first = 0; first < rows; first += kAtOnce) {
        const float* from = a.data + i * a.column;
        float words[2][kAtOnce + kLanes];
        for (int64_t r = 0; r < std::min(kAtOnce, rows - first); r += kLanes) {
          const int64_t n = rows - first - r;
          const vf even = From::numbers(from, at + first + r, n),
                   odd = i + 1 < positions ? From::numbers(from + a.column, at + first + r, n) : vf{};
          store(words[0] + r, kWords ? words_of<From>(even, odd) : rounded(odd));
          if constexpr (!kWords) store(words[1] + r, rounded(even));
        }
        for (int64_t r = 0; r < std::min(kAtOnce, rows - first); r += kTileRows) {
          float* tile = to + (first + r) * steps + (kWords ? i / 2 : i) * kTileRows;
          std::copy_n(words[0] + r, kTileRows, tile);
          if constexpr (!kWords) std::copy_n(words[1] + r, kTileRows, tile + kTileRows);
        }
      }
    }
    return {{to, 1, kTileRows}, steps * kTileRows};
  }

  // Rows of words from a whose rows lie side by side: squares of words are transposed.
  template <class From>
  static Part turn(const RowsOfA& a, int64_t rows, int64_t positions, float* to) {
    const int64_t steps = depth(positions);
    // kLanes rows at a position, zeros past the end.
    const auto gather = [&](int64_t r, int64_t position, float* column) {
      const float* from = a.of.data + position * a.of.column;
      store(column, position < positions ? From::numbers(from, a.at + r, rows - r) : vf{});
    };
    for (int64_t i = 0; i < steps; i += kLanes) {
      const int64_t some = std::min<int64_t>(kLanes, steps - i);
      for (int64_t r = 0; r < rows; r += kLanes) {
        alignas(64) float words[kLanes * kLanes] = {}, even[kLanes], odd[kLanes];
        for (int64_t s = 0; s < some; ++s) {
          gather(r, 2 * (i + s), even);
          gather(r, 2 * (i + s) + 1, odd);
          store(words + s * kLanes, words_of<From>(load(even), load(odd)));
        }
        float* square = to + r * steps + i;
        if (some == kLanes && rows - r >= kLanes) {
          transpose_tile(words, kLanes, square, steps);
        } else {
          alignas(64) float turned[kLanes * kLanes];
          transpose_tile(words, kLanes, turned, kLanes);
          for (int64_t j = 0; j < std::min<int64_t>(kLanes, rows - r); ++j) {
            std::copy_n(turned + j * kLanes, some, square + j * steps);
          }
        }
      }
    }
    return {{to, steps, 1}, 0};
  }
};

template <class Format, class FromA, class FromB>
void multiply_as(int64_t m, int64_t n, int64_t k, const Factor& a, const Factor& b, bool add, float* c, ptrdiff_t ldc) {
  using Engine = typename Format::Engine;
  thread_local Buffer panels;
  const int64_t most = k ? round_up(ceil_div(k, ceil_div(k, kDepth)), 2 * kChainSteps) : 0,
                most_depth = Format::depth(most);
  const int64_t num_panels = ceil_div(n, kPanel);
  // As many for one thread as for another.
  const int64_t tasks = round_up(
      std::max(ceil_div(m, Format::kRows), std::min<int64_t>(4 * num_threads(), ceil_div(m, 16))), num_threads());
  const int64_t task_rows = round_up(ceil_div(m, tasks), kTileRows);
  panels.reserve(num_panels * most_depth * kPanel);
  float* packed = panels.data();
  for (int64_t first = 0; first < k; first += most) {
    const int64_t positions = std::min(most, k - first), depth = Format::depth(positions);
    parallel_for(ceil_div(positions, kStrip), std::max<int64_t>(1, 65536 / (kStrip * n)), [&](int64_t strip) {
      Format::template pack_rows<FromB>(b.data + first * b.row, b.row, n, positions, strip * kStrip,
                                        std::min(positions, (strip + 1) * kStrip), packed);
    });
    const bool resume = add || first > 0;
    parallel_for(ceil_div(m, task_rows), std::max<int64_t>(1, 400000 / (task_rows * n * positions)), [&](int64_t t) {
      thread_local Buffer rows_of_a;
      const int64_t row = t * task_rows, rows = std::min(task_rows, m - row);
      rows_of_a.reserve(round_up(task_rows, kTileRows) * most_depth);
      const RowsOfA some = a.column == 1 ? RowsOfA{{a.data + row * a.row, a.row, 1}, a.first + first}
                                         : RowsOfA{{a.data + first * a.column, a.row, a.column}, a.first + row * a.row};
      const Part part = Format::template pack<FromA>(some, rows, positions, rows_of_a.data());
      [[maybe_unused]] const ScopeOf<std::conditional_t<std::is_same_v<Format, Rounded>, Pairs, Floats>> scope{};
      for (int64_t p = 0; p < num_panels; ++p) {
        const float* panel = packed + p * depth * kPanel;
        float* to = c + row * ldc + p * kPanel;
        multiply_columns(rows, std::min(kPanel, n - p * kPanel), resume ? to : nullptr, ldc, to, ldc,
                         [&](int64_t vectors, const float* start, ptrdiff_t start_row, float* block, ptrdiff_t ld) {
                           multiply_panel<Engine>(rows, vectors, part.a, part.tile, panel, depth,
                                                  panel + depth * kPanel, start, start_row, block, ld);
                         });
      }
    });
  }
}

constexpr int kStripes = 8;
// Pairs of vectors at a time, a square of them: all sums stay in registers, and each vector is converted once for many.
// Stripes are in parts that the processor has registers for: GCC moves longer ones through memory.
#if defined(__AVX512F__)
constexpr int kSide = 4, kParts = 1;
#else
constexpr int kSide = 2, kParts = 2;
#endif
constexpr int kPart = kStripes / kParts;

typedef float StripeFloats __attribute__((vector_size(4 * kPart), aligned(4), may_alias));
typedef double StripeDoubles __attribute__((vector_size(8 * kPart)));

// Written, not returned: how 64 bytes are returned depends on the variant's instructions, which compilers warn of.
void widen(const float* x, StripeDoubles& to) {
  to = __builtin_convertvector(*reinterpret_cast<const StripeFloats*>(x), StripeDoubles);
}

using Sums = std::array<std::array<double, kSide>, kSide>;

// sums[a][b] = the inner product of x[a] and y[b].
template <int A, int B>
void square(const float* const* x, const float* const* y, int64_t n, Sums& sums) {
  StripeDoubles acc[A][B][kParts] = {};
  int64_t i = 0;
  for (; i + kStripes <= n; i += kStripes) {
    StripeDoubles wide[B][kParts];
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
#pragma GCC unroll 2
      for (int p = 0; p < kParts; ++p) widen(y[b] + i + p * kPart, wide[b][p]);
    }
#pragma GCC unroll 4
    for (int a = 0; a < A; ++a) {
      StripeDoubles v[kParts];
#pragma GCC unroll 2
      for (int p = 0; p < kParts; ++p) widen(x[a] + i + p * kPart, v[p]);
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) {
#pragma GCC unroll 2
        for (int p = 0; p < kParts; ++p) acc[a][b][p] += v[p] * wide[b][p];
      }
    }
  }
  for (int a = 0; a < A; ++a) {
    for (int b = 0; b < B; ++b) {
      for (int64_t k = i; k < n; ++k) {
        acc[a][b][(k - i) / kPart][(k - i) % kPart] += static_cast<double>(x[a][k]) * y[b][k];
      }
      double sum = 0;
      for (int s = 0; s < kStripes; ++s) sum += acc[a][b][s / kPart][s % kPart];
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

void multiply_factors(Precision precision, int64_t m, int64_t n, int64_t k, const Factor& a, const Factor& b, bool add,
                      float* c, ptrdiff_t ldc) {
  if (m <= 0 || n <= 0) return;
  const auto product = precision == Precision::kFloat32 ? multiply_as<Exact, Plain, Plain>
                       : a.operands && b.operands       ? multiply_as<Rounded, Operand, Operand>
                       : a.operands                     ? multiply_as<Rounded, Operand, Plain>
                       : b.operands                     ? multiply_as<Rounded, Plain, Operand>
                                                        : multiply_as<Rounded, Plain, Plain>;
  product(m, n, k, a, b, add, c, ldc);
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
