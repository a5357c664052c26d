// The tokens that min-p, top-k and top-p leave to draw from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"
#include "model/score.h"

namespace gyre {

struct Candidate {
  int32_t token;
  float scaled;  // logit / temperature
  float weight;  // e^(scaled - the largest of the row), proportional to the probability
};

// In order of token ids. `score` is score_row's of the row, `mass` the sum of all weights. Only tokens that may be kept
// are looked at one by one: each filter keeps a prefix of the tokens in order of likelihood, and a lower bound of the
// last one's logit follows from the largest logits of blocks of tokens (top-k) or from the mass above a few thresholds
// (top-p).
std::vector<Candidate> likeliest(std::span<const float> logits_V, float inverse_temperature, const Sampling& sampling,
                                 const RowScore& score, double mass);

}  // namespace gyre
