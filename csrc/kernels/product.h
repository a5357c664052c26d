// Matrix products whose operands change with every call: the two products of a linear layer's backward pass.
#pragma once

#include <cstdint>

#include "kernels/tile.h"

namespace gyre {

// c[m, n] = a[m, k] · b[k, n], added to c when `add`. b and c are row-major with row strides ldb and ldc. Every element
// is one chain of fused multiply-adds over k in ascending order: the same bits for any number of threads. Memory beyond
// the arguments: a block of b of 3 KiB per column, and 0.3 MiB per thread.
void multiply(int64_t m, int64_t n, int64_t k, Strided a, const float* b, ptrdiff_t ldb, bool add, float* c,
              ptrdiff_t ldc);

}  // namespace gyre
