#include "train/evaluate.h"

#include <stdexcept>
#include <vector>

#include "train/value.h"

namespace gyre {
namespace {

constexpr int64_t kRowsPerPass = 4096;

// Calls body(group, packing) for consecutive groups of whole sequences of at most kRowsPerPass rows (or one longer
// sequence).
template <typename Body>
void for_groups(const Batch& batch, Body&& body) {
  const auto sequence = [&](int64_t s) {
    return batch.ids.subspan(batch.offsets[s], batch.offsets[s + 1] - batch.offsets[s]);
  };
  std::vector<int64_t> offsets;
  for (int64_t s = 0; s < batch.num_sequences();) {
    const int64_t start = batch.offsets[s];
    PrefixTree tree;
    offsets.assign(1, 0);
    do {
      tree.add(sequence(s++));
      offsets.push_back(batch.offsets[s] - start);
    } while (s < batch.num_sequences() && tree.rows() + tree.new_rows(sequence(s)) <= kRowsPerPass);
    body(Batch{offsets, batch.ids.subspan(start, offsets.back()), batch.mask.subspan(start, offsets.back())},
         tree.pack());
  }
}

}  // namespace

void evaluate_policy(Decoder& decoder, const Batch& batch, double temperature, std::span<float> logprobs,
                     std::span<float> entropies) {
  if (decoder.config().head != GYRE_HEAD_LM) {
    throw std::invalid_argument("score: the model has a value head, expected a language model");
  }
  validate(batch, decoder.config());
  std::vector<float> all_logprobs, all_entropies;  // per target
  for_groups(batch, [&](const Batch& group, const Packing& packing) {
    const at::Tensor hidden_NH = decoder.forward(packing, nullptr);
    const Scores scores = decoder.score(hidden_NH, predicted(group, packing).targets, temperature, !entropies.empty());
    all_logprobs.insert(all_logprobs.end(), scores.logprobs.begin(), scores.logprobs.end());
    all_entropies.insert(all_entropies.end(), scores.entropies.begin(), scores.entropies.end());
  });
  const std::vector<int64_t> tokens = masked_tokens(batch);
  scatter(tokens, all_logprobs, logprobs);
  scatter(tokens, all_entropies, entropies);
  require_finite_results(batch, tokens, all_logprobs, "log-prob");
  if (!entropies.empty()) require_finite_results(batch, tokens, all_entropies, "entropy");
}

void evaluate_critic(Decoder& critic, const Batch& batch, std::span<float> values) {
  if (critic.config().head != GYRE_HEAD_VALUE) {
    throw std::invalid_argument("values: the model has a language-model head, expected a value head");
  }
  validate(batch, critic.config());
  std::vector<float> all_values;  // per target
  for_groups(batch, [&](const Batch& group, const Packing& packing) {
    const at::Tensor hidden_NH = critic.forward(packing, nullptr);
    const std::vector<float> results = critic.values(hidden_NH, predicted(group, packing).targets);
    all_values.insert(all_values.end(), results.begin(), results.end());
  });
  const std::vector<int64_t> tokens = masked_tokens(batch);
  scatter(tokens, all_values, values);
  require_finite_results(batch, tokens, all_values, "value");
}

}  // namespace gyre
