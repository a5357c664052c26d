// Adapters held against what they mean: the base whose weights have scale · B A added, and that model's gradients.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/decoder.h"
#include "engine/engine.h"
#include "kernels/isa.h"
#include "tests/backend_fixture.h"
#include "tests/lora_fixture.h"
#include "train/adamw.h"
#include "train/passes.h"

namespace gyre {
namespace {

using namespace lora_test;
using testing::relative_error;
using testing::same_bits;

std::unique_ptr<Decoder> merged(const Decoder& base, const Decoder& adapter, ModelConfig config) {
  auto decoder = copy_of(base, config);
  auto weights = by_name(decoder->parameters());
  const auto lora = by_name(adapter.parameters());
  for (const Module& m : modules_of(adapter.parameters())) {
    weights.at(m.weight).add_(at::mm(lora.at(m.b), lora.at(m.a)), adapter.config().lora.scale);
  }
  decoder->touch();
  return decoder;
}

class Lora : public ::testing::TestWithParam<gyre_compute> {
 protected:
  ModelConfig config(int32_t head = GYRE_HEAD_LM) const {
    ModelConfig c = testing::qwen3_config();
    c.vocab_size = 37, c.compute = GetParam();
    c.head = head;
    return c;
  }
  double tolerance() const { return GetParam() == GYRE_COMPUTE_BF16 ? 0.03 : 2e-5; }
  const train_test::OwnedBatch batch_ = train_test::random_batch({9, 4, 21, 13});
};

TEST_P(Lora, IsTheBaseBitForBitWhereBIsZero) {
  const auto base = testing::normal_decoder(config(), 3, 0.2f), frozen = frozen_copy(*base);
  const auto adapter = adapter_on(*frozen, kAll, 5, GYRE_HEAD_LM, /*zero_b=*/true);
  EXPECT_TRUE(same_bits(train(*adapter, batch_).logprobs, train(*base, batch_).logprobs));
}

TEST_P(Lora, EqualsTheModelThatItsProductIsAddedTo) {
  const auto base = testing::normal_decoder(config(), 3, 0.2f), frozen = frozen_copy(*base);
  for (const uint32_t targets : {kAll.targets, uint32_t{GYRE_LORA_Q | GYRE_LORA_V | GYRE_LORA_UP}}) {
    gyre_lora lora = kAll;
    lora.targets = targets;
    const auto adapter = adapter_on(*frozen, lora, 5), whole = merged(*base, *adapter, config());
    const Trained a = train(*adapter, batch_), m = train(*whole, batch_);
    for (size_t i = 0; i < a.logprobs.size(); ++i) EXPECT_NEAR(a.logprobs[i], m.logprobs[i], 10 * tolerance());
    const auto weights = by_name(adapter->parameters()), d = by_name(a.gradients->set()),
               d_whole = by_name(m.gradients->set());
    EXPECT_FALSE(modules_of(adapter->parameters()).empty());
    for (const Module& of : modules_of(adapter->parameters())) {  // d(W + s B A)
      const at::Tensor d_weight = d_whole.at(of.weight) * lora.scale;
      EXPECT_LT(relative_error(d.at(of.a), at::mm(weights.at(of.b).t(), d_weight)), 3 * tolerance()) << of.a;
      EXPECT_LT(relative_error(d.at(of.b), at::mm(d_weight, weights.at(of.a).t())), 3 * tolerance()) << of.b;
    }
  }
}

// Beside the embedding and a head of its own too; on tensors as on the kernels.
TEST_P(Lora, EmbeddingAndHeadEqualTheMergedOnes) {
  for (const char* device : {"cpu", "aten", "fake"}) {
    if (!testing::absence(device).empty()) continue;
    ModelConfig c = config();
    c.tie_embeddings = false;
    c.set_device(device);
    if (c.device() != "cpu" && GetParam() == GYRE_COMPUTE_BF16) continue;  // f32 head beside bf16 blocks
    const auto base = testing::normal_decoder(c, 3, 0.2f), frozen = frozen_copy(*base);
    gyre_lora lora = kAll;
    lora.targets = GYRE_LORA_ALL;
    const auto adapter = adapter_on(*frozen, lora, 5), whole = merged(*base, *adapter, c);
    const auto weights = by_name(adapter->parameters());
    const std::string e = "model.embed_tokens.lora_embedding_";
    by_name(whole->parameters())
        .at("model.embed_tokens.weight")
        .add_(at::mm(weights.at(e + "B"), weights.at(e + "A")).t(), lora.scale);
    whole->touch();
    const Trained a = train(*adapter, batch_), m = train(*whole, batch_);
    for (size_t i = 0; i < a.logprobs.size(); ++i) EXPECT_NEAR(a.logprobs[i], m.logprobs[i], 10 * tolerance());
    const auto d = by_name(a.gradients->set()), d_whole = by_name(m.gradients->set());
    for (const Module& of : modules_of(adapter->parameters())) {
      const at::Tensor d_weight = d_whole.at(of.weight) * lora.scale;
      EXPECT_LT(relative_error(d.at(of.a), at::mm(weights.at(of.b).t(), d_weight)), 3 * tolerance()) << device << of.a;
      EXPECT_LT(relative_error(d.at(of.b), at::mm(d_weight, weights.at(of.a).t())), 3 * tolerance()) << device << of.b;
    }
    const at::Tensor d_embed = d_whole.at("model.embed_tokens.weight").t() * lora.scale;  // [H, V] = d(B A)
    EXPECT_LT(relative_error(d.at(e + "A"), at::mm(weights.at(e + "B").t(), d_embed)), 3 * tolerance()) << device;
    EXPECT_LT(relative_error(d.at(e + "B"), at::mm(d_embed, weights.at(e + "A").t())), 3 * tolerance()) << device;
  }
}

TEST_P(Lora, GradientsDoNotDependOnWhatIsKept) {
  const auto base = testing::normal_decoder(config(), 3, 0.2f), frozen = frozen_copy(*base);
  const auto adapter = adapter_on(*frozen, kAll, 5);
  const Trained first = train(*adapter, batch_);
  adapter->set_recompute(true);
  const auto beside = adapter_on(*base, kAll, 5);  // a base in float32 parameters
  for (const Trained& other : {train(*adapter, batch_), train(*beside, batch_)}) {
    const auto a = first.gradients->set().flats(), b = other.gradients->set().flats();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i], b[i])) << i;
    EXPECT_TRUE(same_bits(first.logprobs, other.logprobs));
  }
}

