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

// Calls body(first target, count) for consecutive chunks.
template <typename Body>
void for_chunks(size_t targets, Body&& body) {
  for (size_t first = 0; first < targets; first += kChunk) body(first, std::min<size_t>(kChunk, targets - first));
}

// Computes the logits of all rows block by block and calls body(first column, columns, logits) for each, with rows
// kSoftmaxBlock apart.
template <typename Body>
void for_logits(Decoder& decoder, const at::Tensor& rows_RH, Body&& body) {
  thread_local Buffer block;
  const int64_t rows = rows_RH.size(0), vocab = decoder.config().vocab_size;
  block.reserve(rows * kSoftmaxBlock);
  for (int64_t first = 0; first < vocab; first += kSoftmaxBlock) {
    const int64_t columns = std::min(kSoftmaxBlock, vocab - first);
    const auto head = decoder.head_columns(first, columns);
    head.matrix.multiply_columns(head.at, columns, rows_RH.const_data_ptr<float>(), rows_RH.size(1), rows, nullptr,
                                 block.data(), kSoftmaxBlock);
    body(first, columns, block.data());
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
  Scores out;
  for (auto* values : {&out.logprobs, &out.entropies, &out.logsumexp, &out.mean_logit}) values->resize(targets.size());
  for_chunks(targets.size(), [&](size_t begin, size_t count) {
    std::vector<SoftmaxRow> rows(count);
    std::vector<float> chosen(count);  // the targets' logits
    for_logits(decoder, gather(hidden_NH, targets.subspan(begin, count)),
               [&](int64_t first, int64_t columns, const float* logits) {
                 parallel_for(static_cast<int64_t>(count), kGrain, [&](int64_t r) {
                   const auto at = static_cast<size_t>(r);
                   const float* row = logits + r * kSoftmaxBlock;
                   rows[at].add(row, columns, inverse, want_entropy);
                   const int64_t token = targets[begin + at].token - first;
                   if (token >= 0 && token < columns) chosen[at] = row[token];
                 });
               });
    for (size_t r = 0; r < count; ++r) {
      const size_t i = begin + r;
      out.logsumexp[i] = rows[r].logsumexp();
      out.logprobs[i] = logprob_of(&chosen[r], 0, inverse, out.logsumexp[i]);
      if (!want_entropy) continue;
      out.mean_logit[i] = rows[r].mean();
      out.entropies[i] = out.logsumexp[i] - out.mean_logit[i];
    }
  });
  decoder.count(head_work(decoder.config(), static_cast<int64_t>(targets.size())));
  return out;
}

void score_backward(Decoder& decoder, const at::Tensor& hidden_NH, std::span<const Target> targets,
                    const Scores& scores, double temperature, std::span<const float> d_logprob,
                    std::span<const float> d_entropy, at::Tensor& d_hidden_NH, ParameterSet& gradients) {
  const float inverse = inverse_of(temperature);
  if (on_tensors(decoder.config())) {
    return score_backward_on_device(decoder, hidden_NH, targets, scores, inverse, d_logprob, d_entropy, d_hidden_NH,
                                    gradients);
  }
  const int64_t width = hidden_NH.size(1);
  const float* head = decoder.parameters().root.head_VH.const_data_ptr<float>();
  float* d_head = gradients.root.head_VH.mutable_data_ptr<float>();
  float* d_hidden = d_hidden_NH.mutable_data_ptr<float>();
  for_chunks(targets.size(), [&](size_t begin, size_t count) {
    const at::Tensor rows_RH = gather(hidden_NH, targets.subspan(begin, count)), d_rows_RH = at::empty_like(rows_RH);
    const auto rows = static_cast<int64_t>(count);
    const float* x = rows_RH.const_data_ptr<float>();
    float* dx = d_rows_RH.mutable_data_ptr<float>();
    for_logits(decoder, rows_RH, [&](int64_t first, int64_t columns, float* logits) {  // become their gradient
      parallel_for(rows, kGrain, [&](int64_t r) {
        const size_t i = begin + static_cast<size_t>(r);
        float* row = logits + r * kSoftmaxBlock;
        const float weight = d_logprob.empty() ? 0 : d_logprob[i];
        softmax_gradient(row, columns, inverse,
                         {.logsumexp = scores.logsumexp[i],
                          .mean = scores.mean_logit[i],
                          .d_logprob = weight,
                          .d_entropy = d_entropy.empty() ? 0 : d_entropy[i]});
        const int64_t token = targets[i].token - first;
        if (token >= 0 && token < columns) row[token] += weight * inverse;
      });
      multiply(columns, width, rows, {logits, 1, kSoftmaxBlock}, x, width, true, d_head + first * width, width);
      multiply(rows, width, columns, {logits, kSoftmaxBlock, 1}, head + first * width, width, first > 0, dx, width);
    });
    for (size_t i = 0; i < count; ++i) {
      float* to = d_hidden + targets[begin + i].row * width;
      for (int64_t h = 0; h < width; ++h) to[h] += dx[i * width + h];
    }
  });
  decoder.count(head_work(decoder.config(), static_cast<int64_t>(targets.size())) * 3);
}

}  // namespace gyre
