#include "train/batch.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include "model/config.h"

namespace gyre {
namespace {

// A token, for messages.
struct Place {
  const Batch& batch;
  int64_t token;
};

std::ostream& operator<<(std::ostream& out, const Place& at) {
  const auto next = std::ranges::upper_bound(at.batch.offsets, at.token);
  const int64_t sequence = next - at.batch.offsets.begin() - 1;
  return out << "token " << at.token - at.batch.offsets[sequence] << " of sequence " << sequence;
}

}  // namespace

void validate(const Batch& batch, const ModelConfig& config) {
  require(batch.offsets.size() >= 2, "batch: no sequences");
  require(batch.offsets.front() == 0, "batch: offsets start at ", batch.offsets.front(), ", expected 0");
  for (int64_t s = 0; s < batch.num_sequences(); ++s) {
    const int64_t length = batch.offsets[s + 1] - batch.offsets[s];
    require(length > 0, "batch: sequence ", s, " has length ", length, ", expected at least 1 (offsets must increase)");
    require(length <= config.max_positions, "batch: sequence ", s, " has ", length, " tokens but the model has ",
            config.max_positions,
            " positions (max_position_embeddings, or what rotary scaling's original_max_position_embeddings allows a "
            "run of short sequences)");
    require(batch.mask[batch.offsets[s]] == 0, "batch: the mask is set at the first token of sequence ", s,
            ", which nothing predicts");
  }
  const int64_t vocab = config.vocab_size;
  for (int64_t t = 0; t < batch.num_tokens(); ++t) {
    const Place at{batch, t};
    const int32_t id = batch.ids[t], target = batch.target(t), mask = batch.mask[t];
    require(id >= 0 && id < vocab, "batch: ", at, " has id ", id, ", expected 0 to ", vocab - 1);
    require(mask <= 1, "batch: ", at, " has mask ", mask, ", expected 0 or 1");
    require(mask == 0 || (target >= 0 && target < vocab), "batch: the target of ", at, " is ", target,
            ", expected 0 to ", vocab - 1);
  }
}

void require_finite(const Batch& batch, const float* values, const char* name) {
  for (int64_t t = 0; t < batch.num_tokens(); ++t) {
    require(batch.mask[t] == 0 || std::isfinite(values[t]), "batch: ", name, " of ", Place{batch, t}, " is ", values[t],
            ", expected a finite number");
  }
}

Support support_of(const ModelConfig& config, const gyre_support& support, size_t targets) {
  const int64_t k = support.k, vocab = config.vocab_size;
  require(k >= 1 && k <= vocab, "support: k is ", k, ", expected 1 to ", vocab);
  const Support out{.k = k, .ids = {support.ids, targets * static_cast<size_t>(k)}};
  const int64_t named = k < vocab ? k + 1 : k;  // outcomes that have a probability
  std::vector<size_t> seen(static_cast<size_t>(vocab), targets);
  for (size_t i = 0; i < targets; ++i) {
    for (const int32_t id : out.ids.subspan(i * static_cast<size_t>(k), static_cast<size_t>(k))) {
      require(id >= 0 && id < vocab && seen[static_cast<size_t>(id)] != i, "support: target ", i, " has token ", id,
              ", expected distinct ones from 0 to ", vocab - 1);
      seen[static_cast<size_t>(id)] = i;
    }
    for (int64_t j = 0; j < named; ++j) {
      const float logprob = support.logprobs[static_cast<int64_t>(i) * (k + 1) + j];
      require(std::isfinite(logprob), "support: target ", i, " has a log-prob of ", logprob,
              ", expected a finite number");
    }
  }
  return out;
}

std::vector<int64_t> masked_tokens(const Batch& batch) {
  std::vector<int64_t> tokens;
  for (int64_t t = 0; t < batch.num_tokens(); ++t) {
    if (batch.mask[t] != 0) tokens.push_back(t);
  }
  return tokens;
}

Predicted predicted(const Batch& batch, const Packing& packing) {
  Predicted p{.tokens = masked_tokens(batch), .targets = {}};
  for (int64_t t : p.tokens) p.targets.push_back({.row = packing.row_of[t - 1], .token = batch.target(t)});
  return p;
}

void require_finite_results(const Batch& batch, std::span<const int64_t> tokens, std::span<const float> results,
                            const char* name) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    require<NotFiniteError>(std::isfinite(results[i]), "the ", name, " of ", Place{batch, tokens[i]}, " is ",
                            results[i], ": the model has diverged");
  }
}

void scatter(const Batch& batch, std::span<const int64_t> tokens, std::span<const float> values, float* out) {
  if (out == nullptr) return;
  std::fill_n(out, batch.ids.size(), 0.0f);
  for (size_t i = 0; i < tokens.size(); ++i) out[tokens[i]] = values[i];
}

}  // namespace gyre
