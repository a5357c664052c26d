// SAPO (arXiv 2511.20347): a sigmoid gate on the ratio in place of the clip, of one steepness for tokens to be made
// likelier and another for those to be made less likely.
#include <cmath>

#include "train/losses/loss.h"

namespace gyre {
namespace {

TokenLoss sapo(const LossToken& t, const double* constants) {
  const Ratio ratio = ratio_to_old(t);
  const double tau = t.advantage > 0 ? constants[0] : constants[1];
  const double gate = 1 / (1 + std::exp(-tau * (ratio.value - 1)));
  const double slope = ratio.clamped ? 0 : -4 * t.advantage * gate * (1 - gate) * ratio.value;
  return {.value = -t.advantage * 4 / tau * gate, .derivative = slope};
}

}  // namespace

extern const PolicyLoss kSapo{
    {.name = "sapo", .compares = true, .constants = {{"sapo_tau_pos", "(0,)", 1.0}, {"sapo_tau_neg", "(0,)", 1.05}}},
    sapo};

}  // namespace gyre
