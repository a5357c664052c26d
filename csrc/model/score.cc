#include "model/score.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/placement.h"
#include "device/score.h"
#include "kernels/buffer.h"
#include "kernels/parallel.h"
#include "kernels/product.h"
#include "kernels/softmax.h"

namespace gyre {
namespace {

// Targets at a time, and least worth handing to a thread. A block of their logits, 6 MiB, stays in the last-level cache
// while it is made and used; the head's weights are read from memory once per chunk.
constexpr int64_t kChunk = 512, kGrain = 4;
static_assert(kSoftmaxBlock % kPanel == 0);

// Where the logits of a chunk are kept for the backward pass: memory for them, but so many targets that reading the
// head's weights and writing their gradient costs little.
constexpr int64_t kKeptLogits = (int64_t{128} << 20) / sizeof(float), kLeastKept = 256;

int64_t kept_chunk(int64_t vocab) { return std::clamp(kKeptLogits / vocab, kLeastKept, kChunk); }

// The targets' hidden rows, dense.
at::Tensor gather(const at::Tensor& hidden_NH, std::span<const Target> targets) {
  const int64_t width = hidden_NH.size(1);
  at::Tensor rows_RH = at::empty({static_cast<int64_t>(targets.size()), width}, hidden_NH.options());
  const float* from = hidden_NH.const_data_ptr<float>();
  float* to = rows_RH.mutable_data_ptr<float>();
  for (size_t i = 0; i < targets.size(); ++i) {
    std::memcpy(to + i * width, from + targets[i].row * width, width * sizeof(float));
  }
  return rows_RH;
}

// Calls body(first target, count) for consecutive chunks of about the same size, at most `most`.
template <typename Body>
void for_chunks(size_t targets, int64_t most, Body&& body) {
  for (size_t first = 0; first < targets;) {
    const auto count = static_cast<size_t>(even_part(static_cast<int64_t>(targets - first), most));
    body(first, count);
    first += count;
  }
}

// Calls body(first column, columns) for the blocks of a row of logits.
template <typename Body>
void for_blocks(int64_t vocab, Body&& body) {
  for (int64_t first = 0; first < vocab; first += kSoftmaxBlock) body(first, std::min(kSoftmaxBlock, vocab - first));
}

// Logits of all rows, some columns of them, to rows kSoftmaxBlock apart.
void logits_block(Decoder& decoder, const at::Tensor& rows_RH, int64_t first, int64_t columns, float* logits) {
  const auto head = decoder.head_columns(first, columns);
  head.matrix.multiply_columns(head.at, columns, rows_RH.const_data_ptr<float>(), rows_RH.size(1), rows_RH.size(0),
                               nullptr, logits, kSoftmaxBlock);
}

// The scores of a chunk of targets, from one block of their logits after another.
class ChunkScores {
 public:
  ChunkScores(std::span<const Target> targets, float inverse_temperature, bool want_entropy)
      : targets_(targets), inverse_(inverse_temperature), want_entropy_(want_entropy) {}

  void add(const float* logits, int64_t first, int64_t columns) {
    parallel_for(static_cast<int64_t>(targets_.size()), kGrain, [&](int64_t r) {
      const auto at = static_cast<size_t>(r);
      const float* row = logits + r * kSoftmaxBlock;
      rows_[at].add(row, columns, inverse_, want_entropy_);
      const int64_t token = targets_[at].token - first;
      if (token >= 0 && token < columns) chosen_[at] = row[token];
    });
  }

  void append_to(Scores& out) const {
    for (size_t i = 0; i < targets_.size(); ++i) {
      const float logsumexp = rows_[i].logsumexp(), mean = want_entropy_ ? rows_[i].mean() : 0;
      out.logsumexp.push_back(logsumexp);
      out.logprobs.push_back(logprob_of(&chosen_[i], 0, inverse_, logsumexp));
      out.mean_logit.push_back(mean);
      out.entropies.push_back(want_entropy_ ? logsumexp - mean : 0);
    }
  }