TEST_P(Lora, TrainsACriticOnThePolicysBase) {
  const auto base = testing::normal_decoder(config(), 3, 0.2f), frozen = frozen_copy(*base);
  const auto critic = adapter_on(*frozen, kAll, 5, GYRE_HEAD_VALUE);
  const auto as_value = testing::normal_decoder(config(GYRE_HEAD_VALUE), 9, 0.2f);
  for (auto& [name, value] : by_name(as_value->parameters())) {
    const auto from = by_name(base->parameters()), head = by_name(critic->parameters());
    value.copy_(from.count(name) > 0 ? from.at(name) : head.at(name));
  }
  const auto whole = merged(*as_value, *critic, config(GYRE_HEAD_VALUE));
  const auto run = [&](Decoder& d, Gradients& g) {
    std::vector<float> values(batch_.ids.size());
    value_backward(d, batch_.view(), batch_.returns.data(), batch_.old_values.data(), batch_.weights.data(), 0.2, g,
                   values.data());
    return values;
  };
  Gradients g(*critic), g_whole(*whole);
  const auto values = run(*critic, g), expected = run(*whole, g_whole);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 20 * tolerance());
  const auto d = by_name(g.set()), d_whole = by_name(g_whole.set()), weights = by_name(critic->parameters());
  EXPECT_LT(relative_error(d.at("score.weight"), d_whole.at("score.weight")), 3 * tolerance());
  const std::string q = "model.layers.0.self_attn.q_proj.";
  EXPECT_LT(relative_error(d.at(q + "lora_A.weight"),
                           at::mm(weights.at(q + "lora_B.weight").t(), d_whole.at(q + "weight") * kAll.scale)),
            3 * tolerance());
}

