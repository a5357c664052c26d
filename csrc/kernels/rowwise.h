// What happens to rows between the matrix products: normalisation, activation, and the bookkeeping of embeddings,
// residuals and biases. Sums run in row order whatever the number of threads.
#pragma once

#include <cstdint>

#include "kernels/isa.h"
#include "kernels/precision.h"

namespace gyre {

// Results that products read are operands (gemm.h) of a precision: rows are converted while they are in the cache. In
// f32 they are plain rows.

// RMSNorm (Zhang & Sennrich 2019): y = w * x / sqrt(mean(x^2) + eps), row by row, as operands.
//
// In f32 y may be x. rstd (one value per row: 1 / sqrt(mean(x^2) + eps)) may be null.
GYRE_KERNEL(void, rms_norm, const float* x, int64_t rows, int64_t width, const float* weight, float eps,
            Precision precision, float* y, float* rstd);

// sum = x + delta (sum may be x), then rms_norm(sum).
GYRE_KERNEL(void, add_rms_norm, const float* x, const float* delta, int64_t rows, int64_t width, const float* weight,
            float eps, Precision precision, float* sum, float* y, float* rstd);

// Adds to dx and dweight (may be null) the gradients of rms_norm from dy. The order of additions into dweight does not
// depend on threads.
GYRE_KERNEL(void, rms_norm_backward, const float* x, const float* rstd, const float* weight, const float* dy,
            int64_t rows, int64_t width, float* dx, float* dweight);

// One row; the building blocks of the functions above and of the per-head norm. `row_backward` overwrites dx when `add`
// is false.
float rms_norm_row(const float* x, int64_t width, const float* weight, float eps, float* y);
void rms_norm_row_backward(const float* x, float rstd, const float* weight, const float* dy, int64_t width, bool add,
                           float* dx, float* dweight);

// SwiGLU and GeGLU (Shazeer 2020): act = activation(gate) * up, with gate and up side by side in one row of 2 * width.
//
// act[rows, width] as operands from gate_up[rows, 2 * width], which is of type `kept`. activation: gyre_activation.
// keep: gate_up in the precision's type is written there; null: nowhere.
GYRE_KERNEL(void, glu, int activation, const float* gate_up, int64_t rows, int64_t width, Precision precision,
            float* act, Precision kept, float* keep);

// d_gate_up[rows, 2 * width] (overwritten) from d_act[rows, width] and gate_up of the precision's type: as operands,
// and as it is where d_gate_up is not null.
GYRE_KERNEL(void, glu_backward, int activation, const float* gate_up, const float* d_act, int64_t rows, int64_t width,
            Precision precision, float* d_gate_up, float* operands);

// out[r] = table[ids[r]], rows of `width`, rounded to the precision.
GYRE_KERNEL(void, gather_rows, const float* table, int64_t width, const int32_t* ids, int64_t rows, Precision precision,
            float* out);

// table[ids[r]] += d[r], in row order.
GYRE_KERNEL(void, scatter_add_rows, const float* d, int64_t width, const int32_t* ids, int64_t rows, float* table);

// out = a + b elementwise (out may be either).
GYRE_KERNEL(void, add, const float* a, const float* b, int64_t count, float* out);

// x *= by.
GYRE_KERNEL(void, scale, float* x, int64_t count, float by);

// logits[r, c] (row stride ld) become cap · tanh(logit · by / cap), or logit · by where cap is 0.
GYRE_KERNEL(void, bend_logits, float* logits, int64_t rows, int64_t columns, int64_t ld, float by, float cap);
// d, the gradient of one row of bent logits, becomes that of the logits.
GYRE_KERNEL(void, bend_backward, const float* bent, int64_t columns, float by, float cap, float* d);

// f32 numbers from bf16.
GYRE_KERNEL(void, widen, const uint16_t* x, int64_t count, float* y);

// sums[j] += sum over rows of d[r][j]: the gradient of a bias.
GYRE_KERNEL(void, add_column_sums, const float* d, int64_t rows, int64_t width, float* sums);

}  // namespace gyre
