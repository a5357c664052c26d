#include "train/value.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <memory>
#include <stdexcept>

#include "device/placement.h"
#include "device/score.h"
#include "train/loss.h"

namespace gyre {
namespace {

void check(const Decoder& critic, const Batch& batch, const ValueInputs& inputs, const Gradients& into) {
  if (critic.config().head != HeadKind::kValue) {
    throw std::invalid_argument("value loss: the model has a language-model head, expected a value head");
  }
  if (!std::isfinite(inputs.clip)) throw std::invalid_argument("value loss: clip is not finite");
  validate(batch, critic.config());
  require_finite(batch, inputs.weights, "weight");
  require_finite(batch, inputs.returns, "return");
  if (inputs.clip > 0) require_finite(batch, inputs.old_values, "old value");
  into.require_config(critic.config());
}

// Adds the head's gradients and returns the gradient of the hidden states.
at::Tensor head_backward(const Decoder& critic, const at::Tensor& hidden_NH, std::span<const Target> targets,
                         std::span<const double> d_values, ParameterSet& gradients) {
  if (on_tensors(critic.config())) return value_backward_on_device(critic, hidden_NH, targets, d_values, gradients);
  const int64_t width = hidden_NH.size(1);
  const float* hidden = hidden_NH.const_data_ptr<float>();
  const float* head = critic.parameters().root.score_1H.const_data_ptr<float>();
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

}  // namespace

std::vector<float> value_head(Decoder& critic, const at::Tensor& hidden_NH, std::span<const Target> targets) {
  at::Tensor values_N1 = at::empty({hidden_NH.size(0), 1}, hidden_NH.options());
  critic.logits(hidden_NH, values_N1);
  const at::Tensor host_N1 = values_N1.to(at::kCPU);
  const float* all = host_N1.const_data_ptr<float>();
  std::vector<float> values(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) values[i] = all[targets[i].row];
  return values;
}

gyre_value_stats value_backward(Decoder& critic, const Batch& batch, const ValueInputs& inputs, Gradients& into,
                                std::span<float> values_out) {
  check(critic, batch, inputs, into);
  const Packing packing = pack(batch.ids, batch.offsets);
  const auto [tokens, targets] = predicted(batch, packing);
  std::unique_ptr<Activations> kept;
  const at::Tensor hidden_NH = critic.forward(packing, &kept);
  const std::vector<float> values = value_head(critic, hidden_NH, targets);
  scatter(tokens, values, values_out);
  require_finite_results(batch, tokens, values, "value");

  gyre_value_stats stats{};
  std::vector<double> d_values(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int64_t t = tokens[i];
    const double old_value = inputs.clip > 0 ? inputs.old_values[t] : 0;
    const TokenLoss term = value_term(values[i], inputs.returns[t], old_value, inputs.clip);
    stats.tokens += 1;
    stats.loss += inputs.weights[t] * term.value;
    stats.clipped += term.clipped;
    stats.value_sum += values[i];
    d_values[i] = inputs.weights[t] * term.derivative;
  }
  critic.backward({{head_backward(critic, hidden_NH, targets, d_values, into.set()), &into.set()}}, *kept);
  return stats;
}

}  // namespace gyre
