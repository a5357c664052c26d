// Log-probs and entropies of chosen tokens on tensors, and the value head: only numbers per token leave the device.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>

#include "backend/aten/network.h"

namespace gyre {
namespace {

// Rows of logits held at a time: about 128 MiB of f32.
int64_t chunk_rows(int64_t vocab) { return std::max<int64_t>((int64_t{1} << 25) / vocab, 64); }

// Targets `begin` .. `begin + count - 1` on the device.
struct Chunk {
  size_t begin, count;
  at::Tensor rows_R, tokens_R;  // int64
};

template <typename Body>
void for_chunks(std::span<const Target> targets, int64_t vocab, at::Device device, Body&& body) {
  const auto most = static_cast<size_t>(chunk_rows(vocab));
  for (size_t begin = 0; begin < targets.size(); begin += most) {
    const size_t count = std::min(most, targets.size() - begin);
    std::vector<int64_t> numbers(2 * count);
    for (size_t i = 0; i < count; ++i) {
      numbers[i] = targets[begin + i].row;
      numbers[count + i] = targets[begin + i].token;
    }
    const at::Tensor both_2R = to_device(numbers.data(), {2, static_cast<int64_t>(count)}, device);
    body(Chunk{begin, count, both_2R.select(0, 0), both_2R.select(0, 1)});
  }
}

void append(const at::Tensor& values_R, std::vector<float>& out) {
  const at::Tensor host = values_R.to(at::kCPU).contiguous();
  const float* values = host.const_data_ptr<float>();
  out.insert(out.end(), values, values + host.numel());
}

// Of each row of logits over temperature.
struct RowSums {
  at::Tensor logsumexp_R1, mean_R1;  // the mean logit under the softmax; undefined unless it is wanted
};

// The scores of a chunk from its logits over temperature: one copy to the host.
RowSums append_scores(const at::Tensor& z_RV, const Chunk& chunk, bool want_entropy, Scores& out) {
  const at::Tensor logsumexp_R = at::logsumexp(z_RV, 1);
  std::vector<at::Tensor> columns{logsumexp_R, z_RV.gather(1, chunk.tokens_R.unsqueeze(1)).squeeze(1) - logsumexp_R};
  at::Tensor mean_R;
  if (want_entropy) {
    mean_R = at::exp(z_RV - logsumexp_R.unsqueeze(1)).mul_(z_RV).sum(1);
    columns.insert(columns.end(), {mean_R, logsumexp_R - mean_R});
  }
  const at::Tensor host = at::stack(columns).to(at::kCPU);
  const float* values = host.const_data_ptr<float>();
  for (std::vector<float>* column : {&out.logsumexp, &out.logprobs, &out.mean_logit, &out.entropies}) {
    const bool wanted = want_entropy || column == &out.logsumexp || column == &out.logprobs;
    if (wanted) {
      column->insert(column->end(), values, values + chunk.count);
      values += chunk.count;
    } else {
      column->resize(column->size() + chunk.count);
    }
  }
  return {logsumexp_R.unsqueeze(1), want_entropy ? mean_R.unsqueeze(1) : mean_R};
}

// Adds the support's tokens and its outcomes to the scores of a chunk.
void append_outcomes(const at::Tensor& z_RV, const at::Tensor& ids_RK, Scores& out) {
  const at::Tensor host_RK = ids_RK.to(at::kCPU, at::kInt).contiguous();
  out.support.insert(out.support.end(), host_RK.const_data_ptr<int32_t>(),
                     host_RK.const_data_ptr<int32_t>() + host_RK.numel());
  const at::Tensor others_R1 =
      at::logsumexp(z_RV.scatter(1, ids_RK, -std::numeric_limits<float>::infinity()), 1, /*keepdim=*/true);
  append(at::cat({z_RV.gather(1, ids_RK), others_R1}, 1) - at::logsumexp(z_RV, 1, true), out.outcomes);
}

// The derivatives of log-probs and of entropies, a column each.
at::Tensor slopes_of(const ScoreGradient& gradient, const Chunk& chunk) {
  std::vector<float> both(2 * chunk.count);  // zeros where there are none
  std::ranges::copy(gradient.d_logprob, both.begin());
  std::ranges::copy(gradient.d_entropy, both.begin() + static_cast<ptrdiff_t>(chunk.count));
  return to_device(both.data(), {2, static_cast<int64_t>(chunk.count), 1}, chunk.rows_R.device());
}

// With z = logits/T and p = softmax(z): d logprob / d z = onehot - p, d entropy / d z = -p·(z - Σ p·z).
// `lora`, of scale `scale`: the adapter's beside the head; undefined tensors for none.
void chunk_backward(const at::Tensor& head_VH, const LoraTensors& lora, double scale, const at::Tensor& rows_RH,
                    const at::Tensor& z_RV, const at::Tensor& ids_RK, const Chunk& chunk, float inverse_temperature,
                    const RowSums& sums, const ScoreGradient& gradient, const gyre_shape& shape) {
  const int64_t vocab = head_VH.size(0);
  const at::Tensor slopes_2R1 = slopes_of(gradient, chunk);
  const at::Tensor d_logprob_R1 = slopes_2R1[0];
  at::Tensor d_RV = at::exp(z_RV - sums.logsumexp_R1).neg_();
  d_RV.mul_((z_RV - sums.mean_R1).mul_(slopes_2R1[1]).add_(d_logprob_R1));
  const at::Tensor at_target_R =
      at::arange(static_cast<int64_t>(chunk.count), chunk.rows_R.options()).mul_(vocab).add_(chunk.tokens_R);
  d_RV.view({-1}).index_add_(0, at_target_R, d_logprob_R1.squeeze(1));
  if (!gradient.slopes.empty()) {
    const int64_t k = ids_RK.size(1);
    const at::Tensor slopes = to_device(gradient.slopes.data(), {ids_RK.size(0), k + 1}, z_RV.device());
    const at::Tensor all_RV = slopes.narrow(1, k, 1).expand_as(z_RV).scatter(1, ids_RK, slopes.narrow(1, 0, k));
    d_RV.add_(at::exp(z_RV - sums.logsumexp_R1).mul_(all_RV));
  }
  d_RV.mul_(inverse_temperature);
  if (shape.logit_cap != 0) d_RV.mul_(1 - (z_RV / (inverse_temperature * shape.logit_cap)).square());
  if (shape.logit_scale != 0) d_RV.mul_(shape.logit_scale);
  RootTensors& into = gradient.gradients->root;
  if (into.head_VH.defined()) into.head_VH.addmm_(d_RV.t(), rows_RH);
  at::Tensor d_hidden_NH = gradient.d_hidden_NH;
  d_hidden_NH.index_add_(0, chunk.rows_R, at::mm(d_RV, head_VH));
  if (!into.head_lora.a_SI.defined()) return;
  const at::Tensor du = at::mm(d_RV, lora.b_OR) * scale;
  into.head_lora.b_OR.addmm_(d_RV.t(), at::mm(rows_RH, lora.a_SI.t()) * scale);
  into.head_lora.a_SI.addmm_(du.t(), rows_RH);
  d_hidden_NH.index_add_(0, chunk.rows_R, at::mm(du, lora.a_SI));
}

}  // namespace

at::Tensor AtenNetwork::logits_of(const at::Tensor& rows_RH) {
  at::Tensor logits_RV = at::empty({rows_RH.size(0), config_.vocab_size}, rows_RH.options());
  logits(rows_RH, own_rows(rows_RH.size(0)), logits_RV);
  return logits_RV;
}

Scores AtenNetwork::score(const at::Tensor& hidden_NH, std::span<const Target> targets, float inverse_temperature,
                          bool want_entropy, int64_t k) {
  Scores out;
  for_chunks(targets, config_.vocab_size, hidden_NH.device(), [&](const Chunk& chunk) {
    const at::Tensor z_RV = logits_of(hidden_NH.index_select(0, chunk.rows_R)).mul_(inverse_temperature);
    append_scores(z_RV, chunk, want_entropy, out);
    if (k > 0) append_outcomes(z_RV, std::get<1>(at::topk(z_RV, k, 1)), out);
  });
  return out;
}

void AtenNetwork::score_backward(const at::Tensor& hidden_NH, std::span<const Target> targets,
                                 float inverse_temperature, const Support& support, const Dropout&,
                                 const Objective& objective) {
  for_chunks(targets, config_.vocab_size, hidden_NH.device(), [&](const Chunk& chunk) {
    const at::Tensor rows_RH = hidden_NH.index_select(0, chunk.rows_R);
    const at::Tensor z_RV = logits_of(rows_RH).mul_(inverse_temperature);
    Scores scores;
    const RowSums sums = append_scores(z_RV, chunk, true, scores);
    at::Tensor ids_RK;
    if (const auto k = static_cast<size_t>(support.k); k > 0) {
      const std::span<const int32_t> ids = support.ids.subspan(chunk.begin * k, chunk.count * k);
      ids_RK = to_device(ids.data(), {rows_RH.size(0), support.k}, z_RV.device()).to(at::kLong);
      append_outcomes(z_RV, ids_RK, scores);
    }
    read_.enter(kRoot);
    const LoraTensors none, &lora = adapter_ ? adapter_->root().head_lora : none;
    for (const ScoreGradient& gradient : objective(chunk.begin, scores)) {
      gradient.gradients->enter(kRoot);
      chunk_backward(parameters_.root.head_VH, lora, config_.lora.scale, rows_RH, z_RV, ids_RK, chunk,
                     inverse_temperature, sums, gradient, config_.shape);
    }
  });
}

at::Tensor AtenNetwork::value_backward(const at::Tensor& hidden_NH, std::span<const Target> targets,
                                       std::span<const double> d_values, ParameterSet& gradients) {
  at::Tensor d_hidden_NH = at::zeros_like(hidden_NH);
  read_.enter(kRoot);
  gradients.enter(kRoot);
  for_chunks(targets, 1, hidden_NH.device(), [&](const Chunk& chunk) {
    const std::vector<float> host(d_values.begin() + static_cast<ptrdiff_t>(chunk.begin),
                                  d_values.begin() + static_cast<ptrdiff_t>(chunk.begin + chunk.count));
    const at::Tensor d_R1 = to_device(host.data(), {static_cast<int64_t>(chunk.count), 1}, hidden_NH.device());
    gradients.root.score_1H.add_(at::mm(d_R1.t(), hidden_NH.index_select(0, chunk.rows_R)));
    gradients.root.score_bias_1.add_(d_R1.sum());
    d_hidden_NH.index_add_(0, chunk.rows_R, at::mm(d_R1, value_root().score_1H));
  });
  return d_hidden_NH;
}

}  // namespace gyre
