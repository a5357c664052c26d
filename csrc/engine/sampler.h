// From one row of logits to one token and its two log-probs.
#pragma once

#include <cstdint>
#include <span>

#include "engine/request.h"

namespace gyre {

struct Draw {
  int32_t token = -1;
  float logprob = 0;           // under the policy being trained, see Output::logprobs
  float sampling_logprob = 0;  // under the distribution the token was drawn from
};

// Draws output token `position` by the inverse of the cumulative distribution in vocabulary order. `banned` ids cannot
// be drawn but still count in `logprob`, which speaks of the policy and not of the mask. Throws NotFiniteError for
// logits that have no distribution.
Draw draw_token(std::span<const float> logits_V, const Sampling& sampling, int64_t position,
                std::span<const int32_t> banned);

}  // namespace gyre
