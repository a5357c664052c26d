#include "kernels/norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/vec.h"

namespace gyre {
namespace {

constexpr int64_t kGrainFloats = 16384;
constexpr int64_t kPartialRows = 64;  // rows that share one partial dweight, whatever the number of threads

int64_t row_grain(int64_t width) { return std::max<int64_t>(1, kGrainFloats / width); }

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

void rms_norm(const float* x, int64_t rows, int64_t width, const float* weight, float eps, float* y, float* rstd) {
  parallel_for(rows, row_grain(width), [&](int64_t r) {
    const float value = rms_norm_row(x + r * width, width, weight, eps, y + r * width);
    if (rstd) rstd[r] = value;
  });
}

void add_rms_norm(const float* x, const float* delta, int64_t rows, int64_t width, const float* weight, float eps,
                  float* sum, float* y, float* rstd) {
  parallel_for(rows, row_grain(width), [&](int64_t r) {
    const int64_t at = r * width;
    for (int64_t j = 0; j < width; ++j) sum[at + j] = x[at + j] + delta[at + j];
    const float value = rms_norm_row(sum + at, width, weight, eps, y + at);
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
  for (int64_t p = 0; p < parts; ++p) {
    for (int64_t j = 0; j < width; ++j) dweight[j] += partial[p * width + j];
  }
}

}  // namespace gyre
