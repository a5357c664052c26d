#include "train/loss.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace gyre {
namespace {

constexpr double kK3Limit = 10.0;

void require(bool ok, const char* field, double got, const char* expected) {
  if (!ok) {
    throw std::invalid_argument(std::string("policy loss: ") + field + " is " + std::to_string(got) + ", expected " +
                                expected);
  }
}

bool non_negative(double x) { return std::isfinite(x) && x >= 0; }

}  // namespace

void validate(const gyre_policy_loss& loss) {
  require(loss.objective == GYRE_POLICY_PPO || loss.objective == GYRE_POLICY_NLL, "objective", loss.objective,
          "0 (PPO) or 1 (NLL)");
  require(std::isfinite(loss.temperature) && loss.temperature > 0, "temperature", loss.temperature, "a number > 0");
  require(non_negative(loss.clip_low) && loss.clip_low <= 1, "clip_low", loss.clip_low, "a number from 0 to 1");
  require(non_negative(loss.clip_high), "clip_high", loss.clip_high, "a number >= 0");
  require(loss.clip_dual == 0 || (std::isfinite(loss.clip_dual) && loss.clip_dual > 1), "clip_dual", loss.clip_dual,
          "0 (off) or a number > 1");
  require(std::isfinite(loss.entropy_coef), "entropy_coef", loss.entropy_coef, "a finite number");
  require(std::isfinite(loss.kl_coef), "kl_coef", loss.kl_coef, "a finite number");
  require(loss.kl >= GYRE_KL_NONE && loss.kl <= GYRE_KL_K3, "kl", loss.kl, "0 to 4 (none, k1, abs, k2, k3)");
}

TokenLoss policy_term(const gyre_policy_loss& loss, double logprob, double old_logprob, double advantage) {
  if (loss.objective == GYRE_POLICY_NLL) return {.value = -logprob, .derivative = -1};

  const double log_ratio = logprob - old_logprob;
  const double ratio = std::exp(std::clamp(log_ratio, -kLogRatioLimit, kLogRatioLimit));
  const double slope = std::abs(log_ratio) <= kLogRatioLimit ? -advantage * ratio : 0;
  const double low = 1 - loss.clip_low, high = 1 + loss.clip_high;
  const double plain = -advantage * ratio;
  const double clipped = -advantage * std::clamp(ratio, low, high);

  TokenLoss out{.value = plain, .derivative = slope};
  if (clipped > plain) {  // only possible outside the clip range, where the clipped branch is flat
    out = {.value = clipped, .derivative = 0, .clipped = true};
  }
  if (loss.clip_dual > 0 && advantage < 0 && out.value > -advantage * loss.clip_dual) {
    out.value = -advantage * loss.clip_dual;
    out.derivative = 0;
    out.clipped_lower = true;
  }
  return out;
}

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
