#include "train/policy.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "train/loss.h"

namespace gyre {
namespace {

[[noreturn]] void refuse(const Term& c, const std::string& what) {
  throw std::invalid_argument("policy loss: term \"" + std::string(c.name) + "\": " + what);
}

// The terms with the inputs' advantages and weights where they bring none of their own.
std::vector<Term> complete(const Decoder& decoder, const Batch& batch, const PolicyInputs& inputs,
                                const gyre_policy_loss& loss, std::span<const Term> terms) {
  const bool ppo = loss.objective == GYRE_POLICY_PPO;
  std::vector<Term> all(terms.begin(), terms.end());
  std::set<std::string_view> names;
  for (Term& c : all) {
    if (!names.insert(c.name).second) refuse(c, "the name is given twice");
    if (c.kind < GYRE_TERM_TASK || c.kind > GYRE_TERM_KL) {
      refuse(c, "kind is " + std::to_string(c.kind) + ", expected 0 to 2 (task, entropy, KL)");
    }
    if (c.weights.empty()) c.weights = inputs.weights;
    if (c.weights.size() != batch.ids.size()) refuse(c, "no weights, neither its own nor the inputs'");
    require_finite(batch, c.weights, "weight");
    if (c.into != nullptr) c.into->require_config(decoder.config());
    if (c.kind != GYRE_TERM_TASK || !ppo) continue;
    if (c.advantages.empty()) c.advantages = inputs.advantages;
    if (c.advantages.size() != batch.ids.size()) refuse(c, "no advantages, neither its own nor the inputs'");
    require_finite(batch, c.advantages, "advantage");
  }
  return all;
}

void check(const Decoder& decoder, const Batch& batch, const PolicyInputs& inputs, const gyre_policy_loss& loss) {
  if (decoder.config().head != GYRE_HEAD_LM) {
    throw std::invalid_argument("policy loss: the model has a value head, expected a language model");
  }
  validate(batch, decoder.config());
  validate(loss);
  if (loss.objective == GYRE_POLICY_PPO) require_finite(batch, inputs.old_logprobs, "old log-prob");
  if (has_kl(loss)) require_finite(batch, inputs.ref_logprobs, "reference log-prob");
}

// What the policy's tokens say whatever the loss.
void add_tokens(std::span<const int64_t> tokens, const Scores& scores, std::span<const float> old_logprobs,
                gyre_policy_stats& stats) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const double logprob = scores.logprobs[i], old = old_logprobs.empty() ? logprob : old_logprobs[tokens[i]];
    const double gap = std::abs(logprob - old);
    stats.tokens += 1;
    stats.log_ratio += std::clamp(old - logprob, -kLogRatioLimit, kLogRatioLimit);
    stats.logprob_gap_sum += gap;
    stats.logprob_gap_max = std::max(stats.logprob_gap_max, gap);
  }
}

