// Forward and backward of the policy loss on one micro-batch: the sum of any number of named terms, each of one
// kind (task, entropy or KL) under its own weights, with its own gradient.
#pragma once

#include <span>
#include <vector>

#include "backend/decoder.h"
#include "gyre.h"
#include "train/batch.h"
#include "train/gradients.h"

namespace gyre {

struct PolicyResult {
  gyre_policy_stats stats{};
  std::vector<gyre_term_stats> terms;  // in the order given
};

// As gyre_policy_backward, whose arrays these are. Throws std::invalid_argument for inconsistent inputs and
// NotFiniteError when a log-prob or entropy is not finite. The gradients may then hold a part of the micro-batch.
PolicyResult policy_backward(Decoder& decoder, const Batch& batch, const gyre_policy_inputs& inputs,
                             const gyre_policy_loss& loss, std::span<const gyre_term> terms,
                             float* logprobs_out = nullptr, float* entropies_out = nullptr);

}  // namespace gyre
