// What trains and evaluates: passes of a policy or a critic over batches. Arrays are token-aligned, and outputs are 0
// where the mask is 0; optional ones may be null. All throw std::invalid_argument for inconsistent inputs and
// NotFiniteError when a log-prob, an entropy or a value is not finite.
#pragma once

#include <span>
#include <vector>

#include "backend/decoder.h"
#include "gyre.h"
#include "train/batch.h"
#include "train/gradients.h"

namespace gyre {

// Forward-only passes over batches of any size: sequences are processed in groups of bounded size, which changes no bit
// of the results because every row is computed by row-invariant kernels. Outputs are filled before NotFiniteError is
// thrown; entropies and the support of the likeliest tokens are optional.
void evaluate_policy(Decoder& decoder, const Batch& batch, double temperature, float* logprobs, float* entropies,
                     const gyre_support* likeliest = nullptr);
// The critic: V of the state before token t is the value head on the hidden state of token t-1 (so it sees no later
// token).
void evaluate_critic(Decoder& critic, const Batch& batch, float* values);

struct PolicyResult {
  gyre_policy_stats stats{};
  std::vector<gyre_term_stats> terms;  // in the order given
};

// Forward and backward of the policy loss on one micro-batch (gyre_policy_backward): the sum of any number of named
// terms, each of one kind (task, entropy or KL) under its own weights, with its own gradient. After a NotFiniteError
// the gradients may hold a part of the micro-batch.
PolicyResult policy_backward(Decoder& decoder, const Batch& batch, const gyre_policy_inputs& inputs,
                             const gyre_policy_loss& loss, std::span<const gyre_term> terms,
                             float* logprobs_out = nullptr, float* entropies_out = nullptr);

// Forward and backward of Σ weight · value_term on one micro-batch; adds to `into`, which a NotFiniteError leaves
// untouched. old_values are optional when clip <= 0, values_out always.
gyre_value_stats value_backward(Decoder& critic, const Batch& batch, const float* returns, const float* old_values,
                                const float* weights, double clip, Gradients& into, float* values_out,
                                const gyre_dropout& dropout = {});

}  // namespace gyre
