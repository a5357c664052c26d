#include "model/score.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/parallel.h"
#include "kernels/product.h"
#include "kernels/vec.h"

namespace gyre {
namespace {

constexpr int64_t kGrainLogits = 16384;  // least worth handing to a thread

// Rows of logits held at a time: about 32 MiB, but at least 64 rows so that the head's weights are read for many rows
// at once.
int64_t chunk_rows(int64_t vocab) { return std::clamp<int64_t>((int64_t{1} << 23) / vocab, 64, 1024); }

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
void for_chunks(size_t targets, int64_t vocab, Body&& body) {
  const size_t rows = static_cast<size_t>(chunk_rows(vocab));
  for (size_t first = 0; first < targets; first += rows) body(first, std::min(rows, targets - first));
}

// logits of a chunk of targets, [R, V].
at::Tensor chunk_logits(Decoder& decoder, const at::Tensor& rows_RH) {
  at::Tensor logits_RV = at::empty({rows_RH.size(0), decoder.config().vocab_size}, rows_RH.options());
  decoder.logits(rows_RH, logits_RV);
  return logits_RV;
}

struct RowGradient {
  float logsumexp, mean_logit, d_logprob, d_entropy;
};

// Turns a row of logits z into the gradient of d_logprob·logprob + d_entropy·entropy with respect to it. With p =
// softmax(z/T):
//   d logprob / d z = (onehot - p) / T        d entropy / d z = -p·(z/T - Σ p·z/T) / T
void gradient_row(float* logits, int64_t vocab, int32_t token, float inverse_temperature, const RowGradient& g) {
  const vf scale = splat(inverse_temperature), shift = splat(-g.logsumexp);
  const vf d_logprob = splat(g.d_logprob), d_entropy = splat(g.d_entropy), mean = splat(g.mean_logit);
  for (int64_t j = 0; j < vocab; j += kLanes) {
    const vf x = load_first(logits + j, vocab - j) * scale;
    const vf p = exponential(x + shift);
    const vf d = -p * (d_logprob + d_entropy * (x - mean)) * scale;
    store_first(logits + j, d, vocab - j);
  }
  logits[token] += g.d_logprob * inverse_temperature;
}

float inverse_of(double temperature) {
  if (!(std::isfinite(temperature) && temperature > 0)) {
    throw std::invalid_argument("score: temperature is " + std::to_string(temperature) + ", expected a number > 0");
  }
  return static_cast<float>(1.0 / temperature);
}

}  // namespace

RowScore score_row(const float* logits, int64_t vocab, float inverse_temperature, bool want_entropy) {
  const int64_t whole = vocab / kLanes * kLanes, rest = vocab - whole;
  vf tail = splat(-std::numeric_limits<float>::infinity());
  if (rest > 0) std::memcpy(&tail, logits + whole, rest * sizeof(float));

  vf lane_max = tail;
  for (int64_t j = 0; j < whole; j += kLanes) lane_max = maximum(lane_max, load(logits + j));
  const float max = reduce_max(lane_max) * inverse_temperature;

  // Shifted by the maximum: sum = Σ e^y and, for the entropy, first = Σ e^y·y with y = z/T - max.
  const vf scale = splat(inverse_temperature), shift = splat(-max);
  vf sum{}, first{};
  for (int64_t j = 0; j < whole; j += kLanes) {
    const vf y = load(logits + j) * scale + shift;
    const vf e = exponential(y);
    sum += e;
    if (want_entropy) first += e * y;
  }
  if (rest > 0) {
    const vf y = tail * scale + shift;
    const vf e = exponential(y);
    sum += e;
    if (want_entropy) first += lane_index() < static_cast<int32_t>(rest) ? e * y : vf{};  // 0·(-inf) beyond the row
  }
  const float total = reduce_sum(sum);
  return {.logsumexp = max + std::log(total), .mean_logit = want_entropy ? max + reduce_sum(first) / total : 0};
}

Scores score(Decoder& decoder, const at::Tensor& hidden_NH, std::span<const Target> targets, double temperature,
             bool want_entropy) {
  const float inverse = inverse_of(temperature);
  const int64_t vocab = decoder.config().vocab_size;
  Scores out;
  for (auto* values : {&out.logprobs, &out.entropies, &out.logsumexp, &out.mean_logit}) values->resize(targets.size());
  for_chunks(targets.size(), vocab, [&](size_t begin, size_t count) {
    const at::Tensor logits_RV = chunk_logits(decoder, gather(hidden_NH, targets.subspan(begin, count)));
    const float* logits = logits_RV.const_data_ptr<float>();
    parallel_for(static_cast<int64_t>(count), std::max<int64_t>(1, kGrainLogits / vocab), [&](int64_t r) {
      const float* row = logits + r * vocab;
      const size_t i = begin + r;
      const RowScore s = score_row(row, vocab, inverse, want_entropy);
      out.logsumexp[i] = s.logsumexp;
      out.mean_logit[i] = s.mean_logit;
      out.logprobs[i] = logprob_of(row, targets[i].token, inverse, s.logsumexp);
      if (want_entropy) out.entropies[i] = s.logsumexp - s.mean_logit;
    });
  });
  return out;
}

void score_backward(Decoder& decoder, const at::Tensor& hidden_NH, std::span<const Target> targets,
                    const Scores& scores, double temperature, std::span<const float> d_logprob,
                    std::span<const float> d_entropy, at::Tensor& d_hidden_NH, ParameterSet& gradients) {
  const float inverse = inverse_of(temperature);
  const int64_t vocab = decoder.config().vocab_size, width = hidden_NH.size(1);
  const float* head = decoder.parameters().root.head_VH.const_data_ptr<float>();
  float* d_head = gradients.root.head_VH.mutable_data_ptr<float>();
  float* d_hidden = d_hidden_NH.mutable_data_ptr<float>();
  for_chunks(targets.size(), vocab, [&](size_t begin, size_t count) {
    const at::Tensor rows_RH = gather(hidden_NH, targets.subspan(begin, count));
    const at::Tensor logits_RV = chunk_logits(decoder, rows_RH);  // becomes the gradient in place
    float* logits = logits_RV.mutable_data_ptr<float>();
    parallel_for(static_cast<int64_t>(count), std::max<int64_t>(1, kGrainLogits / vocab), [&](int64_t r) {
      const size_t i = begin + r;
      gradient_row(logits + r * vocab, vocab, targets[i].token, inverse,
                   {.logsumexp = scores.logsumexp[i],
                    .mean_logit = scores.mean_logit[i],
                    .d_logprob = d_logprob.empty() ? 0 : d_logprob[i],
                    .d_entropy = d_entropy.empty() ? 0 : d_entropy[i]});
    });
    const auto chunk = static_cast<int64_t>(count);
    const at::Tensor d_rows_RH = at::empty_like(rows_RH);
    float* d_rows = d_rows_RH.mutable_data_ptr<float>();
    multiply(vocab, width, chunk, {logits, 1, vocab}, rows_RH.const_data_ptr<float>(), width, true, d_head, width);
    multiply(chunk, width, vocab, {logits, vocab, 1}, head, width, false, d_rows, width);
    for (size_t i = 0; i < count; ++i) {
      float* to = d_hidden + targets[begin + i].row * width;
      for (int64_t h = 0; h < width; ++h) to[h] += d_rows[i * width + h];
    }
  });
  decoder.count(head_work(decoder.config(), static_cast<int64_t>(targets.size())) * 2);
}

}  // namespace gyre
