// Dropout of adapters' inputs, held against autograd in float64 with masks that are computed anew from their
// definition.
#include "kernels/dropout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "kernels/gemm.h"
#include "kernels/random.h"
#include "kernels/rowwise.h"
#include "tests/lora_fixture.h"
#include "tests/reference_decoder.h"
#include "tests/threads.h"

namespace gyre {
namespace {

using namespace lora_test;
using testing::relative_error;
using testing::same_bits;

constexpr gyre_dropout kDropout{.probability = 0.3, .key = 0x123456789abcdef};

// The random word of a number, as kernels/dropout.h defines it.
uint32_t word_of(uint64_t key, uint32_t stream, uint64_t row, int64_t place) {
  const auto words = philox4x32({static_cast<uint32_t>(place / 64 * 16 + place % 16), static_cast<uint32_t>(row),
                                 static_cast<uint32_t>(row >> 32), stream},
                                {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
  return words[static_cast<size_t>(place / 16 % 4)];
}

// What the inputs of a module are multiplied by at each token of a sequence, [length, width].
at::Tensor factors(const gyre_dropout& dropout, std::span<const int32_t> ids, int64_t layer, uint32_t target,
                   int64_t width) {
  at::Tensor all = at::zeros({std::ssize(ids), width}, at::kDouble);
  uint64_t history = 0;
  for (int64_t t = 0; t < std::ssize(ids); ++t) {
    history = split_mix(history ^ split_mix(static_cast<uint64_t>(ids[static_cast<size_t>(t)])));
    for (int64_t i = 0; i < width; ++i) {
      const double u = word_of(dropout.key, static_cast<uint32_t>(layer << 9 | target), history, i) * 0x1p-32;
      if (u >= dropout.probability) all.data_ptr<double>()[t * width + i] = 1 / (1 - dropout.probability);
    }
  }
  return all;
}

class Dropped : public ::testing::TestWithParam<gyre_compute> {
 protected:
  ModelConfig config(int32_t head = GYRE_HEAD_LM) const {
    ModelConfig c = testing::qwen3_config();
    c.vocab_size = 37, c.compute = GetParam(), c.head = head, c.tie_embeddings = false;
    return c;
  }
  double tolerance() const { return GetParam() == GYRE_COMPUTE_BF16 ? 0.03 : 2e-5; }
  gyre_lora lora(uint32_t targets = GYRE_LORA_ALL) const { return {.rank = 3, .targets = targets, .scale = 0.7}; }

  // All weights in float64, the adapter's as leaves, its scale in B.
  static reference::Weights weights(const Decoder& base, const Decoder& adapter) {
    reference::Weights w;
    for (const NamedTensor& p : base.parameters().named) w[p.name] = p.value.to(at::kDouble);
    for (const NamedTensor& p : adapter.parameters().named) w[p.name] = p.value.to(at::kDouble).set_requires_grad(true);
    return w;
  }
  // The hidden states of a sequence with what is dropped.
  static at::Tensor hidden(const Decoder& adapter, reference::Weights w, std::span<const int32_t> ids) {
    const ModelConfig& c = adapter.config();
    const LoraParts parts(c);
    for (int64_t layer = 0; layer < c.num_layers; ++layer) {
      for (const auto* of : {&parts.qkv, &parts.out, &parts.gate_up, &parts.down}) {
        for (const LoraPart& part : *of) {
          const std::string name = "model.layers." + std::to_string(layer) + "." + part.name;
          w[name + ".kept"] = factors(kDropout, ids, layer, part.target, w.at(name + ".lora_A.weight").size(1));
          w[name + ".lora_B.weight"] = w.at(name + ".lora_B.weight") * c.lora.scale;
        }
      }
    }
    if (const at::Tensor a = reference::find(w, "model.embed_tokens.lora_embedding_A"); a.defined()) {
      w["model.embed_tokens.weight"] = w.at("model.embed_tokens.weight") +
                                       at::matmul(w.at("model.embed_tokens.lora_embedding_B"), a).t() * c.lora.scale;
    }
    return reference::hidden(c, w, ids);
  }
  static std::span<const int32_t> sequence(const train_test::OwnedBatch& b, int64_t s) {
    return std::span(b.ids).subspan(static_cast<size_t>(b.offsets[s]),
                                    static_cast<size_t>(b.offsets[s + 1] - b.offsets[s]));
  }

  void expect_gradients(const Gradients& found, const reference::Weights& leaves) {
    for (const auto& [name, d] : by_name(found.set())) {
      EXPECT_LT(relative_error(d.to(at::kDouble), leaves.at(name).grad()), 3 * tolerance()) << name;
    }
  }

  train_test::OwnedBatch batch_ = train_test::random_batch({9, 4, 21, 13});
};

TEST_P(Dropped, IsWhatAutogradMakesOfTheSameMasks) {
  const auto base = testing::normal_decoder(config(), 3, 0.2f), frozen = frozen_copy(*base);
  const auto adapter = adapter_on(*frozen, lora(), 5);
  const Trained got = train(*adapter, batch_, kDropout);
  const reference::Weights leaves = weights(*base, *adapter);
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (int64_t s = 0; s + 1 < std::ssize(batch_.offsets); ++s) {
    const auto ids = sequence(batch_, s);
    const at::Tensor h = hidden(*adapter, leaves, ids);
    const at::Tensor kept = factors(kDropout, ids, 0, GYRE_LORA_HEAD, h.size(1));
    const at::Tensor logits = at::matmul(h, leaves.at("lm_head.weight").t()) +
                              at::matmul(at::matmul(h * kept, leaves.at("lm_head.lora_A.weight").t()),
                                         leaves.at("lm_head.lora_B.weight").t()) *
                                  lora().scale;
    const at::Tensor logprobs = at::log_softmax(logits, -1), entropies = -(logprobs.exp() * logprobs).sum(-1);
    for (size_t t = 1; t < ids.size(); ++t) {
      const auto at = static_cast<size_t>(batch_.offsets[s]) + t;
      if (batch_.mask[at] == 0) continue;
      const auto row = static_cast<int64_t>(t) - 1;
      const at::Tensor logprob = logprobs[row][ids[t]];
      EXPECT_NEAR(got.logprobs[at], logprob.item<double>(), 10 * tolerance()) << at;
      loss = loss - (logprob + entropies[row] * 0.05) * static_cast<double>(batch_.weights[at]);
    }
  }
  loss.backward();
  expect_gradients(*got.gradients, leaves);
}

TEST_P(Dropped, IsWhatAutogradMakesOfTheSameMasksOfACritic) {
  const auto base = testing::normal_decoder(config(), 3, 0.2f), frozen = frozen_copy(*base);
  const auto critic = adapter_on(*frozen, lora(kAll.targets), 5, GYRE_HEAD_VALUE);
  Gradients g(*critic);
  value_backward(*critic, batch_.view(), batch_.returns.data(), nullptr, batch_.weights.data(), 0, g, nullptr,
                 kDropout);
  const reference::Weights leaves = weights(*base, *critic);
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (int64_t s = 0; s + 1 < std::ssize(batch_.offsets); ++s) {
    const auto ids = sequence(batch_, s);
    const at::Tensor values =
        at::matmul(hidden(*critic, leaves, ids), leaves.at("score.weight").t()).squeeze(1) + leaves.at("score.bias");
    for (size_t t = 1; t < ids.size(); ++t) {
      const auto at = static_cast<size_t>(batch_.offsets[s]) + t;
      if (batch_.mask[at] == 0) continue;
      loss = loss + (values[static_cast<int64_t>(t) - 1] - static_cast<double>(batch_.returns[at])).square() *
                        (0.5 * static_cast<double>(batch_.weights[at]));
    }
  }
  loss.backward();
  expect_gradients(g, leaves);
}

TEST_P(Dropped, HasTheBitsOfNoneWhereNothingIsDropped) {
  const auto base = testing::normal_decoder(config(), 3, 0.2f), frozen = frozen_copy(*base);
  const auto adapter = adapter_on(*frozen, lora(), 5);
  const Trained none = train(*adapter, batch_), zero = train(*adapter, batch_, {.probability = 0, .key = 7});
  const auto a = none.gradients->set().flats(), b = zero.gradients->set().flats();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i], b[i]));
  const Trained before = train(*adapter, batch_, kDropout), other = train(*adapter, batch_, {0.3, 1});
  EXPECT_FALSE(same_bits(before.logprobs, none.logprobs));
  EXPECT_FALSE(same_bits(before.logprobs, other.logprobs));
  EXPECT_TRUE(same_bits(train(*adapter, batch_).logprobs, none.logprobs)) << "after passes that dropped";
  std::vector<float> scores(batch_.ids.size());
  evaluate_policy(*adapter, batch_.view(), 1, scores.data(), nullptr);
  EXPECT_TRUE(same_bits(scores, none.logprobs));
}

TEST_P(Dropped, DoesNotDependOnThreadsOrOnWhatIsKept) {
  const auto base = testing::normal_decoder(config(), 3, 0.2f), frozen = frozen_copy(*base);
  const auto adapter = adapter_on(*frozen, lora(), 5);
  train_test::OwnedBatch long_batch = train_test::random_batch({60, 300, 45, 190});
  const auto run = [&](int threads, bool recompute) {
    const Threads on(threads);
    adapter->set_recompute(recompute);
    return train(*adapter, long_batch, kDropout);
  };
  const Trained first = run(1, false);
  for (const Trained& other : {run(2, false), run(1, true), run(2, true)}) {
    const auto a = first.gradients->set().flats(), b = other.gradients->set().flats();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i], b[i])) << i;
    EXPECT_TRUE(same_bits(first.logprobs, other.logprobs));
  }
}