 private:
  std::span<const Target> targets_;
  float inverse_;
  bool want_entropy_;
  std::vector<SoftmaxRow> rows_ = std::vector<SoftmaxRow>(targets_.size());
  std::vector<float> chosen_ = std::vector<float>(targets_.size());  // the targets' logits
};

// Adds one gradient of a chunk, whose logits are kept block after block.
void chunk_backward(Decoder& decoder, const at::Tensor& rows_RH, std::span<const Target> targets, float inverse,
                    const Scores& scores, const float* kept, const ScoreGradient& gradient) {
  thread_local Buffer block;
  const int64_t rows = rows_RH.size(0), width = rows_RH.size(1);
  block.reserve(rows * kSoftmaxBlock);
  at::Tensor d_rows_RH = at::empty_like(rows_RH);
  const float *x = rows_RH.const_data_ptr<float>(), *head = decoder.parameters().root.head_VH.const_data_ptr<float>();
  float *d_logits = block.data(), *dx = d_rows_RH.mutable_data_ptr<float>(),
        *d_head = gradient.gradients->root.head_VH.mutable_data_ptr<float>(),
        *d_hidden = gradient.d_hidden_NH.mutable_data_ptr<float>();
  for_blocks(decoder.config().vocab_size, [&](int64_t first, int64_t columns) {
    parallel_for(rows, kGrain, [&](int64_t r) {
      const auto i = static_cast<size_t>(r);
      float* row = d_logits + r * kSoftmaxBlock;
      const float weight = gradient.d_logprob.empty() ? 0 : gradient.d_logprob[i];
      softmax_gradient(kept + r * kSoftmaxBlock, columns, inverse,
                       {.logsumexp = scores.logsumexp[i],
                        .mean = scores.mean_logit[i],
                        .d_logprob = weight,
                        .d_entropy = gradient.d_entropy.empty() ? 0 : gradient.d_entropy[i]},
                       row);
      const int64_t token = targets[i].token - first;
      if (token >= 0 && token < columns) row[token] += weight * inverse;
    });
    multiply(columns, width, rows, {d_logits, 1, kSoftmaxBlock}, x, width, true, d_head + first * width, width);
    multiply(rows, width, columns, {d_logits, kSoftmaxBlock, 1}, head + first * width, width, first > 0, dx, width);
    kept += rows * kSoftmaxBlock;
  });
  for (size_t i = 0; i < targets.size(); ++i) {
    float* to = d_hidden + targets[i].row * width;
    for (int64_t h = 0; h < width; ++h) to[h] += dx[static_cast<int64_t>(i) * width + h];
  }
}

float inverse_of(double temperature) {
  if (!(std::isfinite(temperature) && temperature > 0)) {
    throw std::invalid_argument("score: temperature is " + std::to_string(temperature) + ", expected a number > 0");
  }
  return static_cast<float>(1.0 / temperature);
}

}  // namespace

RowScore score_row(const float* logits, int64_t vocab, float inverse_temperature, bool want_entropy, float* running) {
  SoftmaxRow row;
  std::vector<float> maxima;
  for (int64_t first = 0; first < vocab; first += kScoreBlock) {
    row.add(logits + first, std::min(kScoreBlock, vocab - first), inverse_temperature, want_entropy);
    if (!running) continue;
    running[maxima.size()] = row.sum();
    maxima.push_back(row.max());
  }
  for (size_t b = 0; b < maxima.size(); ++b) {  // all relative to the last maximum; rounding must not make them fall
    running[b] *= std::exp(maxima[b] - row.max());
    if (b > 0) running[b] = std::max(running[b], running[b - 1]);
  }
  return {.logsumexp = row.logsumexp(), .mean_logit = want_entropy ? row.mean() : 0, .max = row.max()};
}

Scores score(Decoder& decoder, const at::Tensor& hidden_NH, std::span<const Target> targets, double temperature,
             bool want_entropy) {
  const float inverse = inverse_of(temperature);
  if (on_tensors(decoder.config())) return score_on_device(decoder, hidden_NH, targets, inverse, want_entropy);
  thread_local Buffer block;
  Scores out;
  for_chunks(targets.size(), kChunk, [&](size_t begin, size_t count) {
    const at::Tensor rows_RH = gather(hidden_NH, targets.subspan(begin, count));
    ChunkScores chunk(targets.subspan(begin, count), inverse, want_entropy);
    block.reserve(rows_RH.size(0) * kSoftmaxBlock);
    for_blocks(decoder.config().vocab_size, [&](int64_t first, int64_t columns) {
      logits_block(decoder, rows_RH, first, columns, block.data());
      chunk.add(block.data(), first, columns);
    });
    chunk.append_to(out);
  });
  decoder.count(head_work(decoder.config(), static_cast<int64_t>(targets.size())));
  return out;
}

void score_backward(Decoder& decoder, const at::Tensor& hidden_NH, std::span<const Target> targets, double temperature,
                    const Objective& objective) {
  const float inverse = inverse_of(temperature);
  if (on_tensors(decoder.config())) return score_backward_on_device(decoder, hidden_NH, targets, inverse, objective);
  const int64_t vocab = decoder.config().vocab_size;
  Buffer logits;
  for_chunks(targets.size(), kept_chunk(vocab), [&](size_t begin, size_t count) {
    const std::span<const Target> here = targets.subspan(begin, count);
    const at::Tensor rows_RH = gather(hidden_NH, here);
    ChunkScores chunk(here, inverse, /*want_entropy=*/true);
    const int64_t block = rows_RH.size(0) * kSoftmaxBlock;
    logits.reserve(ceil_div(vocab, kSoftmaxBlock) * block);
    float* kept = logits.data();
    for_blocks(vocab, [&](int64_t first, int64_t columns) {
      logits_block(decoder, rows_RH, first, columns, kept);
      chunk.add(kept, first, columns);
      kept += block;
    });
    Scores scores;
    chunk.append_to(scores);
    const std::vector<ScoreGradient> gradients = objective(begin, scores);
    for (const ScoreGradient& gradient : gradients) {
      chunk_backward(decoder, rows_RH, here, inverse, scores, logits.data(), gradient);
    }
    const double products = 1 + 2 * static_cast<double>(gradients.size());
    decoder.count(head_work(decoder.config(), rows_RH.size(0)) * products);
  });
}

}  // namespace gyre
