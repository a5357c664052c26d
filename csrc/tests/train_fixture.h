// Tiny random models and batches for the tests of losses and updates.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "backend/decoder.h"
#include "tests/model_fixture.h"
#include "train/batch.h"
#include "train/gradients.h"
#include "train/passes.h"

namespace gyre::train_test {

inline ModelConfig tiny_config(gyre_head head = GYRE_HEAD_LM) {
  ModelConfig c = testing::llama_config();
  c.head = head;
  c.vocab_size = 37, c.hidden_size = 16, c.intermediate_size = 24, c.max_positions = 64;
  c.num_heads = 4, c.head_dim = 4;
  c.qkv_bias = true, c.tie_embeddings = head == GYRE_HEAD_LM;
  return c;
}

inline std::unique_ptr<Decoder> tiny_decoder(gyre_head head = GYRE_HEAD_LM) {
  return testing::normal_decoder(tiny_config(head), 11, 0.4f);
}

// Owns the arrays of a batch, with token-aligned random inputs of a loss.
struct OwnedBatch {
  std::vector<int64_t> offsets{0};
  std::vector<int32_t> ids;
  std::vector<uint8_t> mask;
  std::vector<float> old_logprobs, advantages, ref_logprobs, weights, returns, old_values;

  Batch view() const { return {offsets, ids, mask}; }
};

inline OwnedBatch random_batch(const std::vector<int>& lengths, uint32_t seed = 5) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int32_t> id(0, 36), bit(0, 3);
  std::normal_distribution<float> normal;
  OwnedBatch b;
  for (int length : lengths) {
    for (int t = 0; t < length; ++t) {
      b.ids.push_back(id(generator));
      b.mask.push_back(t > 0 && bit(generator) > 0);
      b.old_logprobs.push_back(-3.6f + 0.3f * normal(generator));
      b.ref_logprobs.push_back(-3.6f + 0.3f * normal(generator));
      b.advantages.push_back(normal(generator));
      b.weights.push_back(0.05f + 0.01f * normal(generator));
      b.returns.push_back(normal(generator));
      b.old_values.push_back(normal(generator));
    }
    b.offsets.push_back(static_cast<int64_t>(b.ids.size()));
  }
  return b;
}

inline gyre_policy_inputs inputs_of(const OwnedBatch& b) {
  return {.old_logprobs = b.old_logprobs.data(),
          .advantages = b.advantages.data(),
          .ref_logprobs = b.ref_logprobs.data(),
          .weights = b.weights.data()};
}

// PPO with its usual clips alone.
inline gyre_policy_loss ppo_loss() {
  gyre_policy_loss loss{};
  loss.task = {.index = 0, .constants = {0.2, 0.28, 3}};
  loss.temperature = 1;
  return loss;
}
inline constexpr gyre_task_loss kNllTask{.index = 1, .constants = {}};

// The three terms of the usual loss.
inline std::vector<gyre_term> terms(gyre_gradients* task, gyre_gradients* entropy, gyre_gradients* kl) {
  return {{.name = "task", .kind = GYRE_TERM_TASK, .into = task},
          {.name = "entropy", .kind = GYRE_TERM_ENTROPY, .into = entropy},
          {.name = "kl", .kind = GYRE_TERM_KL, .into = kl}};
}

// Makes sequence s begin with the first `count` tokens of sequence `from`.
inline void share_prefix(OwnedBatch& b, int64_t from, int64_t s, int64_t count) {
  std::copy_n(b.ids.begin() + b.offsets[from], count, b.ids.begin() + b.offsets[s]);
}

// Sequences [first, last) as a batch of their own.
inline OwnedBatch slice(const OwnedBatch& all, int64_t first, int64_t last) {
  OwnedBatch b;
  const int64_t from = all.offsets[first], to = all.offsets[last];
  for (int64_t s = first; s < last; ++s) b.offsets.push_back(all.offsets[s + 1] - from);
  const auto cut = [&](const auto& v) { return std::decay_t<decltype(v)>(v.begin() + from, v.begin() + to); };
  b.ids = cut(all.ids);
  b.mask = cut(all.mask);
  b.old_logprobs = cut(all.old_logprobs);
  b.ref_logprobs = cut(all.ref_logprobs);
  b.advantages = cut(all.advantages);
  b.weights = cut(all.weights);
  b.returns = cut(all.returns);
  b.old_values = cut(all.old_values);
  return b;
}

// |a - b| / |b| in the L2 norm over all parameters.
inline double relative_distance(const Gradients& a, const Gradients& b) {
  Gradients difference(a.config());
  difference.add(a, 1);
  difference.add(b, -1);
  return std::sqrt(difference.dot(difference, {}) / b.dot(b, {}));
}

}  // namespace gyre::train_test
