#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "train/balance.h"
#include "train/losses/loss.h"
#include "train/passes.h"

namespace gyre {
namespace {

// Whether the loss has a KL term: an estimator is chosen and the task's loss compares policies.
bool has_kl(const gyre_policy_loss& loss) { return loss.kl != GYRE_KL_NONE && policy_loss(loss.task.index).compares; }

// The terms with the inputs' advantages and weights where they bring none of their own.
std::vector<gyre_term> complete(const Decoder& decoder, const Batch& batch, const gyre_policy_inputs& inputs,
                                bool compares, std::span<const gyre_term> terms) {
  std::vector<gyre_term> all(terms.begin(), terms.end());
  std::set<std::string_view> names;
  for (gyre_term& term : all) {
    const std::string name = c10::str("policy loss: term \"", term.name, "\": ");
    require(names.insert(term.name).second, name, "the name is given twice");
    require(term.kind >= GYRE_TERM_TASK && term.kind <= GYRE_TERM_BALANCE, name, "kind is ", term.kind,
            ", expected 0 to 3 (task, entropy, KL, balance)");
    if (term.weights == nullptr) term.weights = inputs.weights;
    require(term.weights != nullptr, name, "no weights, neither its own nor the inputs'");
    require_finite(batch, term.weights, "weight");
    if (term.into != nullptr) term.into->require_config(decoder.config());
    if (term.kind != GYRE_TERM_TASK || !compares) continue;
    if (term.advantages == nullptr) term.advantages = inputs.advantages;
    require(term.advantages != nullptr, name, "no advantages, neither its own nor the inputs'");
    require_finite(batch, term.advantages, "advantage");
  }
  return all;
}

// What the policy's tokens say whatever the loss. old_logprobs may be null.
void add_tokens(std::span<const int64_t> tokens, const Scores& scores, const float* old_logprobs,
                gyre_policy_stats& stats) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const double logprob = scores.logprobs[i], old = old_logprobs == nullptr ? logprob : old_logprobs[tokens[i]];
    stats.tokens += 1;
    stats.log_ratio += std::clamp(old - logprob, -kLogRatioLimit, kLogRatioLimit);
    stats.logprob_gap_max = std::max(stats.logprob_gap_max, std::abs(logprob - old));
  }
}

// The same of the divergence from the reference over its support, tokens and log-probs of which are those of a chunk
// from target `first` on; the slopes of all outcomes.
std::vector<float> evaluate_support(const gyre_term& term, std::span<const int64_t> tokens, size_t first,
                                    const Scores& scores, const gyre_support& reference, double coef,
                                    gyre_term_stats& stats) {
  const size_t outcomes = static_cast<size_t>(reference.k) + 1;
  std::vector<float> d;
  std::vector<double> slopes(outcomes);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const double weight = term.weights[tokens[i]];
    const double kl = outcomes_kl(std::span(scores.outcomes).subspan(i * outcomes, outcomes),
                                  {reference.logprobs + (first + i) * outcomes, outcomes}, slopes);
    stats.value += weight * kl;
    stats.loss += weight * coef * kl;
    for (const double slope : slopes) d.push_back(static_cast<float>(weight * coef * slope));
  }
  return d;
}

