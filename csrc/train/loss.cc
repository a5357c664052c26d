#include "train/losses/loss.h"

#include <algorithm>
#include <cmath>

namespace gyre {

constexpr double kK3Limit = 10.0;

TokenKl kl_term(const gyre_policy_loss& loss, double logprob, double ref_logprob) {
  const double gap = logprob - ref_logprob;
  TokenKl out{0, 0};
  switch (loss.kl) {
    case GYRE_KL_K1:
      out = {gap, 1};
      break;
    case GYRE_KL_ABS:
      out = {std::abs(gap), static_cast<double>((gap > 0) - (gap < 0))};
      break;
    case GYRE_KL_K2:
      out = {0.5 * gap * gap, gap};
      break;
    case GYRE_KL_K3: {
      const double z = std::clamp(-gap, -kLogRatioLimit, kLogRatioLimit);
      const double k3 = std::expm1(z) - z;
      out = k3 > kK3Limit ? TokenKl{kK3Limit, 0} : TokenKl{k3, -std::expm1(z)};  // so it is wherever z is clamped
      break;
    }
    default:
      break;
  }
  if (loss.kl_straight_through) out.derivative = gap;
  return out;
}

double outcomes_kl(std::span<const float> policy, std::span<const float> reference, std::span<double> slopes) {
  double kl = 0;
  for (size_t i = 0; i < policy.size(); ++i) {
    const double x = policy[i];
    slopes[i] = std::isinf(x) ? 0 : x - static_cast<double>(reference[i]);
    kl += std::exp(x) * slopes[i];
  }
  for (double& slope : slopes) slope -= kl;
  return kl;
}

TokenLoss value_term(double value, double return_, double old_value, double clip) {
  const double error = value - return_;
  TokenLoss out{.value = 0.5 * error * error, .derivative = error};
  if (clip > 0) {
    const double clipped_error = std::clamp(value, old_value - clip, old_value + clip) - return_;
    if (clipped_error * clipped_error > error * error) {  // outside the clip range: flat
      out = {.value = 0.5 * clipped_error * clipped_error, .derivative = 0, .clipped = true};
    }
  }
  return out;
}

}  // namespace gyre
