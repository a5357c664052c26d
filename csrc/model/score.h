// Log-probs and entropies of chosen tokens from hidden states, in chunks of rows so that no [tokens × vocabulary]
// tensor of a whole micro-batch is ever kept, and their backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
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

// Derivatives of an objective with respect to the log-probs and entropies of a chunk's targets (an empty span: zeros),
// and where its gradients are added: those of the hidden states to d_hidden_NH, those of the head to gradients.
struct ScoreGradient {
  std::span<const float> d_logprob, d_entropy;
  at::Tensor d_hidden_NH;
  ParameterSet* gradients;
};

// Called with the scores, entropies among them, of targets first, first + 1, ...: once per chunk, in order. Returns any
// number of gradients, which must stay valid until the next call.
using Objective = std::function<std::vector<ScoreGradient>(size_t first, const Scores& chunk)>;

// Scores the targets, bit for bit as score() does, and goes backward from what the objective makes of them. The logits
// are computed once, whatever the number of gradients: those of a chunk of targets are kept, 128 MiB of most models.
void score_backward(Decoder& decoder, const at::Tensor& hidden_NH, std::span<const Target> targets, double temperature,
                    const Objective& objective);

}  // namespace gyre