// Adds a term's values at the tokens to stats and returns their derivatives with respect to each token's log-prob,
// or entropy for an entropy term.
std::vector<float> evaluate(const gyre_term& term, std::span<const int64_t> tokens, const Scores& scores,
                            const gyre_policy_inputs& inputs, const gyre_policy_loss& loss, gyre_term_stats& stats) {
  const PolicyLoss& task = policy_loss(loss.task.index);
  const bool kl = has_kl(loss);
  std::vector<float> d(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int64_t t = tokens[i];
    double weight = term.weights[t];
    const double logprob = scores.logprobs[i], entropy = scores.entropies[i];
    if (term.kind == GYRE_TERM_TASK) {
      if (inputs.importance != nullptr) weight *= inputs.importance[t];
      LossToken token{.logprob = logprob, .old_logprob = 0, .behaviour = 0, .advantage = 0};
      if (task.compares) {
        token.old_logprob = inputs.old_logprobs[t], token.advantage = term.advantages[t];
        token.behaviour = inputs.behaviour == nullptr ? token.old_logprob : inputs.behaviour[t];
      }
      if (task.over_batch != GYRE_OVER_BATCH_NONE) token.over_batch = inputs.over_batch[t];
      const TokenLoss value = task.token(token, loss.task.constants);
      stats.loss += weight * value.value;
      stats.clipped += value.clipped;
      stats.clipped_lower += value.clipped_lower;
      d[i] = static_cast<float>(weight * value.derivative);
    } else if (term.kind == GYRE_TERM_ENTROPY) {
      stats.value += weight * entropy;
      stats.loss -= weight * loss.entropy_coef * entropy;
      d[i] = static_cast<float>(-weight * loss.entropy_coef);
    } else if (term.kind == GYRE_TERM_KL && kl) {
      const TokenKl value = kl_term(loss, logprob, inputs.ref_logprobs[t]);
      stats.value += weight * value.value;
      stats.loss += weight * loss.kl_coef * value.value;
      d[i] = static_cast<float>(weight * loss.kl_coef * value.derivative);
    }
  }
  if (term.kind == GYRE_TERM_TASK) stats.value = stats.loss;
  return d;
}

void add_to(std::vector<float>& sum, std::span<const float> values) {
  sum.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
}

// The terms that go into one buffer, summed: one backward pass.
struct BackwardPass {
  Gradients* into;
  std::vector<float> d_logprob, d_entropy, slopes;  // of a chunk of targets; empty when no term depends on it
  at::Tensor d_hidden_NH;
  std::vector<at::Tensor> d_routers_NE;
};

// One pass per distinct buffer; a term whose derivatives are all zero needs none.
class BackwardPasses {
 public:
  // Passes write gradients shaped like hidden_NH.
  explicit BackwardPasses(const at::Tensor& hidden_NH) : hidden_NH_(hidden_NH) {}

  // The pass of a buffer, made where there is none.
  BackwardPass& of(Gradients* into) {
    auto pass = std::ranges::find(passes_, into, &BackwardPass::into);
    if (pass == passes_.end()) pass = passes_.insert(pass, {into, {}, {}, {}, at::zeros_like(hidden_NH_), {}});
    return *pass;
  }
  // The next chunk of targets begins.
  void begin() {
    for (BackwardPass& pass : passes_) pass.d_logprob.clear(), pass.d_entropy.clear(), pass.slopes.clear();
  }
  // Takes the derivatives of a term.
  void join(const gyre_term& term, std::span<const float> values, std::vector<float> BackwardPass::* of_what) {
    if (term.into == nullptr || std::ranges::all_of(values, [](float v) { return v == 0; })) return;
    add_to(of(term.into).*of_what, values);
  }
  // What the chunk's terms have given. Valid until begin().
  std::vector<ScoreGradient> gradients() const {
    std::vector<ScoreGradient> all;
    for (const BackwardPass& pass : passes_) {
      if (pass.d_logprob.empty() && pass.d_entropy.empty() && pass.slopes.empty()) continue;
      all.push_back({pass.d_logprob, pass.d_entropy, pass.d_hidden_NH, &pass.into->set(), pass.slopes});
    }
    return all;
  }
  void run(Decoder& decoder, const Activations& kept) const {
    std::vector<HiddenGradient> all;
    for (const BackwardPass& pass : passes_) {
      all.push_back({pass.d_hidden_NH, &pass.into->set(), pass.d_routers_NE});
    }
    decoder.backward(all, kept);
  }

 private:
  at::Tensor hidden_NH_;
  std::vector<BackwardPass> passes_;
};

// The buffers of the terms, each once, in their order.
std::vector<Gradients*> buffers_of(std::span<const gyre_term> terms) {
  std::vector<Gradients*> all;
  for (const gyre_term& term : terms) {
    if (term.into != nullptr && std::ranges::find(all, term.into) == all.end()) all.push_back(term.into);
  }
  return all;
}

}  // namespace

