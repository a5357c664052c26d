// SwiGLU (Shazeer 2020): act = silu(gate) * up, with gate and up side by side in one row of 2 * width.
#pragma once

#include <cstdint>

namespace gyre {

// act[rows, width] from gate_up[rows, 2 * width].
void swiglu(const float* gate_up, int64_t rows, int64_t width, float* act);

// d_gate_up[rows, 2 * width] (overwritten) from d_act[rows, width].
void swiglu_backward(const float* gate_up, const float* d_act, int64_t rows, int64_t width, float* d_gate_up);

}  // namespace gyre