// Sequences that begin alike are computed as one there, and each by itself: the same masks.
TEST_P(Dropped, DoesNotDependOnHowSequencesArePacked) {
  const auto base = testing::normal_decoder(config(), 3, 0.2f), frozen = frozen_copy(*base);
  const auto adapter = adapter_on(*frozen, lora(), 5);
  train_test::share_prefix(batch_, 2, 3, 10), train_test::share_prefix(batch_, 2, 0, 6);
  const Trained together = train(*adapter, batch_, kDropout);
  Gradients sum(*adapter);
  std::vector<float> logprobs;
  for (int64_t s = 0; s < 4; ++s) {
    const Trained alone = train(*adapter, train_test::slice(batch_, s, s + 1), kDropout);
    logprobs.insert(logprobs.end(), alone.logprobs.begin(), alone.logprobs.end());
    sum.add(*alone.gradients, 1);
  }
  EXPECT_TRUE(same_bits(together.logprobs, logprobs));
  EXPECT_LT(train_test::relative_distance(sum, *together.gradients), tolerance());
}

// To first order in B a log-prob is linear in what is kept, whose mean is the input itself.
TEST_P(Dropped, MeanOverMasksIsWhatIsWithoutThem) {
  if (GetParam() == GYRE_COMPUTE_BF16) return;  // its rounding is larger than such an adapter
  const auto base = testing::normal_decoder(config(), 3, 0.2f), frozen = frozen_copy(*base);
  const auto adapter = adapter_on(*frozen, {.rank = 3, .targets = GYRE_LORA_ALL, .scale = 0.003}, 5);
  const std::vector<float> plain = train(*adapter, batch_).logprobs;
  constexpr int kMasks = 300;
  std::vector<double> sums(plain.size()), squares(plain.size());
  for (uint64_t k = 0; k < kMasks; ++k) {
    const std::vector<float> found = train(*adapter, batch_, {.probability = 0.4, .key = k}).logprobs;
    for (size_t t = 0; t < plain.size(); ++t) {
      const double d = found[t] - plain[t];
      sums[t] += d, squares[t] += d * d;
    }
  }
  double chi = 0, tokens = 0;
  for (size_t t = 0; t < plain.size(); ++t) {
    if (squares[t] == 0) continue;
    const double mean = sums[t] / kMasks, variance = squares[t] / kMasks - mean * mean;
    chi += mean * mean / (variance / kMasks), tokens += 1;
  }
  EXPECT_GT(tokens, 20);
  EXPECT_LT(chi / tokens, 1.8) << "squared distances in standard errors";
}

