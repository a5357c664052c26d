// PPO's clipped surrogate of the ratio to the proximal policy (Schulman et al. 2017; asymmetric clip: DAPO, Yu et al.
// 2025; dual clip: Ye et al. 2020). decoupled_ppo is the same with every token weighed by proximal over behaviour
// policy (Fu et al. 2025, arXiv 2505.24298).
#include <algorithm>
#include <cmath>

#include "train/losses/loss.h"

namespace gyre {

Ratio ratio_to_old(const LossToken& t) {
  const double log_ratio = t.logprob - t.old_logprob;
  return {std::exp(std::clamp(log_ratio, -kLogRatioLimit, kLogRatioLimit)), std::abs(log_ratio) > kLogRatioLimit};
}

TokenLoss clipped_surrogate(double advantage, Ratio ratio, double clip_low, double clip_high, double clip_dual) {
  const double plain = -advantage * ratio.value;
  const double clipped = -advantage * std::clamp(ratio.value, 1 - clip_low, 1 + clip_high);

  TokenLoss out{.value = plain, .derivative = ratio.clamped ? 0 : plain};
  if (clipped > plain) {  // only possible outside the clip range, where the clipped branch is flat
    out = {.value = clipped, .derivative = 0, .clipped = true};
  }
  if (clip_dual > 0 && advantage < 0 && out.value > -advantage * clip_dual) {
    out.value = -advantage * clip_dual;
    out.derivative = 0;
    out.clipped_lower = true;
  }
  return out;
}

namespace {

TokenLoss ppo(const LossToken& t, const double* constants) {
  return clipped_surrogate(t.advantage, ratio_to_old(t), constants[0], constants[1], constants[2]);
}

}  // namespace

extern const PolicyLoss kPpo{
    {.name = "ppo",
     .compares = true,
     .constants = {{"clip_low", "[0,1]", 0.2}, {"clip_high", "[0,)", 0.28}, {"clip_dual", "[0,)", 3.0}}},
    ppo};
extern const PolicyLoss kDecoupledPpo{
    {.name = "decoupled_ppo",
     .compares = true,
     .constants = {{"clip_low", "[0,1]", 0.2}, {"clip_high", "[0,)", 0.28}, {"clip_dual", "[0,)", 3.0}}},
    ppo};

}  // namespace gyre
