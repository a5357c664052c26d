#include "kernels/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

void SoftmaxRow::add(const float* logits, int64_t n, float inverse_temperature, bool want_mean) {
  vf lane_max = splat(-kInfinity);
  for (int64_t j = 0; j < n; j += kLanes) lane_max = maximum(lane_max, load_tail(logits + j, n - j));
  const float max = reduce_max(lane_max) * inverse_temperature;
  // Nothing but minus infinity (or NaN, which must not get lost): no probability, and no maximum to shift by.
  if (max == -kInfinity) {
    if (std::any_of(logits, logits + n, [](float x) { return std::isnan(x); })) {
      sum_ = std::numeric_limits<float>::quiet_NaN();
      empty_ = false;
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
  if (empty_) {
    max_ = max;
    sum_ = sum;
    first_ = first;
    empty_ = false;
    return;
  }
  const float top = max > max_ ? max : max_, before = max_ - top, here = max - top;
  const float weight_before = std::exp(before), weight_here = std::exp(here);
  first_ = weight_before * (first_ + before * sum_) + weight_here * (first + here * sum);
  sum_ = weight_before * sum_ + weight_here * sum;
  max_ = top;
}

float SoftmaxRow::logsumexp() const { return max_ + std::log(sum_); }

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