TEST_P(Dropped, WhatCannotBeDroppedIsRefused) {
  const auto base = testing::normal_decoder(config(), 3, 0.2f), frozen = frozen_copy(*base);
  EXPECT_THROW(train(*base, batch_, kDropout), std::invalid_argument);
  const auto adapter = adapter_on(*frozen, lora(), 5);
  for (const double p : {-0.1, 1.0, std::nan("")}) {
    EXPECT_THROW(train(*adapter, batch_, {p, 1}), std::invalid_argument) << p;
  }
  ModelConfig mixture = testing::experts_config();
  mixture.vocab_size = 37;
  const auto experts = testing::normal_decoder(mixture, 3, 0.2f);
  EXPECT_THROW(train(*adapter_on(*experts, lora(GYRE_LORA_EXPERTS | GYRE_LORA_V), 5), batch_, kDropout),
               std::invalid_argument);
  EXPECT_NO_THROW(train(*adapter_on(*experts, lora(GYRE_LORA_V), 5), batch_, kDropout));
  ModelConfig tensors = config();
  tensors.set_device("aten");
  const auto other = testing::normal_decoder(tensors, 3, 0.2f);
  EXPECT_THROW(train(*adapter_on(*other, lora(kAll.targets), 5), batch_, kDropout), std::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(All, Dropped, ::testing::Values(GYRE_COMPUTE_F32, GYRE_COMPUTE_BF16));

// In every variant: floats against the definition, and operands against floats.
TEST(Drop, FollowsItsDefinition) {
  const std::string before = variant_in_use().name;
  constexpr int64_t kRows = 5, kWidth = 147;
  const DropKey key{0xfedcba9876543210, 77, 0x60000000};
  const std::vector<uint64_t> numbers{0, 1, ~uint64_t{0}, 0x100000000, 42};
  const at::Tensor x = testing::random_tensor({kRows, kWidth + 3}, 7), ones = at::ones({kWidth});
  for (const Variant& variant : variants()) {
    if (!variant.runs_here) continue;
    use_variant(variant.name);
    at::Tensor y = at::empty({kRows, kWidth});
    drop(key, numbers.data(), kRows, kWidth, x.const_data_ptr<float>(), kWidth + 3, y.data_ptr<float>(), kWidth);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < kWidth; ++i) {
        const bool kept = word_of(key.key, key.stream, numbers[static_cast<size_t>(r)], i) >= key.below;
        ASSERT_EQ(y[r][i].item<float>(), kept ? x[r][i].item<float>() : 0.0f) << variant.name << r << "," << i;
      }
    }
    for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
      PackedMatrix w;
      w.pack(testing::random_tensor({11, kWidth}, 9).const_data_ptr<float>(), 11, kWidth, precision);
      const at::Tensor dense = x.narrow(1, 0, kWidth).contiguous(), normed = at::empty_like(dense);
      at::Tensor operands = at::empty({kRows, operand_width(precision, kWidth)}), got = at::empty({kRows, 11}),
                 want = got.clone();
      rms_norm(dense.const_data_ptr<float>(), kRows, kWidth, ones.const_data_ptr<float>(), 1e-5f, Precision::kFloat32,
               normed.mutable_data_ptr<float>(), nullptr);
      rms_norm(dense.const_data_ptr<float>(), kRows, kWidth, ones.const_data_ptr<float>(), 1e-5f, precision,
               operands.data_ptr<float>(), nullptr);
      drop(key, numbers.data(), kRows, kWidth, normed.const_data_ptr<float>(), kWidth, normed.mutable_data_ptr<float>(),
           kWidth);
      drop_operands(key, numbers.data(), kRows, kWidth, precision, operands.const_data_ptr<float>(),
                    operands.mutable_data_ptr<float>());
      w.multiply(normed.const_data_ptr<float>(), kWidth, kRows, nullptr, want.data_ptr<float>(), 11);
      w.multiply(operands.const_data_ptr<float>(), 0, kRows, nullptr, got.data_ptr<float>(), 11);
      EXPECT_TRUE(same_bits(got, want)) << variant.name;
    }
  }
  use_variant(before);
}

