// PPO's clipped surrogate. With d = clamp(logprob - old, ±20), ratio = e^d and advantage A:
//   max(-A·ratio, -A·clamp(ratio, 1 - clip_low, 1 + clip_high)), and for A < 0 at most -A·clip_dual
// (Schulman et al. 2017; asymmetric clip: DAPO, Yu et al. 2025; dual clip: Ye et al. 2020).
#include <algorithm>
#include <cmath>

#include "train/losses/loss.h"

namespace gyre {
namespace {

TokenLoss ppo(const LossToken& t, const double* constants) {
  const double low = 1 - constants[0], high = 1 + constants[1], dual = constants[2];
  const double log_ratio = t.logprob - t.old_logprob;
  const double ratio = std::exp(std::clamp(log_ratio, -kLogRatioLimit, kLogRatioLimit));
  const double plain = -t.advantage * ratio;
  const double clipped = -t.advantage * std::clamp(ratio, low, high);

  TokenLoss out{.value = plain, .derivative = std::abs(log_ratio) <= kLogRatioLimit ? plain : 0};
  if (clipped > plain) {  // only possible outside the clip range, where the clipped branch is flat
    out = {.value = clipped, .derivative = 0, .clipped = true};
  }
  if (dual > 0 && t.advantage < 0 && out.value > -t.advantage * dual) {
    out.value = -t.advantage * dual;
    out.derivative = 0;
    out.clipped_lower = true;
  }
  return out;
}

}  // namespace

extern const PolicyLoss kPpo{
    {.name = "ppo",
     .compares = true,
     .constants = {{"clip_low", "[0,1]", 0.2}, {"clip_high", "[0,)", 0.28}, {"clip_dual", "[0,)", 3.0}}},
    ppo};

}  // namespace gyre
