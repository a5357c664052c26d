// The softmax of a row of logits under temperature, never stored: its statistics, and gradients through it. Rows come
// in blocks of columns, so that a whole row need not be in memory.
#pragma once

#include <cstdint>
#include <limits>

namespace gyre {

// Columns of one block, a whole number of a packed matrix's panels: 12 KiB of a row.
inline constexpr int64_t kSoftmaxBlock = 3072;

// What is known of a row z after some of its blocks. The blocks' size and order are part of the arithmetic: sampler and
// trainer add the same ones and get the same bits (online softmax, Milakov and Gimelshein 2018).
class SoftmaxRow {
 public:
  // Adds the next n <= kSoftmaxBlock logits, fewer only at the end of the row. mean() needs want_mean.
  void add(const float* logits, int64_t n, float inverse_temperature, bool want_mean);
  float logsumexp() const;                             // of z/T
  float max() const { return max_; }                   // of z/T
  float sum() const { return sum_; }                   // of e^(z/T - max)
  float mean() const { return max_ + first_ / sum_; }  // Σ p·z/T under p = softmax(z/T)

 private:
  // Shifted by the maximum: sum = Σ e^y and first = Σ e^y·y with y = z/T - max.
  float max_ = -std::numeric_limits<float>::infinity(), sum_ = 0, first_ = 0;
  bool empty_ = true;
};

// With p = softmax(z/T), logprob = log p[token] and entropy = -Σ p log p, gradients with respect to z:
//   d logprob / d z = (onehot - p) / T        d entropy / d z = -p·(z/T - Σ p·z/T) / T
struct SoftmaxGradient {
  float logsumexp, mean;       // of the row
  float d_logprob, d_entropy;  // of the objective
};

// The gradient with respect to n of a row's logits, without the onehot's part. `out` may be the logits.
void softmax_gradient(const float* logits, int64_t n, float inverse_temperature, const SoftmaxGradient& gradient,
                      float* out);

// Row statistics of one row of logits under temperature: shared by training and by the sampler, so their log-probs are
// the same bits.
struct RowScore {
  float logsumexp, mean_logit;  // entropy = logsumexp - mean_logit
  float max;                    // of logits / temperature
};
// `running` (may be null) receives, for each block of kSoftmaxBlock logits, the sum of e^(logit/temperature - max) of
// that block and all before it.
RowScore score_row(const float* logits, int64_t vocab, float inverse_temperature, bool want_entropy,
                   float* running = nullptr);
// log-prob of a token given the row's statistics.
inline float logprob_of(const float* logits, int32_t token, float inverse_temperature, float logsumexp) {
  return logits[token] * inverse_temperature - logsumexp;
}

}  // namespace gyre
