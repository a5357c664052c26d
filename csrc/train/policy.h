// Forward and backward of the policy loss on one micro-batch: the sum of any number of named terms, each of one
// kind (task, entropy or KL) under its own weights, with its own gradient.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "backend/decoder.h"
#include "gyre.h"
#include "train/batch.h"
#include "train/gradients.h"

namespace gyre {

// Token-aligned; old_logprobs and advantages may be empty for GYRE_POLICY_NLL, ref_logprobs when there is no KL term,
// advantages and weights when every term brings its own.
struct PolicyInputs {
  std::span<const float> old_logprobs, advantages, ref_logprobs, weights;
};

// See gyre_term. Empty spans: those of the inputs.
struct Term {
  std::string_view name;
  gyre_term_kind kind = GYRE_TERM_TASK;
  std::span<const float> advantages{}, weights{};
  Gradients* into = nullptr;  // null: statistics only
};

// Token-aligned outputs, 0 where the mask is 0; empty spans are skipped.
struct PolicyOutputs {
  std::span<float> logprobs, entropies;
};

struct PolicyResult {
  gyre_policy_stats stats{};
  std::vector<gyre_term_stats> terms;  // in the order given
};

// Throws std::invalid_argument for inconsistent inputs and NotFiniteError when a log-prob or entropy is not finite. The
// gradients may then hold a part of the micro-batch.
PolicyResult policy_backward(Decoder& decoder, const Batch& batch, const PolicyInputs& inputs,
                             const gyre_policy_loss& loss, std::span<const Term> terms,
                             const PolicyOutputs& outputs);

}  // namespace gyre
