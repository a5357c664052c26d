// The softmax of a row of logits under temperature, never stored: its statistics, and gradients through it. Rows come
// in blocks of columns, so that a whole row need not be in memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/isa.h"

namespace gyre {

// Columns of one block, a whole number of a packed matrix's panels: 12 KiB of a row.
inline constexpr int64_t kSoftmaxBlock = 3072;

// What is known of a row z after some of its blocks. The blocks' size and order are part of the arithmetic: sampler and
// trainer add the same ones and get the same bits (online softmax, Milakov and Gimelshein 2018).
struct SoftmaxRow {
  float logsumexp() const { return max + std::log(sum); }  // of z/T
  float mean() const { return max + first / sum; }         // Σ p·z/T under p = softmax(z/T)

  // Shifted by the maximum of z/T: sum = Σ e^y and first = Σ e^y·y with y = z/T - max.
  float max = -std::numeric_limits<float>::infinity(), sum = 0, first = 0;
  bool empty = true;
};

// Adds the next n <= kSoftmaxBlock logits, fewer only at the end of the row. mean() needs want_mean.
GYRE_KERNEL(void, add_logits, SoftmaxRow& row, const float* logits, int64_t n, float inverse_temperature,
            bool want_mean);

// With p = softmax(z/T), logprob = log p[token] and entropy = -Σ p log p, gradients with respect to z:
//   d logprob / d z = (onehot - p) / T        d entropy / d z = -p·(z/T - Σ p·z/T) / T
struct SoftmaxGradient {
  float logsumexp, mean;       // of the row
  float d_logprob, d_entropy;  // of the objective
};

// The gradient with respect to n of a row's logits, without the onehot's part. `out` may be the logits.
GYRE_KERNEL(void, softmax_gradient, const float* logits, int64_t n, float inverse_temperature,
            const SoftmaxGradient& gradient, float* out);

// Row statistics of one row of logits under temperature: shared by training and by the sampler, so their log-probs are
// the same bits.
struct RowScore {
  float logsumexp, mean_logit;  // entropy = logsumexp - mean_logit
  float max;                    // of logits / temperature
};
// `running` (may be null) receives, for each block of kSoftmaxBlock logits, the sum of e^(logit/temperature - max) of
// that block and all before it.
GYRE_KERNEL(RowScore, score_row, const float* logits, int64_t vocab, float inverse_temperature, bool want_entropy,
            float* running);
// log-prob of a token given the row's statistics.
inline float logprob_of(const float* logits, int32_t token, float inverse_temperature, float logsumexp) {
  return logits[token] * inverse_temperature - logsumexp;
}

}  // namespace gyre
