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

// Adds the tokens' terms to stats and writes their derivatives.
void evaluate(std::span<const int64_t> tokens, const Scores& scores, const PolicyInputs& inputs,
              const gyre_policy_loss& loss, gyre_policy_stats& stats, Derivatives& d) {
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
}

bool all_zero(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return v == 0; });
}

void add_to(std::vector<float>& sum, std::span<const float> values) {
  sum.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
}

// The terms that go into one buffer, summed: one backward pass.
struct BackwardPass {
  Gradients* into;
  std::vector<float> d_logprob, d_entropy;  // of a chunk of targets; empty when no term depends on it
  at::Tensor d_hidden_NH;
};

// One pass per distinct buffer; a term whose derivatives are all zero needs none.
class BackwardPasses {
 public:
  // Passes write gradients shaped like hidden_NH.
  BackwardPasses(const Components& into, const at::Tensor& hidden_NH) : hidden_NH_(hidden_NH), into_(into) {}

  // Takes the derivatives of the next chunk. Valid until the next call.
  std::vector<ScoreGradient> take(const Derivatives& d) {
    for (BackwardPass& pass : passes_) pass.d_logprob.clear(), pass.d_entropy.clear();
    join(into_.task, &BackwardPass::d_logprob, d.task);
    join(into_.entropy, &BackwardPass::d_entropy, d.entropy);
    join(into_.kl, &BackwardPass::d_logprob, d.kl);
    std::vector<ScoreGradient> gradients;
    for (BackwardPass& pass : passes_) {
      if (pass.d_logprob.empty() && pass.d_entropy.empty()) continue;
      gradients.push_back({pass.d_logprob, pass.d_entropy, pass.d_hidden_NH, &pass.into->set()});
    }
    return gradients;
  }

  void run(Decoder& decoder, const Activations& kept) {
    std::vector<HiddenGradient> all;
    for (const BackwardPass& pass : passes_) all.push_back({pass.d_hidden_NH, &pass.into->set()});
    decoder.backward(all, kept);
  }

 private:
  void join(Gradients* g, std::vector<float> BackwardPass::* sum, std::span<const float> values) {
    if (g == nullptr || all_zero(values)) return;
    auto pass = std::find_if(passes_.begin(), passes_.end(), [&](const BackwardPass& p) { return p.into == g; });
    if (pass == passes_.end()) pass = passes_.insert(passes_.end(), {g, {}, {}, at::zeros_like(hidden_NH_)});
    add_to((*pass).*sum, values);
  }

  at::Tensor hidden_NH_;
  Components into_;
  std::vector<BackwardPass> passes_;
};

}  // namespace

gyre_policy_stats policy_backward(Decoder& decoder, const Batch& batch, const PolicyInputs& inputs,
                                  const gyre_policy_loss& loss, const Components& into, const PolicyOutputs& outputs) {
  check(decoder, batch, inputs, loss, into);
  const Packing packing = pack(batch.ids, batch.offsets);
  const Predicted p = predicted(batch, packing);
  const std::vector<int64_t>& tokens = p.tokens;
  std::unique_ptr<Activations> kept;
  const at::Tensor hidden_NH = decoder.forward(packing, &kept);
  BackwardPasses passes(into, hidden_NH);
  gyre_policy_stats stats{};
  std::vector<float> logprobs, entropies;  // per target
  score_backward(decoder, hidden_NH, p.targets, loss.temperature, [&](size_t first, const Scores& chunk) {
    const auto here = std::span(tokens).subspan(first, chunk.logprobs.size());
    require_finite_results(batch, here, chunk.logprobs, "log-prob");
    require_finite_results(batch, here, chunk.entropies, "entropy");
    logprobs.insert(logprobs.end(), chunk.logprobs.begin(), chunk.logprobs.end());
    entropies.insert(entropies.end(), chunk.entropies.begin(), chunk.entropies.end());
    Derivatives derivatives(here.size());
    evaluate(here, chunk, inputs, loss, stats, derivatives);
    return passes.take(derivatives);
  });
  passes.run(decoder, *kept);
  scatter(tokens, logprobs, outputs.logprobs);
  scatter(tokens, entropies, outputs.entropies);
  return stats;
}

}  // namespace gyre
