#include "kernels/swiglu.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/vec.h"

namespace gyre {
namespace {

int64_t row_grain(int64_t width) { return std::max<int64_t>(1, 4096 / width); }

vf sigmoid(vf x) { return 1.0f / (1.0f + exponential(-x)); }

}  // namespace

void swiglu(const float* gate_up, int64_t rows, int64_t width, float* act) {
  parallel_for(rows, row_grain(width), [&](int64_t r) {
    const float* gate = gate_up + r * 2 * width;
    const float* up = gate + width;
    float* y = act + r * width;
    for (int64_t j = 0; j < width; j += kLanes) {
      const int64_t n = width - j;
      const vf g = load_first(gate + j, n);
      store_first(y + j, g * sigmoid(g) * load_first(up + j, n), n);
    }
  });
}

void swiglu_backward(const float* gate_up, const float* d_act, int64_t rows, int64_t width, float* d_gate_up) {
  parallel_for(rows, row_grain(width), [&](int64_t r) {
    const float* gate = gate_up + r * 2 * width;
    const float* up = gate + width;
    const float* dy = d_act + r * width;
    float* d_gate = d_gate_up + r * 2 * width;
    float* d_up = d_gate + width;
    for (int64_t j = 0; j < width; j += kLanes) {
      const int64_t n = width - j;
      const vf g = load_first(gate + j, n), s = sigmoid(g), d = load_first(dy + j, n);
      const vf silu = g * s;
      store_first(d_up + j, d * silu, n);
      store_first(d_gate + j, d * load_first(up + j, n) * (s + silu * (1.0f - s)), n);
    }
  });
}

}  // namespace gyre
