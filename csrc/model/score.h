// Log-probs and entropies of chosen tokens from hidden states, in chunks of rows so that no [tokens × vocabulary]
// tensor is ever kept, and their backward pass (which recomputes the chunk's logits).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/softmax.h"
#include "model/decoder.h"

namespace gyre {

// Target i is token `target` predicted from hidden row `row`.
struct Target {
  int64_t row;
  int32_t token;
};

struct Scores {
  std::vector<float> logprobs, entropies, logsumexp,
      mean_logit;  // one per target (logsumexp of logits/temperature; Σ p·z)
};

// Row statistics of one row of logits under temperature: shared by training and by the sampler, so their log-probs are
// the same bits.
struct RowScore {
  float logsumexp, mean_logit;  // entropy = logsumexp - mean_logit
  float max;                    // of logits / temperature
};
// `running` (may be null) receives, for each block of kScoreBlock logits, the sum of e^(logit/temperature - max) of
// that block and all before it.
inline constexpr int64_t kScoreBlock = kSoftmaxBlock;
RowScore score_row(const float* logits, int64_t vocab, float inverse_temperature, bool want_entropy,
                   float* running = nullptr);
// log-prob of a token given the row's statistics.
inline float logprob_of(const float* logits, int32_t token, float inverse_temperature, float logsumexp) {
  return logits[token] * inverse_temperature - logsumexp;
}

Scores score(Decoder& decoder, const at::Tensor& hidden_NH, std::span<const Target> targets, double temperature,
             bool want_entropy);

// Adds to d_hidden_NH and to gradients.head the gradient of Σ_i d_logprob[i]·logprob_i + d_entropy[i]·entropy_i.
// Either span may be empty (all zeros).
void score_backward(Decoder& decoder, const at::Tensor& hidden_NH, std::span<const Target> targets,
                    const Scores& scores, double temperature, std::span<const float> d_logprob,
                    std::span<const float> d_entropy, at::Tensor& d_hidden_NH, ParameterSet& gradients);

}  // namespace gyre