TEST_P(Lora, StepsChangeTheAdapterAlone) {
  const auto base = testing::normal_decoder(config(), 3, 0.2f), frozen = frozen_copy(*base);
  const auto adapter = adapter_on(*frozen, kAll, 5, GYRE_HEAD_LM, true), other = adapter_on(*frozen, kAll, 8);
  const Trained before = train(*base, batch_), beside = train(*other, batch_);
  AdamW optimizer(*adapter, {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0});
  EXPECT_TRUE(optimizer.step(*train(*adapter, batch_).gradients, 0.01, 1).applied);
  EXPECT_FALSE(same_bits(train(*adapter, batch_).logprobs, before.logprobs));
  std::vector<float> reference(batch_.ids.size());
  evaluate_policy(*frozen, batch_.view(), 1, reference.data(), nullptr);
  EXPECT_TRUE(same_bits(reference, before.logprobs));
  EXPECT_TRUE(same_bits(train(*other, batch_).logprobs, beside.logprobs));
}

std::shared_ptr<const Decoder> unowned(const Decoder* decoder) { return {std::shared_ptr<void>(), decoder}; }

// What an engine makes of requests, one policy for each.
std::map<uint64_t, Output> sampled(Decoder& of, const std::vector<const Decoder*>& policies, int64_t most_rows,
                                   size_t first, size_t last) {
  Engine engine(of, {.kv_bytes = 0, .max_sequences = 64, .max_length = 48, .max_batch_tokens = most_rows});
  for (size_t i = first; i < last; ++i) {
    Request request{
        .id = i, .policy = unowned(policies[i]), .prompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3}};
    if (i % 3 == 0) request.prompt.push_back(static_cast<int32_t>(i % 37));
    request.sampling.max_tokens = 12, request.sampling.seed = 7 + i, request.sampling.ignore_eos = true;
    engine.submit(std::move(request));
  }
  while (engine.step() > 0) {
  }
  std::map<uint64_t, Output> all;
  while (auto output = engine.poll(1 << 20)) all[output->id] = *output;
  return all;
}

// 32 adapters and the base in one batch, prompts shared: each request has the bits that it has alone, and that its
// policy's training forward gives.
void expect_each_alone(const ModelConfig& config, uint32_t targets) {
  const auto base = testing::normal_decoder(config, 3, 0.2f), frozen = frozen_copy(*base);
  std::vector<std::unique_ptr<Decoder>> adapters;
  std::vector<const Decoder*> policies{frozen.get(), nullptr, frozen.get()};
  gyre_lora lora = kAll;
  lora.targets = targets;
  for (uint64_t i = 0; i < 32; ++i) {
    lora.rank = static_cast<int32_t>(1 + i % 5);
    adapters.push_back(adapter_on(*frozen, lora, 100 * i + 5));
    for (size_t k = 0; k < 1 + i % 2; ++k) policies.push_back(adapters.back().get());
  }
  const auto together = sampled(*adapters[0], policies, 40, 0, policies.size());
  ASSERT_EQ(together.size(), policies.size());
  for (size_t i = 0; i < policies.size(); ++i) {
    const Output& here = together.at(i);
    const auto alone = sampled(*adapters[0], policies, 512, i, i + 1);
    EXPECT_EQ(here.tokens, alone.at(i).tokens) << i;
    EXPECT_TRUE(same_bits(here.logprobs, alone.at(i).logprobs)) << i;
    train_test::OwnedBatch b;
    b.ids = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3};
    if (i % 3 == 0) b.ids.push_back(static_cast<int32_t>(i % 37));
    const size_t prompt = b.ids.size();
    b.ids.insert(b.ids.end(), here.tokens.begin(), here.tokens.end());
    b.mask.assign(b.ids.size(), 1), std::fill_n(b.mask.begin(), prompt, 0);
    b.offsets = {0, std::ssize(b.ids)};
    Decoder* policy = i == 1 ? adapters[0].get() : const_cast<Decoder*>(policies[i]);
    std::vector<float> scores(b.ids.size());
    evaluate_policy(*policy, b.view(), 1, scores.data(), nullptr);
    EXPECT_TRUE(same_bits(here.logprobs, {scores.begin() + static_cast<ptrdiff_t>(prompt), scores.end()})) << i;
  }
  EXPECT_NE(together.at(0).tokens, together.at(1).tokens);
}

