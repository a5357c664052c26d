// Policy losses: what is minimised of each token that the policy sampled. A loss is one file of this folder, with its
// formula and its constants, and a line in the table of losses.cc. Everything else reads the table: the C ABI
// (gyre_loss_at), the configuration's keys in [actor], the trainer.
#pragma once

#include <span>

#include "gyre.h"

namespace gyre {

// Log-ratios of policies are clamped to ± this, as in verl, in losses and in statistics.
inline constexpr double kLogRatioLimit = 20.0;

// What a loss may look at: one token of the batch.
struct LossToken {
  double logprob;         // x: of the policy that is trained, what the loss is differentiated with respect to
  double old_logprob;     // p: of the proximal policy
  double behaviour;       // b: of the policy that drew the token
  double advantage;       // A. This and the two before are 0 where the loss does not compare
  double over_batch = 0;  // gyre_loss::over_batch: what the caller computes of the whole mini-batch
};

struct TokenLoss {
  double value, derivative;    // L_t and dL_t / d logprob, as autograd has it: zero where a clamp acts
  bool clipped = false;        // the clipped branch was larger
  bool clipped_lower = false;  // the dual clip acted
};

struct PolicyLoss : gyre_loss {
  // `constants` are in the order of the loss's declaration. Plain arithmetic in f64, so that each formula can be
  // checked on its own.
  TokenLoss (*token)(const LossToken& token, const double* constants);
};

// e^clamp(logprob - old_logprob, ±20), and whether the clamp acted.
struct Ratio {
  double value;
  bool clamped;
};
Ratio ratio_to_old(const LossToken& token);

// PPO's surrogate of a ratio: max(-A·ratio, -A·clamp(ratio, 1 - clip_low, 1 + clip_high)), and for A < 0 at most
// -A·clip_dual; 0 switches the dual clip off. A clip acts where it is strictly larger.
TokenLoss clipped_surrogate(double advantage, Ratio ratio, double clip_low, double clip_high, double clip_dual);

// The table. Throws std::invalid_argument for an index that it does not have.
const PolicyLoss& policy_loss(int32_t index);

// The other terms of a policy's loss, and a value network's loss.

struct TokenKl {
  double value, derivative;
};

// Estimators of KL(policy ‖ reference) from x = logprob, y = ref_logprob (Schulman 2020, clamps as in verl):
//   k1 x-y · abs |x-y| · k2 ½(x-y)² · k3 clamp(e^z - z - 1, ±10) with z = clamp(y-x, ±20)
// straight_through keeps the value and takes k2's derivative, which is an unbiased gradient of the KL.
TokenKl kl_term(const gyre_policy_loss& loss, double logprob, double ref_logprob);

// KL(policy ‖ reference) of two distributions over the same outcomes, from their log-probs, and its derivatives: it
// changes by Σ slope · p · dz, where z are logits of the tokens and p their probabilities, the slope being that of a
// token's outcome. An outcome without probability, its log-prob -∞, counts nothing.
double outcomes_kl(std::span<const float> policy, std::span<const float> reference, std::span<double> slopes);

// ½·max((V-R)², (clamp(V, old ± clip) - R)²) and its derivative with respect to V; clip <= 0 leaves the first term
// alone.
TokenLoss value_term(double value, double return_, double old_value, double clip);

}  // namespace gyre
