// Log-probs, entropies and values from hidden states, and their backward passes, in chunks of rows.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/network.h"
#include "backend/cpu/support.h"
#include "kernels/parallel.h"
#include "kernels/product.h"
#include "kernels/rowwise.h"
#include "kernels/softmax.h"

namespace gyre {
namespace {

// Targets at a time, and least worth handing to a thread. A block of their logits, 6 MiB, stays in the last-level cache
// while it is made and used; the head's weights are read from memory once per chunk.
constexpr int64_t kChunk = 512, kGrain = 4;
static_assert(kSoftmaxBlock % kPanel == 0);

// Where the logits of a chunk are kept for the backward pass: memory for them, but so many targets that reading the
// head's weights and writing their gradient costs little.
constexpr int64_t kKeptLogits = (int64_t{64} << 20) / sizeof(float), kLeastKept = 256;

int64_t kept_chunk(int64_t vocab) { return std::clamp(kKeptLogits / vocab, kLeastKept, kChunk); }

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
void for_vocab_blocks(int64_t vocab, Body&& body) {
  for (int64_t first = 0; first < vocab; first += kSoftmaxBlock) body(first, std::min(kSoftmaxBlock, vocab - first));
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
      add_logits(rows_[at], row, columns, inverse_, want_entropy_);
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

}  // namespace

HeadRows::HeadRows(const at::Tensor& hidden_NH, std::span<const Target> targets, const Dropout* dropout) {
  const int64_t rows = std::ssize(targets), width = hidden_NH.size(1);
  rows_RH = lora_RH = at::empty({rows, width}, hidden_NH.options());
  const float* from = hidden_NH.const_data_ptr<float>();
  float* to = rows_RH.mutable_data_ptr<float>();
  for (size_t i = 0; i < targets.size(); ++i) {
    std::memcpy(to + i * width, from + targets[i].row * width, width * sizeof(float));
  }
  if (dropout == nullptr) return;
  for (const Target& t : targets) histories.push_back(dropout->histories[static_cast<size_t>(t.row)]);
  key = dropout->module(0, GYRE_LORA_HEAD), scale = dropout->scale();
  lora_RH = at::empty_like(rows_RH);
  drop(key, histories.data(), rows, width, to, width, floats(lora_RH), width);
  gyre::scale(floats(lora_RH), rows * width, scale);
}

void HeadRows::add_gradient(at::Tensor& d_RH, float* dx) const {
  const int64_t rows = d_RH.size(0), width = d_RH.size(1);
  float* d = floats(d_RH);
  drop(key, histories.data(), rows, width, d, width, d, width);
  gyre::scale(d, rows * width, scale);
  add(dx, d, rows * width, dx);
}

// Logits of all rows, some columns of them, to rows kSoftmaxBlock apart.
void CpuNetwork::logits_block(const HeadRows& of, int64_t first, int64_t columns, float* logits) {
  const at::Tensor& rows_RH = of.rows_RH;
  const auto head = packed_.head_columns(first, columns);
  head.matrix.multiply_columns(head.at, columns, rows_RH.const_data_ptr<float>(), rows_RH.size(1), rows_RH.size(0),
                               nullptr, logits, kSoftmaxBlock);
  const int64_t rows = rows_RH.size(0);
  if (adapter_ && !adapter_->root().head.empty()) {
    const PackedLora& lora = adapter_->root().head;
    std::vector<float> u(static_cast<size_t>(rows * lora.rank));
    lora.reduce(of.lora_RH.const_data_ptr<float>(), rows_RH.size(1), rows, u.data());
    add_panels(lora.parts[0].b.panels().from(first), columns, u.data(), lora.rank, rows, logits, kSoftmaxBlock);
  }
  if (const LogitShape bent(config_); bent.any) bent.apply(logits, rows, columns, kSoftmaxBlock);
}

namespace {

// The gradients of an adapter beside the head, from one block of the logits' after another.
class LoraHead {
 public:
  LoraHead(const ModelConfig& config, const PackedLora& packed, const LoraTensors& weights, const HeadRows& rows,
           LoraTensors& gradients)
      : precision_(config.precision()), packed_(packed), weights_(weights), of_(rows), gradients_(gradients) {
    if (packed_.empty()) return;
    u_.resize(static_cast<size_t>(x_.size(0) * packed_.rank));
    du_.resize(u_.size());
    packed_.reduce(x_.const_data_ptr<float>(), x_.size(1), x_.size(0), u_.data());
  }

