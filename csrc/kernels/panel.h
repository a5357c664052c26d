// Register tiles over panels: what products.cc, gemm.cc and the attention kernels are made of.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/buffer.h"
#include "kernels/precision.h"
#include "kernels/tile.h"
#include "kernels/vec.h"

namespace gyre {

#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kTileRows = 8, kTileVectors = 3;  // 24 of 32 registers accumulate
#else
inline constexpr int kTileRows = 6, kTileVectors = 2;  // 12 of 16
#endif

inline constexpr int kLineFloats = 16;  // a cache line of 64 bytes
inline constexpr int kPanelVectors = static_cast<int>(kPanel) / kLanes;
static_assert(kPanel % kLanes == 0);
// Rows of a tile that takes all columns of a panel at once.
inline constexpr int kWideRows = kTileRows * kTileVectors / kPanelVectors;

// Whole panels that a tile of so many rows takes at once: where rows are few, memory decides, and a thread that reads
// it in several places waits less.
inline constexpr int kAcrossPanels = 4, kAcrossRows = std::max(1, kWideRows / 4);
constexpr int panels_across(int64_t rows) {
  return rows > kAcrossRows ? 1 : std::min(kAcrossPanels, kWideRows / static_cast<int>(rows));
}

// Processors that read one panel after the other fastest without being told what comes next, and fetch into the
// second-level cache at most: AMD's, which have AVX512_BF16 and no matrix unit.
#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
inline constexpr bool kReadsAhead = true;
#else
inline constexpr bool kReadsAhead = false;
#endif

// What a tile multiplies. A step takes one row of the panel:
//   Floats    one inner position, f32 (or bf16 numbers widened before)
//   Widened   two positions, a word of two bf16 numbers for each column, which are widened in registers; a holds f32
//             numbers, the odd position before the even one
//   Paired    two positions, words of two bf16 numbers in a and in the panel, by the processor's instruction
//   Blocked   the same words, kChainSteps steps at a time in the order of the matrix unit (precision.h)
struct Floats;
struct Widened;
struct Paired;
struct Blocked;
#if defined(__AVX512BF16__)
using RegisterPairs = Paired;  // in tiles of ordinary registers
#else
using RegisterPairs = Widened;
#endif
#if defined(__AMX_BF16__)
using Pairs = Blocked;
#else
using Pairs = RegisterPairs;
#endif
inline constexpr bool kWords = !std::is_same_v<Pairs, Widened>;

// Inner positions in bf16 may be cut after these many steps, counted from the product's first, and nowhere else.
inline constexpr int64_t kChainSteps = 16;

// Lives while a thread multiplies pairs.
#if defined(__AMX_BF16__)
class PairsScope {
 public:
  PairsScope() = default;
  PairsScope(const PairsScope&) = delete;
  PairsScope& operator=(const PairsScope&) = delete;
  ~PairsScope();  // gives the tile registers back, which are large to save
};
#else
using PairsScope = FlushDenormals;
#endif
// Of an engine.
template <class Engine>
using ScopeOf = std::conditional_t<std::is_same_v<Engine, Floats>, char, PairsScope>;

// c[r][j] = start[r][j] + sum over i < steps of a[r][i] * b[i * ldb + j], for r < rows (any number) and j < vectors *
// kLanes. start (row stride start_row, 0 = the same row for all) may be c itself, or null for zero. Serial. The engine:
// Floats, Widened or Paired.
template <class Engine>
void multiply_tile(int64_t rows, int64_t vectors, Strided a, const float* b, ptrdiff_t ldb, int64_t steps,
                   const float* start, ptrdiff_t start_row, float* c, ptrdiff_t ldc);

// multiply_tile for b = a panel of `steps` rows, which also brings `next`, where the next panel lies, nearer. a_tile:
// 0, or the distance of one tile of kTileRows rows to the next where it is not kTileRows * a.row. a.column of Widened
// is 1, and of Blocked too, whose a_tile is 0.
template <class Engine>
void multiply_panel(int64_t rows, int64_t vectors, Strided a, ptrdiff_t a_tile, const float* panel, int64_t steps,
                    const float* next, const float* start, ptrdiff_t start_row, float* c, ptrdiff_t ldc);

// multiply_tile for a.column = 1, at most kAcrossRows rows and so many whole panels at once (panels_across), `stride`
// apart. Their columns follow each other in start and c.
template <class Engine>
void multiply_across(int64_t rows, int64_t panels, Strided a, const float* first, ptrdiff_t stride, int64_t steps,
                     const float* start, ptrdiff_t start_row, float* c, ptrdiff_t ldc);

// Calls multiply(vectors, start, start_row, c, ldc) for `width` columns. Where these are no whole number of vectors,
// the product goes through a buffer, so that c is never touched past its row.
template <class Multiply>
void multiply_columns(int64_t rows, int64_t width, const float* start, ptrdiff_t start_row, float* c, ptrdiff_t ldc,
                      Multiply&& multiply) {
  const int64_t vectors = ceil_div(width, kLanes);
  if (width % kLanes == 0) return multiply(vectors, start, start_row, c, ldc);
  thread_local Buffer buffer;
  buffer.reserve(rows * kPanel);
  float* const to = buffer.data();
  for (int64_t r = 0; start && r < rows; ++r) std::copy_n(start + r * start_row, width, to + r * kPanel);
  multiply(vectors, start ? to : nullptr, kPanel, to, kPanel);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(to + r * kPanel, width, c + r * ldc);
}

#if defined(__AMX_BF16__)
template <>  // blocked.cc
void multiply_panel<Blocked>(int64_t rows, int64_t vectors, Strided a, ptrdiff_t a_tile, const float* panel,
                             int64_t steps, const float* next, const float* start, ptrdiff_t start_row, float* c,
                             ptrdiff_t ldc);
#endif

}  // namespace gyre