// Adds a term's values at the tokens to stats and returns their derivatives with respect to each token's log-prob,
// or entropy for an entropy term.
std::vector<float> evaluate(const Term& c, std::span<const int64_t> tokens, const Scores& scores,
                            const PolicyInputs& inputs, const gyre_policy_loss& loss, gyre_term_stats& stats) {
  const bool ppo = loss.objective == GYRE_POLICY_PPO;
  std::vector<float> d(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int64_t t = tokens[i];
    const double weight = c.weights[t], logprob = scores.logprobs[i], entropy = scores.entropies[i];
    switch (c.kind) {
      case GYRE_TERM_TASK: {
        const TokenLoss task =
            policy_term(loss, logprob, ppo ? inputs.old_logprobs[t] : logprob, ppo ? c.advantages[t] : 0);
        stats.loss += weight * task.value;
        stats.clipped += task.clipped;
        stats.clipped_lower += task.clipped_lower;
        d[i] = static_cast<float>(weight * task.derivative);
        break;
      }
      case GYRE_TERM_ENTROPY:
        stats.value += weight * entropy;
        stats.loss -= weight * loss.entropy_coef * entropy;
        d[i] = static_cast<float>(-weight * loss.entropy_coef);
        break;
      case GYRE_TERM_KL: {
        if (!has_kl(loss)) break;
        const TokenKl kl = kl_term(loss, logprob, inputs.ref_logprobs[t]);
        stats.value += weight * kl.value;
        stats.loss += weight * loss.kl_coef * kl.value;
        d[i] = static_cast<float>(weight * loss.kl_coef * kl.derivative);
        break;
      }
    }
  }
  if (c.kind == GYRE_TERM_TASK) stats.value = stats.loss;
  return d;
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
  explicit BackwardPasses(const at::Tensor& hidden_NH) : hidden_NH_(hidden_NH) {}

  // The next chunk of targets begins.
  void begin() {
    for (BackwardPass& pass : passes_) pass.d_logprob.clear(), pass.d_entropy.clear();
  }
  // Takes the derivatives of a term.
  void join(const Term& c, std::span<const float> values) {
    if (c.into == nullptr || all_zero(values)) return;
    auto pass = std::find_if(passes_.begin(), passes_.end(), [&](const BackwardPass& p) { return p.into == c.into; });
    if (pass == passes_.end()) pass = passes_.insert(passes_.end(), {c.into, {}, {}, at::zeros_like(hidden_NH_)});
    add_to(c.kind == GYRE_TERM_ENTROPY ? pass->d_entropy : pass->d_logprob, values);
  }
  // What the chunk's terms have given. Valid until begin().
  std::vector<ScoreGradient> gradients() const {
    std::vector<ScoreGradient> all;
    for (const BackwardPass& pass : passes_) {
      if (pass.d_logprob.empty() && pass.d_entropy.empty()) continue;
      all.push_back({pass.d_logprob, pass.d_entropy, pass.d_hidden_NH, &pass.into->set()});
    }
    return all;
  }

  // A pass for each of these buffers, in their order, whatever the terms give: other ranks wait for them.
  void begin_with(std::span<ParameterSet* const> buffers, std::span<const Term> terms) {
    for (const ParameterSet* buffer : buffers) {
      const auto c = std::ranges::find_if(
          terms, [&](const Term& c) { return c.into != nullptr && &c.into->set() == buffer; });
      passes_.push_back({c->into, {}, {}, at::zeros_like(hidden_NH_)});
    }
  }

  void run(Decoder& decoder, const Activations& kept) const {
    std::vector<HiddenGradient> all;
    for (const BackwardPass& pass : passes_) all.push_back({pass.d_hidden_NH, &pass.into->set()});
    decoder.backward(all, kept);
  }

 private:
  at::Tensor hidden_NH_;
  std::vector<BackwardPass> passes_;
};

// The buffers of the terms, each once, in their order.
std::vector<ParameterSet*> buffers_of(std::span<const Term> terms) {
  std::vector<ParameterSet*> all;
  for (const Term& c : terms) {
    if (c.into != nullptr && std::ranges::find(all, &c.into->set()) == all.end()) all.push_back(&c.into->set());
  }
  return all;
}

}  // namespace

PolicyResult policy_backward(Decoder& decoder, const Batch& batch, const PolicyInputs& inputs,
                             const gyre_policy_loss& loss, std::span<const Term> terms,
                             const PolicyOutputs& outputs) {
  const std::vector<ParameterSet*> buffers = decoder.in_step() ? buffers_of(terms) : std::vector<ParameterSet*>();
  if (decoder.in_step() && batch.ids.empty()) {
    decoder.empty_pass(!buffers.empty(), buffers);
    decoder.end_passes();
    return {.stats = {}, .terms = std::vector<gyre_term_stats>(terms.size())};
  }
  check(decoder, batch, inputs, loss);
  const std::vector<Term> all = complete(decoder, batch, inputs, loss, terms);
  const auto old_logprobs = loss.objective == GYRE_POLICY_PPO ? inputs.old_logprobs : std::span<const float>();
  const Packing packing = pack(batch.ids, batch.offsets);
  const Predicted p = predicted(batch, packing);
  const std::vector<int64_t>& tokens = p.tokens;
  std::unique_ptr<Activations> kept;
  const at::Tensor hidden_NH = decoder.forward(packing, &kept);
  BackwardPasses passes(hidden_NH);
  passes.begin_with(buffers, all);
  PolicyResult result{.stats = {}, .terms = std::vector<gyre_term_stats>(all.size())};
  std::vector<float> logprobs, entropies;  // per target
  decoder.score_backward(hidden_NH, p.targets, loss.temperature, [&](size_t first, const Scores& chunk) {
    const auto here = std::span(tokens).subspan(first, chunk.logprobs.size());
    require_finite_results(batch, here, chunk.logprobs, "log-prob");
    require_finite_results(batch, here, chunk.entropies, "entropy");
    logprobs.insert(logprobs.end(), chunk.logprobs.begin(), chunk.logprobs.end());
    entropies.insert(entropies.end(), chunk.entropies.begin(), chunk.entropies.end());
    add_tokens(here, chunk, old_logprobs, result.stats);
    passes.begin();
    for (size_t i = 0; i < all.size(); ++i) {
      passes.join(all[i], evaluate(all[i], here, chunk, inputs, loss, result.terms[i]));
    }
    return passes.gradients();
  });
  passes.run(decoder, *kept);
  decoder.end_passes();
  scatter(tokens, logprobs, outputs.logprobs);
  scatter(tokens, entropies, outputs.entropies);
  return result;
}

}  // namespace gyre