  void add(const float* d_logits, int64_t first, int64_t columns) {
    if (packed_.empty()) return;
    const int64_t rows = x_.size(0), rank = packed_.rank;
    multiply(precision_, columns, rank, rows, {d_logits, 1, kSoftmaxBlock}, u_.data(), rank, true,
             floats(gradients_.b_OR) + first * rank, rank);
    multiply(precision_, rows, rank, columns, {d_logits, kSoftmaxBlock, 1}, floats(weights_.b_OR) + first * rank, rank,
             first > 0, du_.data(), rank);
  }

  // After the last block.
  void finish(float* dx) {
    if (packed_.empty()) return;
    const int64_t rows = x_.size(0), rank = packed_.rank, width = x_.size(1);
    for (float& d : du_) d *= packed_.scale;
    multiply(precision_, rank, width, rows, {du_.data(), 1, rank}, x_.const_data_ptr<float>(), width, true,
             floats(gradients_.a_SI), width);
    at::Tensor d_RH = of_.histories.empty() ? at::Tensor() : at::empty_like(x_);
    multiply(precision_, rows, width, rank, {du_.data(), rank, 1}, floats(weights_.a_SI), width, !d_RH.defined(),
             d_RH.defined() ? floats(d_RH) : dx, width);
    if (d_RH.defined()) of_.add_gradient(d_RH, dx);
  }

