// RMSNorm (Zhang & Sennrich 2019): y = w * x / sqrt(mean(x^2) + eps), row by row.
#pragma once

#include <cstdint>

namespace gyre {

// y may be x. rstd (one value per row: 1 / sqrt(mean(x^2) + eps)) may be null.
void rms_norm(const float* x, int64_t rows, int64_t width, const float* weight, float eps, float* y, float* rstd);

// sum = x + delta (sum may be x), then y = rms_norm(sum).
void add_rms_norm(const float* x, const float* delta, int64_t rows, int64_t width, const float* weight, float eps,
                  float* sum, float* y, float* rstd);

// Adds to dx and dweight the gradients of rms_norm from dy. The order of additions into dweight does not depend on
// threads.
void rms_norm_backward(const float* x, const float* rstd, const float* weight, const float* dy, int64_t rows,
                       int64_t width, float* dx, float* dweight);

// One row; the building blocks of the functions above and of the per-head norm. `row_backward` overwrites dx when `add`
// is false.
float rms_norm_row(const float* x, int64_t width, const float* weight, float eps, float* y);
void rms_norm_row_backward(const float* x, float rstd, const float* weight, const float* dy, int64_t width, bool add,
                           float* dx, float* dweight);

}  // namespace gyre
