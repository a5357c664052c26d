#include "kernels/rowwise.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gyre.h"
#include "kernels/bf16.h"
#include "kernels/buffer.h"
#include "kernels/gemm.h"
#include "kernels/parallel.h"
#include "kernels/vec.h"

namespace gyre {
namespace {

constexpr int64_t kGrainFloats = 16384;
constexpr int64_t kPartialRows = 64;  // rows that share one partial dweight, whatever the number of threads

int64_t norm_grain(int64_t width) { return std::max<int64_t>(1, kGrainFloats / width); }

constexpr int64_t kStrip = 64;  // columns per task where every task walks all rows
constexpr int64_t kEntries = 4096;

int64_t glu_grain(int64_t width) { return std::max<int64_t>(1, 4096 / width); }

vf sigmoid(vf x) { return 1.0f / (1.0f + exponential(-x)); }

// x · sigmoid(gate_of(x)) is the activation: SiLU, or GELU by tanh (Hendrycks & Gimpel 2016), whose tanh is a sigmoid.
template <int kActivation>
vf gate_of(vf x) {
  if constexpr (kActivation == GYRE_SILU) return x;
  return x * (1.5957691216f + 0.0713548163f * (x * x));
}
// Its derivative.
template <int kActivation>
vf gate_slope(vf x) {
  if constexpr (kActivation == GYRE_SILU) return splat(1.0f);
  return 1.5957691216f + 0.2140644488f * (x * x);
}

template <int kActivation>
void glu_row(const float* gate, int64_t width, float* act) {
  const float* up = gate + width;
  for (int64_t j = 0; j < width; j += kLanes) {
    const int64_t n = width - j;
    const vf g = load_first(gate + j, n);
    store_first(act + j, g * sigmoid(gate_of<kActivation>(g)) * load_first(up + j, n), n);
  }
}

template <int kActivation>
void glu_row_backward(const float* gate, const float* dy, int64_t width, float* d_gate) {
  const float* up = gate + width;
  float* d_up = d_gate + width;
  for (int64_t j = 0; j < width; j += kLanes) {
    const int64_t n = width - j;
    const vf g = load_first(gate + j, n), s = sigmoid(gate_of<kActivation>(g)), d = load_first(dy + j, n);
    const vf act = g * s;
    store_first(d_up + j, d * act, n);
    vf bend = act * (1.0f - s);
    if constexpr (kActivation != GYRE_SILU) bend *= gate_slope<kActivation>(g);
    store_first(d_gate + j, d * load_first(up + j, n) * (s + bend), n);
  }
}

// Calls row(r, y) for all rows, whose y become operands.
template <class Row>
void for_operands(int64_t rows, int64_t width, int64_t grain, Precision precision, float* operands, Row&& row) {
  const int64_t each = operand_width(precision, width);
  parallel_for(rows, grain, [&](int64_t r) {
    if (precision == Precision::kFloat32) return row(r, operands + r * each);
    thread_local Buffer buffer;
    buffer.reserve(width);
    row(r, buffer.data());
    to_operand(buffer.data(), width, operands + r * each);
  });
}

// Row r of numbers of a type, widened in a buffer that is valid until the thread's next call.
const float* kept_row(const float* rows, int64_t r, int64_t width, Precision kept) {
  if (kept == Precision::kFloat32) return rows + r * width;
  thread_local Buffer buffer;
  buffer.reserve(width);
  float* to = buffer.data();
  const uint16_t* from = reinterpret_cast<const uint16_t*>(rows) + r * width;
  int64_t j = 0;
  for (; j + kLanes <= width; j += kLanes) store(to + j, load_elements(from + j));
  for (; j < width; ++j) to[j] = from_bf16(from[j]);
  return to;
}

}  // namespace

float rms_norm_row(const float* x, int64_t width, const float* weight, float eps, float* y) {
  vf squares{};
  for (int64_t j = 0; j < width; j += kLanes) {
    const vf v = load_first(x + j, width - j);
    squares += v * v;
  }
  const float rstd = 1.0f / std::sqrt(reduce_sum(squares) / static_cast<float>(width) + eps);
  for (int64_t j = 0; j < width; j += kLanes) {
    const int64_t n = width - j;
    store_first(y + j, load_first(x + j, n) * rstd * load_first(weight + j, n), n);
  }
  return rstd;
}

void rms_norm_row_backward(const float* x, float rstd, const float* weight, const float* dy, int64_t width, bool add,
                           float* dx, float* dweight) {
  vf dots{};
  for (int64_t j = 0; j < width; j += kLanes) {
    const int64_t n = width - j;
    const vf v = load_first(x + j, n), g = load_first(dy + j, n);
    dots += v * (g * load_first(weight + j, n));
    store_first(dweight + j, load_first(dweight + j, n) + g * (v * rstd), n);
  }
  const float shrink = reduce_sum(dots) * rstd * rstd * rstd / static_cast<float>(width);
  for (int64_t j = 0; j < width; j += kLanes) {
    const int64_t n = width - j;
    vf d = load_first(dy + j, n) * load_first(weight + j, n) * rstd - load_first(x + j, n) * shrink;
    if (add) d += load_first(dx + j, n);
    store_first(dx + j, d, n);
  }
}

void rms_norm(const float* x, int64_t rows, int64_t width, const float* weight, float eps, Precision precision,
              float* operands, float* rstd) {
  for_operands(rows, width, norm_grain(width), precision, operands, [&](int64_t r, float* y) {
    const float value = rms_norm_row(x + r * width, width, weight, eps, y);
    if (rstd) rstd[r] = value;
  });
}

void add_rms_norm(const float* x, const float* delta, int64_t rows, int64_t width, const float* weight, float eps,
                  Precision precision, float* sum, float* operands, float* rstd) {
  for_operands(rows, width, norm_grain(width), precision, operands, [&](int64_t r, float* y) {
    const int64_t at = r * width;
    for (int64_t j = 0; j < width; ++j) sum[at + j] = x[at + j] + delta[at + j];
    const float value = rms_norm_row(sum + at, width, weight, eps, y);
    if (rstd) rstd[r] = value;
  });
}

void rms_norm_backward(const float* x, const float* rstd, const float* weight, const float* dy, int64_t rows,
                       int64_t width, float* dx, float* dweight) {
  const int64_t parts = ceil_div(rows, kPartialRows);
  std::vector<float> partial(static_cast<size_t>(parts * width), 0.0f);
  parallel_for(parts, 1, [&](int64_t p) {
    for (int64_t r = p * kPartialRows; r < std::min(rows, (p + 1) * kPartialRows); ++r) {
      rms_norm_row_backward(x + r * width, rstd[r], weight, dy + r * width, width, true, dx + r * width,
                            &partial[p * width]);
    }
  });
  for (int64_t p = 0; dweight && p < parts; ++p) {
    for (int64_t j = 0; j < width; ++j) dweight[j] += partial[p * width + j];
  }
}

void glu(int activation, const float* gate_up, int64_t rows, int64_t width, Precision precision, float* operands,
         Precision kept, float* keep) {
  const auto row = activation == GYRE_SILU ? glu_row<GYRE_SILU> : glu_row<GYRE_GELU_TANH>;
  for_operands(rows, width, glu_grain(width), precision, operands, [&](int64_t r, float* act) {
    const float* gate = kept_row(gate_up, r, 2 * width, kept);
    row(gate, width, act);
    if (keep == nullptr) return;
    if (precision == Precision::kFloat32) {
      std::copy_n(gate, 2 * width, keep + r * 2 * width);
    } else {
      join_pairs(gate, 2 * width, keep + r * width);
    }
  });
}

void glu_backward(int activation, const float* gate_up, const float* d_act, int64_t rows, int64_t width,
                  Precision precision, float* d_gate_up, float* operands) {
  const auto row = activation == GYRE_SILU ? glu_row_backward<GYRE_SILU> : glu_row_backward<GYRE_GELU_TANH>;
  for_operands(rows, 2 * width, glu_grain(width), precision, operands, [&](int64_t r, float* d) {
    row(kept_row(gate_up, r, 2 * width, precision), d_act + r * width, width, d);
    if (d_gate_up != nullptr) std::copy_n(d, 2 * width, d_gate_up + r * 2 * width);
  });
}

void gather_rows(const float* table, int64_t width, const int32_t* ids, int64_t rows, Precision precision, float* out) {
  parallel_for(rows, std::max<int64_t>(1, 16384 / width), [&](int64_t r) {
    const float* from = table + ids[r] * width;
    float* to = out + r * width;
    std::copy_n(from, width, to);
    if (precision == Precision::kBfloat16) round_row(to, width);
  });
}

void widen(const uint16_t* x, int64_t count, float* y) {
  parallel_for(ceil_div(count, kGrainFloats), 1, [&](int64_t i) {
    const int64_t last = std::min(count, (i + 1) * kGrainFloats);
    int64_t j = i * kGrainFloats;
    for (; j + kLanes <= last; j += kLanes) store(y + j, load_elements(x + j));
    for (; j < last; ++j) y[j] = from_bf16(x[j]);
  });
}

void scatter_add_rows(const float* d, int64_t width, const int32_t* ids, int64_t rows, float* table) {
  parallel_for(ceil_div(width, kStrip), std::max<int64_t>(1, 256 / std::max<int64_t>(rows, 1)), [&](int64_t s) {
    const int64_t first = s * kStrip, last = std::min(width, first + kStrip);
    for (int64_t r = 0; r < rows; ++r) {
      float* to = table + ids[r] * width;
      for (int64_t j = first; j < last; ++j) to[j] += d[r * width + j];
    }
  });
}

void add(const float* a, const float* b, int64_t count, float* out) {
  parallel_for(ceil_div(count, kEntries), 4, [&](int64_t i) {
    const int64_t last = std::min(count, (i + 1) * kEntries);
    for (int64_t j = i * kEntries; j < last; ++j) out[j] = a[j] + b[j];
  });
}

void scale(float* x, int64_t count, float by) {
  parallel_for(ceil_div(count, kEntries), 4, [&](int64_t i) {
    const int64_t last = std::min(count, (i + 1) * kEntries);
    for (int64_t j = i * kEntries; j < last; ++j) x[j] *= by;
  });
}

void bend_logits(float* logits, int64_t rows, int64_t columns, int64_t ld, float by, float cap) {
  parallel_for(rows, std::max<int64_t>(1, 4096 / columns), [&](int64_t r) {
    float* row = logits + r * ld;
    for (int64_t j = 0; j < columns; j += kLanes) {
      const int64_t n = columns - j;
      const vf x = load_first(row + j, n) * by;
      store_first(row + j, cap > 0 ? cap * hyperbolic_tangent(x / cap) : x, n);
    }
  });
}

void bend_backward(const float* bent, int64_t columns, float by, float cap, float* d) {
  for (int64_t j = 0; j < columns; ++j) {
    const float bend = cap > 0 ? bent[j] / cap : 0;
    d[j] *= by * (1.0f - bend * bend);
  }
}

void add_column_sums(const float* d, int64_t rows, int64_t width, float* sums) {
  parallel_for(ceil_div(width, kStrip), std::max<int64_t>(1, 256 / std::max<int64_t>(rows, 1)), [&](int64_t s) {
    const int64_t first = s * kStrip, n = std::min(kStrip, width - first);
    float total[kStrip] = {};
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = d + r * width + first;
      for (int64_t j = 0; j < n; ++j) total[j] += row[j];
    }
    for (int64_t j = 0; j < n; ++j) sums[first + j] += total[j];
  });
}

}  // namespace gyre
