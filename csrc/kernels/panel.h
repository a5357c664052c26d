// Register tiles over panels: what products.cc, gemm.cc and the attention kernels are made of.
#pragma once

#include "kernels/tile.h"
#include "kernels/vec.h"

namespace gyre {

#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kTileRows = 8, kTileVectors = 3;  // 24 of 32 registers accumulate
#else
inline constexpr int kTileRows = 6, kTileVectors = 2;  // 12 of 16
#endif

inline constexpr int kPanelVectors = static_cast<int>(kPanel) / kLanes;
static_assert(kPanel % kLanes == 0);

// What a tile multiplies. A step takes one row of the panel:
//   Floats    one inner position, f32 (or bf16 numbers widened before)
//   Widened   two positions, a word of two bf16 numbers for each column, which are widened in registers; a holds f32
//             numbers, the odd position before the even one
//   Paired    two positions, words of two bf16 numbers in a and in the panel, by the processor's instruction
struct Floats;
struct Widened;
struct Paired;
// The instruction, or what gives the same bits.
#if defined(__AVX512BF16__)
using Pairs = Paired;
#else
using Pairs = Widened;
#endif

// c[r][j] = start[r][j] + sum over i < k of a[r][i] * b[i * ldb + j], for r < rows (any number) and j < vectors *
// kLanes. start (row stride start_row, 0 = the same row for all) may be c itself, or null for zero. Serial.
void multiply_tile(int64_t rows, int64_t vectors, Strided a, const float* b, ptrdiff_t ldb, int64_t k,
                   const float* start, ptrdiff_t start_row, float* c, ptrdiff_t ldc);

// multiply_tile for b = a panel of `steps` rows, which also brings `next`, where the next panel lies, nearer. a_tile:
// 0, or the distance of one tile of kTileRows rows to the next where it is not kTileRows * a.row. a.column of Widened
// is 1.
template <class Engine>
void multiply_panel(int64_t rows, int64_t vectors, Strided a, ptrdiff_t a_tile, const float* panel, int64_t steps,
                    const float* next, const float* start, ptrdiff_t start_row, float* c, ptrdiff_t ldc);

}  // namespace gyre
