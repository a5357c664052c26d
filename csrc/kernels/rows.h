// Row and column bookkeeping around the linear layers. Sums run in row order whatever the number of threads.
#pragma once

#include <cstdint>

namespace gyre {

// out[r] = table[ids[r]], rows of `width`.
void gather_rows(const float* table, int64_t width, const int32_t* ids, int64_t rows, float* out);

// table[ids[r]] += d[r], in row order.
void scatter_add_rows(const float* d, int64_t width, const int32_t* ids, int64_t rows, float* table);

// out = a + b elementwise (out may be either).
void add(const float* a, const float* b, int64_t count, float* out);

// sums[j] += sum over rows of d[r][j]: the gradient of a bias.
void add_column_sums(const float* d, int64_t rows, int64_t width, float* sums);

}  // namespace gyre
