#include <memory>

#include "train/losses/loss.h"
#include "train/passes.h"

namespace gyre {

gyre_value_stats value_backward(Decoder& critic, const Batch& batch, const float* returns, const float* old_values,
                                const float* weights, double clip, Gradients& into, float* values_out,
                                const gyre_dropout& dropout) {
  into.require_config(critic.config());
  if (critic.in_step() && batch.ids.empty()) {
    ParameterSet* const buffer = &into.set();
    critic.empty_pass(true, {&buffer, 1});
    critic.end_passes();
    return {};
  }
  require(critic.config().head == GYRE_HEAD_VALUE,
          "value loss: the model has a language-model head, expected a value head");
  validate(batch, critic.config());
  require_finite(batch, weights, "weight");
  require_finite(batch, returns, "return");
  if (clip > 0) require_finite(batch, old_values, "old value");

  const Packing packing = pack(batch.ids, batch.offsets);
  const auto [tokens, targets] = predicted(batch, packing);
  std::unique_ptr<Activations> kept;
  const at::Tensor hidden_NH = critic.forward(packing, &kept, dropout);
  const std::vector<float> values = critic.values(hidden_NH, targets);
  scatter(batch, tokens, values, values_out);
  require_finite_results(batch, tokens, values, "value");

  gyre_value_stats stats{};
  std::vector<double> d_values(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int64_t t = tokens[i];
    const TokenLoss term = value_term(values[i], returns[t], clip > 0 ? old_values[t] : 0, clip);
    stats.tokens += 1;
    stats.loss += weights[t] * term.value;
    stats.clipped += term.clipped;
    stats.value_sum += values[i];
    d_values[i] = weights[t] * term.derivative;
  }
  critic.backward({{critic.value_backward(hidden_NH, targets, d_values, into.set()), &into.set()}}, *kept);
  critic.end_passes();
  return stats;
}

}  // namespace gyre
