#include "train/value.h"

#include <cmath>
#include <memory>
#include <stdexcept>

#include "train/loss.h"

namespace gyre {
namespace {

void check(const Decoder& critic, const Batch& batch, const ValueInputs& inputs, const Gradients& into) {
  if (critic.config().head != GYRE_HEAD_VALUE) {
    throw std::invalid_argument(
        "value loss: the model has a language-model "
        "head, expected a value head");
  }
  if (!std::isfinite(inputs.clip)) throw std::invalid_argument("value loss: clip is not finite");
  validate(batch, critic.config());
  require_finite(batch, inputs.weights, "weight");
  require_finite(batch, inputs.returns, "return");
  if (inputs.clip > 0) require_finite(batch, inputs.old_values, "old value");
  into.require_config(critic.config());
}

}  // namespace

gyre_value_stats value_backward(Decoder& critic, const Batch& batch, const ValueInputs& inputs, Gradients& into,
                                std::span<float> values_out) {
  if (critic.in_step() && batch.ids.empty()) {
    into.require_config(critic.config());
    ParameterSet* const buffer = &into.set();
    critic.empty_pass(true, {&buffer, 1});
    critic.end_passes();
    return {};
  }
  check(critic, batch, inputs, into);
  const Packing packing = pack(batch.ids, batch.offsets);
  const auto [tokens, targets] = predicted(batch, packing);
  std::unique_ptr<Activations> kept;
  const at::Tensor hidden_NH = critic.forward(packing, &kept);
  const std::vector<float> values = critic.values(hidden_NH, targets);
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
  critic.backward({{critic.value_backward(hidden_NH, targets, d_values, into.set()), &into.set()}}, *kept);
  critic.end_passes();
  return stats;
}

}  // namespace gyre
