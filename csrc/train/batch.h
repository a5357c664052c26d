// Packed sequences with a token-aligned mask: entry t of the mask (and of everything aligned with it) speaks of token
// t, which is predicted from the hidden state of token t-1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace gyre {

struct Batch {
  std::span<const int64_t> offsets;  // one more than there are sequences
  std::span<const int32_t> ids;
  std::span<const uint8_t> mask;
  std::span<const int32_t> targets{};  // what is predicted of masked tokens; empty: ids

  int64_t num_sequences() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t num_tokens() const { return static_cast<int64_t>(ids.size()); }
  int32_t target(int64_t t) const { return targets.empty() ? ids[t] : targets[t]; }
  // `count` tokens from `start` on, whose sequences have these offsets from there.
  Batch portion(std::span<const int64_t> own_offsets, int64_t start, int64_t count) const {
    return {own_offsets, ids.subspan(start, count), mask.subspan(start, count),
            targets.empty() ? targets : targets.subspan(start, count)};
  }
};

// Throws std::invalid_argument saying which sequence or token is wrong: offsets start at 0 and increase, sequences fit
// the model's positions, ids are in the vocabulary, the mask is 0 or 1 and 0 at first tokens.
void validate(const Batch& batch, const ModelConfig& config);

// Throws std::invalid_argument when a masked entry of a token-aligned array is not finite.
void require_finite(const Batch& batch, const float* values, const char* name);

// The masked tokens in order, and the same as targets, whose rows are those of a packing.
struct Predicted {
  std::vector<int64_t> tokens;
  std::vector<Target> targets;
};
std::vector<int64_t> masked_tokens(const Batch& batch);
Predicted predicted(const Batch& batch, const Packing& packing);

// The tokens of a support of so many targets. Throws std::invalid_argument when they are not distinct tokens of the
// vocabulary for each target, or a log-prob of theirs is not finite.
Support support_of(const ModelConfig& config, const gyre_support& support, size_t targets);

// Throws NotFiniteError when the result of a token is not finite: the model has diverged.
void require_finite_results(const Batch& batch, std::span<const int64_t> tokens, std::span<const float> results,
                            const char* name);

// Spreads one value per listed token over a token-aligned array, 0 elsewhere; null is skipped.
void scatter(const Batch& batch, std::span<const int64_t> tokens, std::span<const float> values, float* out);

}  // namespace gyre