TEST_P(Lora, ManyInABatchAreEachAlone) { expect_each_alone(config(), GYRE_LORA_ALL); }

ModelConfig experts_config(gyre_compute compute) {
  ModelConfig c = testing::experts_config();
  c.vocab_size = 37, c.compute = compute;
  return c;
}

constexpr uint32_t kBesideExperts = GYRE_LORA_EXPERTS | GYRE_LORA_V | GYRE_LORA_O;

TEST_P(Lora, ManyBesideExpertsAreEachAlone) { expect_each_alone(experts_config(GetParam()), kBesideExperts); }

// A of an adapter of experts is their A one after another; B has for every column those of all experts.
TEST_P(Lora, BesideExpertsEqualsTheModelThatItsProductsAreAddedTo) {
  const ModelConfig c = experts_config(GetParam());
  const int64_t experts = c.shape.experts;
  const auto base = testing::normal_decoder(c, 3, 0.2f), frozen = frozen_copy(*base);
  gyre_lora lora = kAll;
  lora.targets = kBesideExperts & ~(GYRE_LORA_V | GYRE_LORA_O);
  const auto adapter = adapter_on(*frozen, lora, 5), whole = copy_of(*base, c);
  auto weights = by_name(whole->parameters());
  const auto of = by_name(adapter->parameters());
  // Calls body(A, B, names of the weights that their product is added to, one below another) for each expert.
  const auto for_experts = [&](const std::map<std::string, at::Tensor>& set, auto&& body) {
    for (int64_t layer = 0; layer < c.num_layers; ++layer) {
      if (!c.mixes(layer)) continue;
      const std::string name = "model.layers." + std::to_string(layer) + ".mlp.experts.";
      for (const auto& [module, parts] :
           {std::pair<std::string, std::vector<std::string>>{"gate_up_proj", {"gate", "up"}},
            {"down_proj", {"down"}}}) {
        const at::Tensor a = set.at(name + module + ".lora_A.weight"), b = set.at(name + module + ".lora_B.weight");
        for (int64_t e = 0; e < experts; ++e) {
          std::vector<std::string> names;
          for (const std::string& part : parts) names.push_back(name + std::to_string(e) + "." + part + "_proj.weight");
          body(a.view({experts, lora.rank, -1}).select(0, e), b.view({-1, lora.rank, experts}).select(2, e), names);
        }
      }
    }
  };
  for_experts(of, [&](const at::Tensor& a, const at::Tensor& b, const std::vector<std::string>& names) {
    const std::vector<at::Tensor> parts = at::mm(b, a).chunk(static_cast<int64_t>(names.size()));
    for (size_t i = 0; i < names.size(); ++i) weights.at(names[i]).add_(parts[i], lora.scale);
  });
  whole->touch();
  const Trained t = train(*adapter, batch_), m = train(*whole, batch_);
  for (size_t i = 0; i < t.logprobs.size(); ++i) EXPECT_NEAR(t.logprobs[i], m.logprobs[i], 10 * tolerance());
  const auto d_whole = by_name(m.gradients->set());
  std::vector<at::Tensor> expected;
  for_experts(of, [&](const at::Tensor& a, const at::Tensor& b, const std::vector<std::string>& names) {
    std::vector<at::Tensor> parts;
    for (const std::string& name : names) parts.push_back(d_whole.at(name));
    const at::Tensor d_weight = at::cat(parts) * lora.scale;
    expected.push_back(at::mm(b.t(), d_weight)), expected.push_back(at::mm(d_weight, a.t()));
  });
  size_t at = 0;
  for_experts(by_name(t.gradients->set()),
              [&](const at::Tensor& da, const at::Tensor& db, const std::vector<std::string>& names) {
                EXPECT_LT(relative_error(da, expected[at]), 5 * tolerance()) << names[0];
                EXPECT_LT(relative_error(db, expected[at + 1]), 5 * tolerance()) << names[0];
                at += 2;
              });
}

