#include "train/batch.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "model/config.h"

namespace gyre {
namespace {

std::string place(const Batch& batch, int64_t token) {
  const auto next = std::upper_bound(batch.offsets.begin(), batch.offsets.end(), token);
  const int64_t sequence = next - batch.offsets.begin() - 1;
  return "token " + std::to_string(token - batch.offsets[sequence]) + " of sequence " + std::to_string(sequence);
}

}  // namespace

void validate(const Batch& batch, const ModelConfig& config) {
  if (batch.offsets.size() < 2) throw std::invalid_argument("batch: no sequences");
  if (batch.offsets.front() != 0) {
    throw std::invalid_argument("batch: offsets start at " + std::to_string(batch.offsets.front()) + ", expected 0");
  }
  for (int64_t s = 0; s < batch.num_sequences(); ++s) {
    const int64_t length = batch.offsets[s + 1] - batch.offsets[s];
    if (length <= 0) {
      throw std::invalid_argument("batch: sequence " + std::to_string(s) + " has length " + std::to_string(length) +
                                  ", expected at least 1 (offsets must increase)");
    }
    if (length > config.max_positions) {
      throw std::invalid_argument("batch: sequence " + std::to_string(s) + " has " + std::to_string(length) +
                                  " tokens but the model has " + std::to_string(config.max_positions) + " positions" +
                                  " (max_position_embeddings, or what rotary scaling's "
                                  "original_max_position_embeddings allows a run of short sequences)");
    }
    if (batch.mask[batch.offsets[s]] != 0) {
      throw std::invalid_argument("batch: the mask is set at the first token of sequence " + std::to_string(s) +
                                  ", which nothing predicts");
    }
  }
  for (int64_t t = 0; t < batch.num_tokens(); ++t) {
    if (batch.ids[t] < 0 || batch.ids[t] >= config.vocab_size) {
      throw std::invalid_argument("batch: " + place(batch, t) + " has id " + std::to_string(batch.ids[t]) +
                                  ", expected 0 to " + std::to_string(config.vocab_size - 1));
    }
    if (batch.mask[t] > 1) {
      throw std::invalid_argument("batch: " + place(batch, t) + " has mask " + std::to_string(batch.mask[t]) +
                                  ", expected 0 or 1");
    }
    if (batch.mask[t] != 0 && (batch.target(t) < 0 || batch.target(t) >= config.vocab_size)) {
      throw std::invalid_argument("batch: the target of " + place(batch, t) + " is " + std::to_string(batch.target(t)) +
                                  ", expected 0 to " + std::to_string(config.vocab_size - 1));
    }
  }
}

void require_finite(const Batch& batch, const float* values, const char* name) {
  for (int64_t t = 0; t < batch.num_tokens(); ++t) {
    if (batch.mask[t] != 0 && !std::isfinite(values[t])) {
      throw std::invalid_argument(std::string("batch: ") + name + " of " + place(batch, t) + " is " +
                                  std::to_string(values[t]) + ", expected a finite number");
    }
  }
}

Support support_of(const ModelConfig& config, const gyre_support& support, size_t targets) {
  const auto require = [](bool ok, const std::string& what) {
    if (!ok) throw std::invalid_argument("support: " + what);
  };
  const int64_t k = support.k, vocab = config.vocab_size;
  require(k >= 1 && k <= vocab, "k is " + std::to_string(k) + ", expected 1 to " + std::to_string(vocab));
  const Support out{.k = k, .ids = {support.ids, targets * static_cast<size_t>(k)}};
  const int64_t named = k < vocab ? k + 1 : k;  // outcomes that have a probability
  std::vector<size_t> seen(static_cast<size_t>(vocab), targets);
  for (size_t i = 0; i < targets; ++i) {
    for (const int32_t id : out.ids.subspan(i * static_cast<size_t>(k), static_cast<size_t>(k))) {
      require(id >= 0 && id < vocab && seen[static_cast<size_t>(id)] != i,
              "target " + std::to_string(i) + " has token " + std::to_string(id) +
                  ", expected distinct ones from 0 to " + std::to_string(vocab - 1));
      seen[static_cast<size_t>(id)] = i;
    }
    for (int64_t j = 0; j < named; ++j) {
      const float logprob = support.logprobs[static_cast<int64_t>(i) * (k + 1) + j];
      require(std::isfinite(logprob), "target " + std::to_string(i) + " has a log-prob of " + std::to_string(logprob) +
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
    if (!std::isfinite(results[i])) {
      throw NotFiniteError(std::string("the ") + name + " of " + place(batch, tokens[i]) + " is " +
                           std::to_string(results[i]) + ": the model has diverged");
    }
  }
}

void scatter(const Batch& batch, std::span<const int64_t> tokens, std::span<const float> values, float* out) {
  if (out == nullptr) return;
  std::fill_n(out, batch.ids.size(), 0.0f);
  for (size_t i = 0; i < tokens.size(); ++i) out[tokens[i]] = values[i];
}

}  // namespace gyre
