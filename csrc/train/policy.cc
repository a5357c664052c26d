#include "train/policy.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <vector>

#include "model/score.h"
#include "train/loss.h"

namespace gyre {
namespace {

void check(const Decoder& decoder, const Batch& batch, const PolicyInputs& inputs, const gyre_policy_loss& loss,
           const Components& into) {
  if (decoder.config().head != HeadKind::kLanguageModel) {
    throw std::invalid_argument("policy loss: the model has a value head, expected a language model");
  }
  validate(batch, decoder.config());
  validate(loss);
  require_finite(batch, inputs.weights, "weight");
  if (loss.objective == GYRE_POLICY_PPO) {
    require_finite(batch, inputs.old_logprobs, "old log-prob");
    require_finite(batch, inputs.advantages, "advantage");
  }
  if (has_kl(loss)) require_finite(batch, inputs.ref_logprobs, "reference log-prob");
  for (const Gradients* g : {into.task, into.entropy, into.kl}) {
    if (g != nullptr) g->require_config(decoder.config());
  }
}

// Derivatives of the loss terms with respect to each target's log-prob and entropy.
struct Derivatives {
  explicit Derivatives(size_t n) : task(n), entropy(n), kl(n) {}
  std::vector<float> task, entropy, kl;
};

gyre_policy_stats evaluate(std::span<const int64_t> tokens, const Scores& scores, const PolicyInputs& inputs,
                           const gyre_policy_loss& loss, Derivatives& d) {
  gyre_policy_stats stats{};
  const bool ppo = loss.objective == GYRE_POLICY_PPO;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int64_t t = tokens[i];
    const double weight = inputs.weights[t], logprob = scores.logprobs[i], entropy = scores.entropies[i];
    const double old_logprob = ppo ? inputs.old_logprobs[t] : logprob;

    const TokenLoss task = policy_term(loss, logprob, old_logprob, ppo ? inputs.advantages[t] : 0);
    stats.tokens += 1;
    stats.policy_loss += weight * task.value;
    stats.clipped += task.clipped;
    stats.clipped_lower += task.clipped_lower;
    d.task[i] = static_cast<float>(weight * task.derivative);

    stats.entropy += weight * entropy;
    stats.entropy_loss -= weight * loss.entropy_coef * entropy;
    d.entropy[i] = static_cast<float>(-weight * loss.entropy_coef);

    if (has_kl(loss)) {
      const TokenKl kl = kl_term(loss, logprob, inputs.ref_logprobs[t]);
      stats.kl += weight * kl.value;
      stats.kl_loss += weight * loss.kl_coef * kl.value;
      d.kl[i] = static_cast<float>(weight * loss.kl_coef * kl.derivative);
    }

    const double gap = std::abs(logprob - old_logprob);
    stats.log_ratio += old_logprob - logprob;
    stats.logprob_gap_sum += gap;
    stats.logprob_gap_max = std::max(stats.logprob_gap_max, gap);
  }
  return stats;
}

// The terms that go into one buffer, summed.
struct BackwardPass {
  Gradients* into;
  std::vector<float> d_logprob, d_entropy;  // empty when the terms do not depend on it
};

bool all_zero(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return v == 0; });
}

void add_to(std::vector<float>& sum, std::span<const float> values) {
  sum.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
}

// One pass per distinct buffer; a term whose derivatives are all zero needs none.
std::vector<BackwardPass> plan(const Components& into, const Derivatives& d) {
  std::vector<BackwardPass> passes;
  const auto join = [&](Gradients* g, std::vector<float> BackwardPass::* sum, std::span<const float> values) {
    if (g == nullptr || all_zero(values)) return;
    auto pass = std::find_if(passes.begin(), passes.end(), [&](const BackwardPass& p) { return p.into == g; });
    if (pass == passes.end()) pass = passes.insert(passes.end(), {.into = g, .d_logprob = {}, .d_entropy = {}});
    add_to((*pass).*sum, values);
  };
  join(into.task, &BackwardPass::d_logprob, d.task);
  join(into.entropy, &BackwardPass::d_entropy, d.entropy);
  join(into.kl, &BackwardPass::d_logprob, d.kl);
  return passes;
}

}  // namespace

gyre_policy_stats policy_backward(Decoder& decoder, const Batch& batch, const PolicyInputs& inputs,
                                  const gyre_policy_loss& loss, const Components& into, const PolicyOutputs& outputs) {
  check(decoder, batch, inputs, loss, into);
  const Packing packing = pack(batch.ids, batch.offsets);
  const auto [tokens, targets] = predicted(batch, packing);
  std::unique_ptr<Activations> kept;
  const at::Tensor hidden_NH = decoder.forward(packing, &kept);
  const Scores scores = score(decoder, hidden_NH, targets, loss.temperature, /*want_entropy=*/true);
  scatter(tokens, scores.logprobs, outputs.logprobs);
  scatter(tokens, scores.entropies, outputs.entropies);
  require_finite_results(batch, tokens, scores.logprobs, "log-prob");
  require_finite_results(batch, tokens, scores.entropies, "entropy");

  Derivatives derivatives(tokens.size());
  const gyre_policy_stats stats = evaluate(tokens, scores, inputs, loss, derivatives);
  for (const BackwardPass& pass : plan(into, derivatives)) {
    at::Tensor d_hidden_NH = at::zeros_like(hidden_NH);
    score_backward(decoder, hidden_NH, targets, scores, loss.temperature, pass.d_logprob, pass.d_entropy, d_hidden_NH,
                   pass.into->set());
    decoder.backward(d_hidden_NH, *kept, pass.into->set());
  }
  return stats;
}

}  // namespace gyre