// Keys and values of a prefix are shared under one adapter alone; an update of one restarts its own requests alone.
TEST_P(Lora, PrefixesAndUpdatesBelongToOneAdapter) {
  const auto base = testing::normal_decoder(config(), 3, 0.2f), frozen = frozen_copy(*base);
  const auto one = adapter_on(*frozen, kAll, 5), two = adapter_on(*frozen, kAll, 9);
  const std::vector<const Decoder*> policies{one.get(), one.get(), two.get(), one.get()};
  const auto all = sampled(*frozen, policies, 18, 0, 4);
  EXPECT_EQ(all.at(0).cached_tokens, 0);
  EXPECT_GE(all.at(1).cached_tokens, 16);
  EXPECT_EQ(all.at(2).cached_tokens, 0);
  EXPECT_GE(all.at(3).cached_tokens, 16);

  Engine engine(*frozen, {.kv_bytes = 0, .max_sequences = 8, .max_length = 48, .max_batch_tokens = 64});
  for (uint64_t i = 0; i < 2; ++i) {
    Request request{.id = i, .policy = unowned(i == 0 ? one.get() : two.get()), .prompt = {3, 1, 4, 1, 5}};
    request.sampling.max_tokens = 6, request.sampling.temperature = 0;
    engine.submit(std::move(request));
  }
  engine.step(), engine.step();
  one->touch();
  const int64_t before = engine.stats().prefill_tokens;
  engine.step();
  EXPECT_EQ(engine.stats().prefill_tokens - before, 7) << "the prompt and both tokens of one request";
  while (engine.step() > 0) {
  }
  EXPECT_TRUE(engine.poll(100) && engine.poll(100));
}

// A policy that has diverged ends its own requests, and throws where no other goes on.
TEST_P(Lora, LogitsThatAreNotFiniteEndTheirOwnRequests) {
  const auto base = testing::normal_decoder(config(), 3, 0.2f), frozen = frozen_copy(*base);
  const auto sound = adapter_on(*frozen, kAll, 5), broken = adapter_on(*frozen, kAll, 9);
  for (const NamedTensor& p : broken->parameters().named) p.value.fill_(std::numeric_limits<float>::quiet_NaN());
  broken->touch();
  const std::vector<const Decoder*> policies{sound.get(), broken.get(), frozen.get(), broken.get()};
  const auto all = sampled(*frozen, policies, 64, 0, 4);
  for (const uint64_t i : {0, 2}) {
    EXPECT_EQ(all.at(i).finish, GYRE_FINISH_LENGTH);
    EXPECT_TRUE(same_bits(all.at(i).logprobs, sampled(*frozen, policies, 64, i, i + 1).at(i).logprobs)) << i;
  }
  for (const uint64_t i : {1, 3}) EXPECT_EQ(all.at(i).finish, GYRE_FINISH_NOT_FINITE);
  EXPECT_THROW(sampled(*frozen, policies, 64, 1, 2), NotFiniteError);
}

INSTANTIATE_TEST_SUITE_P(All, Lora, ::testing::Values(GYRE_COMPUTE_F32, GYRE_COMPUTE_BF16));

}  // namespace
}  // namespace gyre