 private:
  Precision precision_;
  const PackedLora& packed_;
  const LoraTensors& weights_;
  const HeadRows& of_;
  const at::Tensor& x_ = of_.lora_RH;
  LoraTensors& gradients_;
  std::vector<float> u_, du_;
};

}  // namespace

// Adds one gradient of a chunk, whose logits are kept block after block.
void CpuNetwork::chunk_backward(const HeadRows& of, std::span<const Target> targets, float inverse,
                                const Scores& scores, const float* kept, const ScoreGradient& gradient) {
  const at::Tensor& rows_RH = of.rows_RH;
  thread_local Buffer block;
  const int64_t rows = rows_RH.size(0), width = rows_RH.size(1);
  block.reserve(rows * kSoftmaxBlock);
  at::Tensor d_rows_RH = at::empty_like(rows_RH);
  const float *x = rows_RH.const_data_ptr<float>(), *head = parameters_.root.head_VH.const_data_ptr<float>();
  const at::Tensor& d_head_VH = gradient.gradients->root.head_VH;
  thread_local Buffer unpacked;
  if (packed_.frozen()) unpacked.reserve(kSoftmaxBlock * operand_width(config_.precision(), width));
  float *d_logits = block.data(), *dx = d_rows_RH.mutable_data_ptr<float>(),
        *d_hidden = gradient.d_hidden_NH.mutable_data_ptr<float>();
  static const PackedLora kNone;
  LoraHead lora(config_, adapter_ ? adapter_->root().head : kNone,
                (adapter_ ? adapter_->parameters() : parameters_).root.head_lora, of,
                gradient.gradients->root.head_lora);
  const LogitShape bent(config_);
  const OutcomeGradient outcomes(scores, gradient.slopes, inverse);
  for_vocab_blocks(config_.vocab_size, [&](int64_t first, int64_t columns) {
    parallel_for(rows, kGrain, [&](int64_t r) {
      const auto i = static_cast<size_t>(r);
      float* row = d_logits + r * kSoftmaxBlock;
      const float weight = gradient.d_logprob.empty() ? 0 : gradient.d_logprob[i];
      softmax_gradient(kept + r * kSoftmaxBlock, columns, inverse,
                       {.logsumexp = scores.logsumexp[i],
                        .mean = scores.mean_logit[i],
                        .d_logprob = weight - outcomes.of_others(i),
                        .d_entropy = gradient.d_entropy.empty() ? 0 : gradient.d_entropy[i]},
                       row);
      const int64_t token = targets[i].token - first;
      if (token >= 0 && token < columns) row[token] += weight * inverse;
      outcomes.add(i, first, columns, row);
      if (bent.any) bend_backward(kept + r * kSoftmaxBlock, columns, bent.by, bent.cap, row);
    });
    if (d_head_VH.defined()) {
      multiply(config_.precision(), columns, width, rows, {d_logits, 1, kSoftmaxBlock}, x, width, true,
               floats(d_head_VH) + first * width, width);
    }
    Rows weight{head + first * width};
    if (packed_.frozen()) {
      packed_.head().unpack(first, columns, unpacked.data());
      weight = {unpacked.data(), true};
    }
    multiply_factors(config_.precision(), rows, width, columns, {d_logits, kSoftmaxBlock, 1},
                     weight.factor(config_.precision(), width), first > 0, dx, width);
    lora.add(d_logits, first, columns);
    kept += rows * kSoftmaxBlock;
  });
  lora.finish(dx);
  for (size_t i = 0; i < targets.size(); ++i) {
    float* to = d_hidden + targets[i].row * width;
    for (int64_t h = 0; h < width; ++h) to[h] += dx[static_cast<int64_t>(i) * width + h];
  }
}

// Scores a chunk and keeps its logits, block after block.
Scores CpuNetwork::keep_logits(const HeadRows& rows, std::span<const Target> targets, float inverse, Buffer& logits) {
  ChunkScores chunk(targets, inverse, /*want_entropy=*/true);
  const int64_t vocab = config_.vocab_size, block = std::ssize(targets) * kSoftmaxBlock;
  logits.reserve(ceil_div(vocab, kSoftmaxBlock) * block);
  float* kept = logits.data();
  for_vocab_blocks(vocab, [&](int64_t first, int64_t columns) {
    logits_block(rows, first, columns, kept);
    chunk.add(kept, first, columns);
    kept += block;
  });
  Scores scores;
  chunk.append_to(scores);
  return scores;
}

Scores CpuNetwork::score(const at::Tensor& hidden_NH, std::span<const Target> targets, float inverse, bool want_entropy,
                         int64_t k) {
  thread_local Buffer block;
  Scores out;
  read_.enter(kRoot);
  if (k > 0) {
    Buffer logits;
    for_chunks(targets.size(), kept_chunk(config_.vocab_size), [&](size_t begin, size_t count) {
      const std::span<const Target> here = targets.subspan(begin, count);
      Scores chunk = keep_logits(HeadRows(hidden_NH, here), here, inverse, logits);
      KeptLogits kept(logits.data(), config_.vocab_size, static_cast<int64_t>(count), inverse);
      kept.take_likeliest(k, chunk);
      append(chunk, out);
    });
    return out;
  }
  for_chunks(targets.size(), kChunk, [&](size_t begin, size_t count) {
    const HeadRows rows(hidden_NH, targets.subspan(begin, count));
    ChunkScores chunk(targets.subspan(begin, count), inverse, want_entropy);
    block.reserve(static_cast<int64_t>(count) * kSoftmaxBlock);
    for_vocab_blocks(config_.vocab_size, [&](int64_t first, int64_t columns) {
      logits_block(rows, first, columns, block.data());
      chunk.add(block.data(), first, columns);
    });
    chunk.append_to(out);
  });
  return out;
}

void CpuNetwork::score_backward(const at::Tensor& hidden_NH, std::span<const Target> targets, float inverse,
                                const Support& support, const Dropout& dropout, const Objective& objective) {
  Buffer logits;  // not kept: what comes next needs the memory for blocks
  read_.enter(kRoot);
  const bool drops = dropout.on() && adapter_ && !adapter_->root().head.empty();
  for_chunks(targets.size(), kept_chunk(config_.vocab_size), [&](size_t begin, size_t count) {
    const std::span<const Target> here = targets.subspan(begin, count);
    const HeadRows rows(hidden_NH, here, drops ? &dropout : nullptr);
    Scores scores = keep_logits(rows, here, inverse, logits);
    if (const auto k = static_cast<size_t>(support.k); k > 0) {
      KeptLogits kept(logits.data(), config_.vocab_size, static_cast<int64_t>(count), inverse);
      kept.take(support.ids.subspan(begin * k, count * k), scores);
    }
    for (const ScoreGradient& gradient : objective(begin, scores)) {
      gradient.gradients->enter(kRoot);
      chunk_backward(rows, here, inverse, scores, logits.data(), gradient);
    }
  });
}

at::Tensor CpuNetwork::value_backward(const at::Tensor& hidden_NH, std::span<const Target> targets,
                                      std::span<const double> d_values, ParameterSet& gradients) {
  const int64_t width = hidden_NH.size(1);
  const float* hidden = hidden_NH.const_data_ptr<float>();
  gradients.enter(kRoot);
  const float* head = value_root().score_1H.const_data_ptr<float>();
  at::Tensor d_hidden_NH = at::zeros_like(hidden_NH);
  float* d_hidden = d_hidden_NH.mutable_data_ptr<float>();
  std::vector<double> d_head(width);
  double d_bias = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    const float* row = hidden + targets[i].row * width;
    float* d_row = d_hidden + targets[i].row * width;
    for (int64_t h = 0; h < width; ++h) {
      d_row[h] += static_cast<float>(d_values[i] * head[h]);
      d_head[h] += d_values[i] * row[h];
    }
    d_bias += d_values[i];
  }
  float* d_score = gradients.root.score_1H.mutable_data_ptr<float>();
  for (int64_t h = 0; h < width; ++h) d_score[h] += static_cast<float>(d_head[h]);
  *gradients.root.score_bias_1.mutable_data_ptr<float>() += static_cast<float>(d_bias);
  return d_hidden_NH;
}

}  // namespace gyre
