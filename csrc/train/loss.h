// The per-token terms of the policy loss and their derivatives with respect to the token's log-prob. Plain arithmetic
// in f64: no tensors, so that every formula can be checked on its own.
#pragma once

#include "gyre.h"

namespace gyre {

// Log-ratios of policies are clamped to ± this, as in verl, in losses and in statistics.
inline constexpr double kLogRatioLimit = 20.0;

// Throws std::invalid_argument naming the field that is out of range.
void validate(const gyre_policy_loss& loss);

struct TokenLoss {
  double value, derivative;    // of L_t, and dL_t / d logprob
  bool clipped = false;        // the clipped branch was larger
  bool clipped_lower = false;  // the dual clip acted
};

// GYRE_POLICY_NLL: -logprob. GYRE_POLICY_PPO, with d = clamp(logprob - old, ±20), ratio = e^d and advantage A:
//   max(-A·ratio, -A·clamp(ratio, 1-clip_low, 1+clip_high)), and for A < 0 at most -A·clip_dual
// (Schulman et al. 2017; asymmetric clip: DAPO, Yu et al. 2025; dual clip: Ye et al. 2020). Derivatives are those of
// autograd: zero where a clamp acts.
TokenLoss policy_term(const gyre_policy_loss& loss, double logprob, double old_logprob, double advantage);

struct TokenKl {
  double value, derivative;
};

// Estimators of KL(policy ‖ reference) from x = logprob, y = ref_logprob (Schulman 2020, clamps as in verl):
//   k1 x-y · abs |x-y| · k2 ½(x-y)² · k3 clamp(e^z - z - 1, ±10) with z = clamp(y-x, ±20)
// straight_through keeps the value and takes k2's derivative, which is an unbiased gradient of the KL.
TokenKl kl_term(const gyre_policy_loss& loss, double logprob, double ref_logprob);

// Whether the loss has a KL term: an estimator is chosen and the objective compares policies.
inline bool has_kl(const gyre_policy_loss& loss) {
  return loss.kl != GYRE_KL_NONE && loss.objective == GYRE_POLICY_PPO;
}

// ½·max((V-R)², (clamp(V, old ± clip) - R)²) and its derivative with respect to V; clip <= 0 leaves the first term
// alone.
TokenLoss value_term(double value, double return_, double old_value, double clip);

}  // namespace gyre
