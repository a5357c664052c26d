// From one row of logits to one token and its two log-probs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"
#include "kernels/random.h"
#include "kernels/softmax.h"

namespace gyre {

// Part of [0, 1).
struct Share {
  float low = 0, high = 1;
  bool holds(double u) const { return low <= u && u < high; }
};

struct Draw {
  int32_t token = -1;
  float logprob = 0;                             // under the policy being trained, see Output::logprobs
  float sampling_logprob = 0;                    // under the distribution the token was drawn from
  std::vector<gyre_alternative> alternatives{};  // the likeliest tokens with their log-probs as in logprob
  Share share{};                                 // the numbers of uniform() that draw this token
};

// Draws output token `position` by the inverse of the cumulative distribution in vocabulary order. `banned` ids cannot
// be drawn but still count in `logprob`, which speaks of the policy and not of the mask. Throws NotFiniteError for
// logits that have no distribution.
Draw draw_token(std::span<const float> logits_V, const gyre_sampling& sampling, int64_t position,
                std::span<const int32_t> banned);

// The tokens that min-p, top-k and top-p leave to draw from.
struct Candidate {
  int32_t token;
  float scaled;  // logit / temperature
  float weight;  // e^(scaled - the largest of the row), proportional to the probability
};

// In order of token ids. `score` is score_row's of the row, `mass` the sum of all weights. Only tokens that may be kept
// are looked at one by one: each filter keeps a prefix of the tokens in order of likelihood, and a lower bound of the
// last one's logit follows from the largest logits of blocks of tokens (top-k) or from the mass above a few thresholds
// (top-p).
std::vector<Candidate> likeliest(std::span<const float> logits_V, float inverse_temperature,
                                 const gyre_sampling& sampling, const RowScore& score, double mass);

// Uniform in [0, 1) with 53 bits, for output position `position` of a request with this seed: a pure function of its
// key and counter, so neither batch order nor preemption can change it.
inline double uniform(uint64_t seed, uint64_t position) {
  const auto bits = philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
                               {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<double>((uint64_t{bits[0]} << 21) ^ (bits[1] >> 11)) * 0x1p-53;
}

}  // namespace gyre