PolicyResult policy_backward(Decoder& decoder, const Batch& batch, const gyre_policy_inputs& inputs,
                             const gyre_policy_loss& loss, std::span<const gyre_term> terms, float* logprobs_out,
                             float* entropies_out) {
  PolicyResult result{.stats = {}, .terms = std::vector<gyre_term_stats>(terms.size())};
  if (decoder.in_step() && batch.ids.empty()) {
    std::vector<ParameterSet*> sets;
    for (Gradients* buffer : buffers_of(terms)) sets.push_back(&buffer->set());
    decoder.empty_pass(!sets.empty(), sets);
    decoder.end_passes();
    return result;
  }
  require(decoder.config().head == GYRE_HEAD_LM, "policy loss: the model has a value head, expected a language model");
  validate(batch, decoder.config());
  const PolicyLoss& task = policy_loss(loss.task.index);
  const bool compares = task.compares;
  if (compares) require_finite(batch, inputs.old_logprobs, "old log-prob");
  if (inputs.behaviour != nullptr) require_finite(batch, inputs.behaviour, "behaviour log-prob");
  if (inputs.importance != nullptr) require_finite(batch, inputs.importance, "importance weight");
  if (task.over_batch != GYRE_OVER_BATCH_NONE) require_finite(batch, inputs.over_batch, "statistic of the mini-batch");
  const bool over_support = has_kl(loss) && loss.kl == GYRE_KL_SUPPORT;
  if (has_kl(loss) && !over_support) require_finite(batch, inputs.ref_logprobs, "reference log-prob");
  const std::vector<gyre_term> all = complete(decoder, batch, inputs, compares, terms);

  const Packing packing = pack(batch.ids, batch.offsets);
  const Predicted targeted = predicted(batch, packing);
  const auto& [tokens, targets] = targeted;
  Support support;
  if (over_support) support = support_of(decoder.config(), inputs.support, targets.size());
  std::unique_ptr<Activations> kept;
  const at::Tensor hidden_NH = decoder.forward(packing, &kept, inputs.dropout);
  BackwardPasses passes(hidden_NH);
  if (decoder.in_step()) {  // a pass for every buffer, whatever the terms give: other ranks wait for them
    for (Gradients* buffer : buffers_of(all)) passes.of(buffer);
  }
  std::vector<float> logprobs, entropies;  // per target
  const auto objective = [&](size_t first, const Scores& chunk) {
    const auto here = std::span(tokens).subspan(first, chunk.logprobs.size());
    require_finite_results(batch, here, chunk.logprobs, "log-prob");
    require_finite_results(batch, here, chunk.entropies, "entropy");
    logprobs.insert(logprobs.end(), chunk.logprobs.begin(), chunk.logprobs.end());
    entropies.insert(entropies.end(), chunk.entropies.begin(), chunk.entropies.end());
    add_tokens(here, chunk, compares ? inputs.old_logprobs : nullptr, result.stats);
    passes.begin();
    for (size_t i = 0; i < all.size(); ++i) {
      gyre_term_stats& stats = result.terms[i];
      if (over_support && all[i].kind == GYRE_TERM_KL) {
        passes.join(all[i], evaluate_support(all[i], here, first, chunk, inputs.support, loss.kl_coef, stats),
                    &BackwardPass::slopes);
        continue;
      }
      passes.join(all[i], evaluate(all[i], here, chunk, inputs, loss, stats),
                  all[i].kind == GYRE_TERM_ENTROPY ? &BackwardPass::d_entropy : &BackwardPass::d_logprob);
    }
    return passes.gradients();
  };
  decoder.score_backward(hidden_NH, targets, loss.temperature, objective, support, kept->pass.dropout);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].kind != GYRE_TERM_BALANCE) continue;
    const bool learns = all[i].into != nullptr && loss.balance_coef != 0;
    gyre_term_stats& stats = result.terms[i];
    stats.value = balance(decoder.config(), kept->routers_NE, batch, targeted, all[i].weights, loss.balance_coef,
                          learns ? &passes.of(all[i].into).d_routers_NE : nullptr);
    stats.loss = loss.balance_coef * stats.value;
  }
  passes.run(decoder, *kept);
  decoder.end_passes();
  scatter(batch, tokens, logprobs, logprobs_out);
  scatter(batch, tokens, entropies, entropies_out);
  return result;
}

}  // namespace gyre
