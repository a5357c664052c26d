#include "kernels/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/vec.h"

namespace gyre {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The lanes of the last vector of a row that are beyond its end become minus infinity.
vf load_tail(const float* p, int64_t n) {
  const vf v = load_first(p, n);
  return n < kLanes && n > 0 ? (lane_index() < static_cast<int32_t>(n) ? v : splat(-kInfinity)) : v;
}

}  // namespace

void add_logits(SoftmaxRow& row, const float* logits, int64_t n, float inverse_temperature, bool want_mean) {
  vf lane_max = splat(-kInfinity);
  for (int64_t j = 0; j < n; j += kLanes) lane_max = maximum(lane_max, load_tail(logits + j, n - j));
  const float max = reduce_max(lane_max) * inverse_temperature;
  // Nothing but minus infinity (or NaN, which must not get lost): no probability, and no maximum to shift by.
  if (max == -kInfinity) {
    if (std::any_of(logits, logits + n, [](float x) { return std::isnan(x); })) {
      row.sum = std::numeric_limits<float>::quiet_NaN();
      row.empty = false;
    }
    return;
  }

  const vf scale = splat(inverse_temperature), shift = splat(-max);
  vf sums{}, firsts{};
  for (int64_t j = 0; j < n; j += kLanes) {
    const vf y = load_tail(logits + j, n - j) * scale + shift;
    const vf e = exponential(y);
    sums += e;
    // 0·(-inf) beyond the row's end.
    if (want_mean) firsts += n - j < kLanes ? (lane_index() < static_cast<int32_t>(n - j) ? e * y : vf{}) : e * y;
  }
  const float sum = reduce_sum(sums), first = reduce_sum(firsts);
  if (row.empty) {
    row = {.max = max, .sum = sum, .first = first, .empty = false};
    return;
  }
  const float top = max > row.max ? max : row.max, before = row.max - top, here = max - top;
  const float weight_before = std::exp(before), weight_here = std::exp(here);
  row.first = weight_before * (row.first + before * row.sum) + weight_here * (first + here * sum);
  row.sum = weight_before * row.sum + weight_here * sum;
  row.max = top;
}

RowScore score_row(const float* logits, int64_t vocab, float inverse_temperature, bool want_entropy, float* running) {
  SoftmaxRow row;
  std::vector<float> maxima;
  for (int64_t first = 0; first < vocab; first += kSoftmaxBlock) {
    add_logits(row, logits + first, std::min(kSoftmaxBlock, vocab - first), inverse_temperature, want_entropy);
    if (!running) continue;
    running[maxima.size()] = row.sum;
    maxima.push_back(row.max);
  }
  for (size_t b = 0; b < maxima.size(); ++b) {  // all relative to the last maximum; rounding must not make them fall
    running[b] *= std::exp(maxima[b] - row.max);
    if (b > 0) running[b] = std::max(running[b], running[b - 1]);
  }
  return {.logsumexp = row.logsumexp(), .mean_logit = want_entropy ? row.mean() : 0, .max = row.max};
}

void softmax_gradient(const float* logits, int64_t n, float inverse_temperature, const SoftmaxGradient& g, float* out) {
  const vf scale = splat(inverse_temperature), shift = splat(-g.logsumexp);
  const vf d_logprob = splat(g.d_logprob), d_entropy = splat(g.d_entropy), mean = splat(g.mean);
  for (int64_t j = 0; j < n; j += kLanes) {
    const vf x = load_first(logits + j, n - j) * scale;
    const vf p = exponential(x + shift);
    store_first(out + j, -p * (d_logprob + d_entropy * (x - mean)) * scale, n - j);
  }
}

}  // namespace gyre