// Shares that are kept, and of pairs that differ in one of key, stream, row and place, as of independent draws.
TEST(Drop, DrawsAreIndependent) {
  constexpr int64_t kRows = 200, kWidth = 500;
  constexpr double kShare = 0.25, kCount = kRows * kWidth;
  std::vector<uint64_t> numbers;
  for (uint64_t r = 0; r <= kRows; ++r) numbers.push_back(split_mix(r));
  const std::vector<float> ones(kRows * kWidth, 1);
  const auto mask = [&](uint64_t key, uint32_t stream, int64_t row) {
    std::vector<float> kept(ones.size());
    drop({key, stream, 0xc0000000}, numbers.data() + row, kRows, kWidth, ones.data(), kWidth, kept.data(), kWidth);
    return kept;
  };
  const std::vector<float> first = mask(1, 2, 0);
  const auto both = [&](const std::vector<float>& other, int64_t shift) {
    double sum = 0;
    for (size_t i = 0; i + static_cast<size_t>(shift) < first.size(); ++i) {
      sum += first[i] * other[i + static_cast<size_t>(shift)];
    }
    return sum / kCount;
  };
  const auto error = [&](double share) { return std::sqrt(share * (1 - share) / kCount); };
  EXPECT_NEAR(both(first, 0), kShare, 4 * error(kShare));
  for (const double share : {both(first, 1), both(first, 16), both(first, 64), both(mask(2, 2, 0), 0),
                             both(mask(1, 3, 0), 0), both(mask(1, 2, 1), 0)}) {
    EXPECT_NEAR(share, kShare * kShare, 4 * error(kShare * kShare));
  }
}

}  // namespace
}  // namespace gyre
