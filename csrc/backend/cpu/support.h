// Distributions as some tokens see them (Support in backend.h): the outcomes of the kept logits of a chunk of targets,
// and gradients through them.
#pragma once

#include <cmath>
#include <span>

#include "backend/backend.h"

namespace gyre {

// The logits of a chunk's rows, a block of kSoftmaxBlock columns of all rows after another.
class KeptLogits {
 public:
  KeptLogits(float* logits, int64_t vocab, int64_t rows, float inverse_temperature)
      : logits_(logits), vocab_(vocab), rows_(rows), inverse_(inverse_temperature) {}

  // Fills the support and the outcomes of the chunk's scores. Of equal logits the lower id is the likelier token.
  void take_likeliest(int64_t k, Scores& scores);
  void take(std::span<const int32_t> ids, Scores& scores);

 private:
  float& at(int64_t row, int64_t token);
  void likeliest(int64_t row, std::span<int32_t> ids);
  void outcomes(int64_t row, float logsumexp, std::span<const int32_t> ids, std::span<float> out);

  float* logits_;
  int64_t vocab_, rows_;
  float inverse_;
};

// Adds the scores of a chunk to those before it.
void append(const Scores& chunk, Scores& all);

// The gradient of a chunk's logits from the slopes of its outcomes.
class OutcomeGradient {
 public:
  OutcomeGradient(const Scores& scores, std::span<const float> slopes, float inverse_temperature)
      : scores_(scores),
        slopes_(slopes),
        k_(slopes.empty() ? 0 : scores.support.size() / scores.logprobs.size()),
        inverse_(inverse_temperature) {}

  // The slope of all tokens that are not in the support.
  float of_others(size_t row) const { return slopes_.empty() ? 0 : slopes_[row * (k_ + 1) + k_]; }
  // Adds, to the gradient of some logits of a row, what the support's tokens have beyond that.
  void add(size_t row, int64_t first, int64_t columns, float* d_logits) const {
    for (size_t j = 0; j < k_; ++j) {
      const int64_t token = scores_.support[row * k_ + j] - first;
      if (token < 0 || token >= columns) continue;
      const size_t outcome = row * (k_ + 1) + j;
      d_logits[token] += (slopes_[outcome] - of_others(row)) * std::exp(scores_.outcomes[outcome]) * inverse_;
    }
  }

 private:
  const Scores& scores_;
  std::span<const float> slopes_;
  size_t k_;
  float inverse_;
};

}  // namespace gyre
