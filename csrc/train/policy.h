// Forward and backward of the policy loss on one micro-batch:
//   Σ_t weight[t] · ( L_t - entropy_coef · H_t + kl_coef · KL_t )   over the masked tokens.
#pragma once

#include <span>

#include "gyre.h"
#include "model/decoder.h"
#include "train/batch.h"
#include "train/gradients.h"

namespace gyre {

// Token-aligned; old_logprobs and advantages may be empty for GYRE_POLICY_NLL, ref_logprobs when there is no KL term.
struct PolicyInputs {
  std::span<const float> old_logprobs, advantages, ref_logprobs, weights;
};

// Where each term's gradient is added; null skips the term. Terms that share a buffer share one backward pass.
struct Components {
  Gradients* task = nullptr;
  Gradients* entropy = nullptr;
  Gradients* kl = nullptr;
};

// Token-aligned outputs, 0 where the mask is 0; empty spans are skipped.
struct PolicyOutputs {
  std::span<float> logprobs, entropies;
};

// Throws std::invalid_argument for inconsistent inputs and NotFiniteError when a log-prob or entropy is not finite. The
// gradients may then hold a part of the micro-batch.
gyre_policy_stats policy_backward(Decoder& decoder, const Batch& batch, const PolicyInputs& inputs,
                                  const gyre_policy_loss& loss, const Components& into, const PolicyOutputs& outputs);

}  // namespace gyre
