// DPPO (arXiv 2602.04879): a token that has left its trust region in the advantage's direction learns nothing more. The
// region bounds the total variation, or the binary KL divergence, of drawing the token or not under both policies.
#include <algorithm>
#include <cmath>

#include "train/losses/loss.h"

namespace gyre {
namespace {

constexpr double kFloor = 1e-8;

// How far the policy has gone from the old one, by the divergence of constants[0]: 0 total variation, 1 KL.
double divergence(const LossToken& t, double kind) {
  const double now = std::exp(t.logprob), old = std::exp(t.old_logprob);
  if (kind == 0) return std::abs(now - old);
  return old * (t.old_logprob - t.logprob) + (1 - old) * std::log((1 - old + kFloor) / (1 - now + kFloor));
}

TokenLoss dppo(const LossToken& t, const double* constants) {
  const bool rises = t.advantage > 0;
  const double limit = rises ? constants[2] : constants[1];
  const bool away = rises ? t.logprob > t.old_logprob : t.logprob < t.old_logprob;
  if (away && divergence(t, constants[0]) > limit) return {.value = 0, .derivative = 0, .clipped = true};
  const double weight = std::min(ratio_to_old(t).value, constants[3]);
  return {.value = -weight * t.advantage * t.logprob, .derivative = -weight * t.advantage};
}

}  // namespace

extern const PolicyLoss kDppo{{.name = "dppo",
                               .compares = true,
                               .constants = {{"dppo_divergence", "tv,kl", 0},
                                             {"dppo_low", "[0,)", 0.2},
                                             {"dppo_high", "[0,)", 0.2},
                                             {"dppo_cap", "(0,)", 20}}},
                              dppo};

}  // namespace gyre
