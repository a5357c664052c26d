// Products whose operands change with every call: the two matrix products of a linear layer's backward pass, and inner
// products of gradients.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/isa.h"
#include "kernels/precision.h"
#include "kernels/tile.h"

namespace gyre {

// A factor: number i of row r is data[r * row + i * column], and one of the strides is 1. Operands: what
// to_operands() (gemm.h) makes of rows, of which the stride that is not 1 counts floats and 1 means one number;
// `first` is the first number of each row that counts. It is even, and numbers that are no even count end their row.
struct Factor {
  const float* data;
  ptrdiff_t row, column;
  bool operands = false;
  int64_t first = 0;
};

// c[m, n] = a[m, k] · b[k, n], added to c when `add`. b and c are row-major, c with row stride ldc. Every element
// is one chain of fused multiply-adds over k, in ascending order in f32 and in that of precision.h in bf16: the same
// bits for any number of threads. Memory beyond the arguments: a block of b of 3 KiB per column, and 0.3 MiB per
// thread.
GYRE_KERNEL(void, multiply_factors, Precision precision, int64_t m, int64_t n, int64_t k, const Factor& a,
            const Factor& b, bool add, float* c, ptrdiff_t ldc);
inline void multiply(Precision precision, int64_t m, int64_t n, int64_t k, Strided a, const float* b, ptrdiff_t ldb,
                     bool add, float* c, ptrdiff_t ldc) {
  multiply_factors(precision, m, n, k, {a.data, a.row, a.column}, {b, ldb, 1}, add, c, ldc);
}

// In f64: Σ_i a[i]·b[i] over n entries for all pairs a <= b of vectors, row by row of the upper triangle. Product i is
// added to stripe i mod 8 and the stripes in order at the end: the same bits whatever other vectors there are.
GYRE_KERNEL(void, dot_pairs, std::span<const float* const> vectors, int64_t n, double* out);

}  // namespace gyre
