// Policy losses: what is minimised of each token that the policy sampled. A loss is one file of this folder, with its
// formula and its constants, and a line in the table of losses.cc. Everything else reads the table: the C ABI
// (gyre_loss_at), the configuration's keys in [actor], the trainer.
#pragma once

#include "gyre.h"

namespace gyre {

// Log-ratios of policies are clamped to ± this, as in verl, in losses and in statistics.
inline constexpr double kLogRatioLimit = 20.0;

// What a loss may look at: one token of the batch. A loss that needs more, such as the mean log-ratio of its episode,
// adds a field here and a token-aligned column to gyre_policy_inputs, which the caller computes over the whole batch.
struct LossToken {
  double logprob;  // of the policy that is trained: what the loss is differentiated with respect to
  double old_logprob, advantage;  // 0 where the loss does not compare
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

// The table. Throws std::invalid_argument for an index that it does not have.
const PolicyLoss& policy_loss(int32_t index);

}  // namespace gyre
