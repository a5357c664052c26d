// The other terms of a policy's loss, and a value network's, with their derivatives: plain arithmetic in f64. What the
// task's loss is, is in losses/.
#pragma once

#include "gyre.h"
#include "train/losses/loss.h"

namespace gyre {

struct TokenKl {
  double value, derivative;
};

// Estimators of KL(policy ‖ reference) from x = logprob, y = ref_logprob (Schulman 2020, clamps as in verl):
//   k1 x-y · abs |x-y| · k2 ½(x-y)² · k3 clamp(e^z - z - 1, ±10) with z = clamp(y-x, ±20)
// straight_through keeps the value and takes k2's derivative, which is an unbiased gradient of the KL.
TokenKl kl_term(const gyre_policy_loss& loss, double logprob, double ref_logprob);

// ½·max((V-R)², (clamp(V, old ± clip) - R)²) and its derivative with respect to V; clip <= 0 leaves the first term
// alone.
TokenLoss value_term(double value, double return_, double old_value, double clip);

}  // namespace gyre
