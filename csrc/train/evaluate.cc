#include <algorithm>
#include <vector>

#include "train/passes.h"

namespace gyre {
namespace {

constexpr int64_t kRowsPerPass = 4096;

// Consecutive whole sequences of at most kRowsPerPass rows together (or one longer sequence).
struct Portion {
  int64_t start;                 // first token
  std::vector<int64_t> offsets;  // from there
  Packing packing;
};

std::vector<Portion> portions_of(const Batch& batch) {
  const auto sequence = [&](int64_t s) {
    return batch.ids.subspan(batch.offsets[s], batch.offsets[s + 1] - batch.offsets[s]);
  };
  std::vector<Portion> portions;
  for (int64_t s = 0; s < batch.num_sequences();) {
    Portion portion{.start = batch.offsets[s], .offsets = {0}, .packing = {}};
    PrefixTree tree;
    do {
      tree.add(sequence(s++));
      portion.offsets.push_back(batch.offsets[s] - portion.start);
    } while (s < batch.num_sequences() && tree.rows() + tree.new_rows(sequence(s)) <= kRowsPerPass);
    portion.packing = tree.pack();
    portions.push_back(std::move(portion));
  }
  return portions;
}

// Calls body(portion, packing) for the portions of a batch, and makes the passes of ranks that have more.
template <typename Body>
void for_portions(Decoder& decoder, const Batch& batch, Body&& body) {
  if (!batch.ids.empty() || !decoder.in_step()) validate(batch, decoder.config());
  const std::vector<Portion> portions = portions_of(batch);
  const auto own = static_cast<int64_t>(portions.size()), all = decoder.backend().passes(own);  // before any pass waits
  for (const Portion& p : portions) {
    body(batch.portion(p.offsets, p.start, p.offsets.back()), p.packing);
  }
  for (int64_t i = own; i < all; ++i) decoder.empty_pass(false, {});
  decoder.end_passes();
}

}  // namespace

void evaluate_policy(Decoder& decoder, const Batch& batch, double temperature, float* logprobs, float* entropies,
                     const gyre_support* likeliest) {
  require(decoder.config().head == GYRE_HEAD_LM, "score: the model has a value head, expected a language model");
  const int64_t k = likeliest == nullptr ? 0 : likeliest->k, vocab = decoder.config().vocab_size;
  require(k >= 0 && k <= vocab, "score: the support has ", k, " tokens, expected 0 to ", vocab);
  int32_t* ids = k > 0 ? likeliest->ids : nullptr;
  float* outcomes = k > 0 ? likeliest->logprobs : nullptr;
  std::vector<float> all_logprobs, all_entropies;  // per target
  for_portions(decoder, batch, [&](const Batch& group, const Packing& packing) {
    const at::Tensor hidden_NH = decoder.forward(packing, nullptr);
    const Scores scores = decoder.score(hidden_NH, predicted(group, packing).targets, temperature, entropies, k);
    ids = std::ranges::copy(scores.support, ids).out, outcomes = std::ranges::copy(scores.outcomes, outcomes).out;
    all_logprobs.insert(all_logprobs.end(), scores.logprobs.begin(), scores.logprobs.end());
    all_entropies.insert(all_entropies.end(), scores.entropies.begin(), scores.entropies.end());
  });
  const std::vector<int64_t> tokens = masked_tokens(batch);
  scatter(batch, tokens, all_logprobs, logprobs);
  scatter(batch, tokens, all_entropies, entropies);
  require_finite_results(batch, tokens, all_logprobs, "log-prob");
  if (entropies) require_finite_results(batch, tokens, all_entropies, "entropy");
}

void evaluate_critic(Decoder& critic, const Batch& batch, float* values) {
  require(critic.config().head == GYRE_HEAD_VALUE,
          "values: the model has a language-model head, expected a value head");
  std::vector<float> all_values;  // per target
  for_portions(critic, batch, [&](const Batch& group, const Packing& packing) {
    const at::Tensor hidden_NH = critic.forward(packing, nullptr);
    const std::vector<float> results = critic.values(hidden_NH, predicted(group, packing).targets);
    all_values.insert(all_values.end(), results.begin(), results.end());
  });
  const std::vector<int64_t> tokens = masked_tokens(batch);
  scatter(batch, tokens, all_values, values);
  require_finite_results(batch, tokens, all_values, "value");
}

}  // namespace gyre
