// One model that several processes sample from together gives what one process gives.
#include <ATen/Parallel.h>
#include <stdlib.h>

#include <exception>
#include <filesystem>
#include <thread>

#include "backend_fixture.h"
#include "engine_fixture.h"
#include "fsdp/group.h"

namespace gyre::engine_test {
namespace {

// Runs body(group) as each of so many ranks, which are threads, and throws what the first of them threw.
template <typename Body>
void over_ranks(int size, Body&& body) {
  std::string folder = ::testing::TempDir() + "ranksXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::shared_ptr<Store> store = open_file_store(folder + "/store");
  std::vector<std::exception_ptr> thrown(static_cast<size_t>(size));
  std::vector<std::thread> ranks;
  for (int r = 0; r < size; ++r) {
    ranks.emplace_back([&, r] {
      at::set_num_threads(1);  // libgomp would keep a pool for each of these threads
      try {
        Group group({.rank = r, .size = size, .store = store, .prefix = "peers/", .timeout = 60});
        try {
          body(group);
          group.all_gather({});
        } catch (const std::exception& e) {
          group.abort(e.what());
          throw;
        }
      } catch (...) {
        thrown[static_cast<size_t>(r)] = std::current_exception();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  std::filesystem::remove_all(folder);
  for (const std::exception_ptr& e : thrown) {
    if (e) std::rethrow_exception(e);
  }
}

struct Shape {
  const char* name;
  int64_t heads, kv_heads;
  bool tied, bias, norms;
  int parts;
  ModelConfig (*family)() = nullptr;  // whose shape it has
};

constexpr Shape kShapes[] = {
    {"tied", 4, 2, true, false, false, 2},
    {"untied", 4, 4, false, false, false, 4},
    {"biases", 4, 4, false, true, false, 2},
    {"uneven", 6, 3, true, true, false, 2},
    {"sharedKeys", 8, 2, false, false, true, 4},
    {"norms", 4, 2, true, false, true, 2},
    {"oneKeyHead", 3, 1, true, false, false, 3},
    {"sandwich", 4, 2, true, false, false, 2, testing::sandwich_config},
    {"wide", 6, 3, false, true, true, 3, testing::wide_config},
    {"wideSharedKeys", 8, 2, true, false, true, 4, testing::wide_config},
    {"partial", 6, 3, true, false, true, 3, testing::partial_config},
};

ModelConfig config_of(const Shape& s, const std::string& device, gyre_compute compute) {
  ModelConfig c = tiny_config(compute);
  c.set_device(device);
  c.num_heads = s.heads, c.num_kv_heads = s.kv_heads, c.tie_embeddings = s.tied;
  c.qkv_bias = c.out_bias = c.mlp_bias = s.bias, c.qk_norm = s.norms;
  if (s.family != nullptr) c.shape = s.family().shape;
  c.hidden_size = 72, c.intermediate_size = 101, c.vocab_size = 205;  // cuts at vectors and with a rest
  return c;
}

std::unique_ptr<Decoder> decoder_of(const ModelConfig& config) {
  auto decoder = std::make_unique<Decoder>(config);
  std::mt19937 generator(11);
  std::normal_distribution<float> normal(0.0f, 0.2f);
  for (at::Tensor flat : decoder->parameters().flats()) {
    at::Tensor values = at::empty(flat.sizes(), at::kFloat);
    for (int64_t i = 0; i < values.numel(); ++i) values.mutable_data_ptr<float>()[i] = normal(generator);
    flat.copy_(values);
  }
  decoder->touch();
  return decoder;
}

// An adapter beside a base, where the configuration has one; it owns the base.
struct Policy {
  std::unique_ptr<Decoder> base, adapter;
  Decoder& decoder() const { return adapter ? *adapter : *base; }
};

Policy policy_of(const ModelConfig& config) {
  ModelConfig of_base = config;
  of_base.lora = {};
  Policy policy{decoder_of(of_base), nullptr};
  if (config.lora.rank == 0) return policy;
  policy.adapter = std::make_unique<Decoder>(config, open_backend(config), policy.base.get());
  testing::fill_normal(policy.adapter->parameters().flats(), 13, 0.3f);
  policy.adapter->touch();
  return policy;
}

// Of the first rank's engine; pages are few, so that sequences give way and pages are copied.
std::map<uint64_t, Output> together(const ModelConfig& config, int parts, const std::vector<Request>& requests,
                                    const gyre_engine_config& engine_config) {
  std::map<uint64_t, Output> outputs;
  over_ranks(parts, [&](Group& group) {
    ModelConfig own = config;
    if (config.device() == "fake" && group.rank() % 2 == 1) own.set_device("fake:1");
    const Policy policy = policy_of(own);
    policy.decoder().share({&group, [](Group*) {}});
    Engine engine(policy.decoder(), engine_config);
    if (group.rank() > 0) {
      while (engine.follow()) {
      }
      EXPECT_FALSE(engine.follow()) << "a second round";
      return;
    }
    for (const Request& r : requests) engine.submit(r);
    outputs = drain(engine);
    engine.dismiss();
    engine.dismiss();
  });
  return outputs;
}

// Several processes sample as one does; on tensors up to rounding.
void expect_as_one(const ModelConfig& config, const Shape& shape, int count) {
  const Threads one{1};  // each rank has its own
  const Policy alone = policy_of(config);
  const std::vector<Request> requests = varied_requests(count);
  gyre_engine_config engine_config = roomy();
  engine_config.max_batch_tokens = 40;
  const auto want = generate(alone.decoder(), engine_config, requests);
  const auto got = together(config, shape.parts, requests, engine_config);
  ASSERT_EQ(got.size(), want.size());
  if (config.device() == "cpu") return expect_same(got, want, shape.name);
  for (const auto& [id, w] : want) {  // libtorch's products may round otherwise: up to where another token is drawn
    const Output& g = got.at(id);
    ASSERT_FALSE(g.tokens.empty());
    const bool near = config.compute == GYRE_COMPUTE_F32 || g.tokens[0] != w.tokens[0];
    EXPECT_NEAR(g.logprobs[0], w.logprobs[0], near ? 1e-4 : 0.1);
  }
}

class SampleTogether : public ::testing::TestWithParam<std::tuple<const char*, gyre_compute, Shape>> {
 protected:
  void SetUp() override {
    if (const std::string why = testing::absence(std::get<0>(GetParam())); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(SampleTogether, AsOneProcess) {
  const auto& [device, compute, shape] = GetParam();
  expect_as_one(config_of(shape, device, compute), shape, 24);
}

std::string name_of(const auto& info) {
  const auto& [device, compute, shape] = info.param;
  return std::string(device) + (compute == GYRE_COMPUTE_BF16 ? "Bf16" : "F32") + "_" + shape.name;
}

INSTANTIATE_TEST_SUITE_P(Devices, SampleTogether,
                         ::testing::Combine(::testing::Values("cpu", "aten", "cuda"),
                                            ::testing::Values(GYRE_COMPUTE_F32, GYRE_COMPUTE_BF16),
                                            ::testing::ValuesIn(kShapes)),
                         [](const auto& info) { return name_of(info); });
INSTANTIATE_TEST_SUITE_P(FakeDevices, SampleTogether,
                         ::testing::Combine(::testing::Values("fake"), ::testing::Values(GYRE_COMPUTE_BF16),
                                            ::testing::Values(kShapes[1], kShapes[5])),
                         [](const auto& info) { return name_of(info); });

// Of all modules; with heads of all kinds, and norms over all heads; of experts.
TEST(SampleTogether, AdaptersAreThoseOfOneProcess) {
  const Shape experts{"experts", 4, 2, true, false, true, 2, testing::experts_config};
  const auto expect = [](const Shape& shape, const char* device, gyre_compute compute, uint32_t targets) {
    ModelConfig config = config_of(shape, device, compute);
    config.lora = {.rank = 3, .targets = targets, .scale = 0.7};
    expect_as_one(config, shape, 8);
  };
  for (const gyre_compute compute : {GYRE_COMPUTE_F32, GYRE_COMPUTE_BF16}) {
    for (const size_t i : {1, 3, 9}) expect(kShapes[i], "cpu", compute, GYRE_LORA_ALL);
    expect(experts, "cpu", compute, GYRE_LORA_EXPERTS | GYRE_LORA_V | GYRE_LORA_O);
  }
  expect(kShapes[3], "aten", GYRE_COMPUTE_F32, GYRE_LORA_ALL);
  if (testing::absence("fake").empty()) expect(kShapes[3], "fake", GYRE_COMPUTE_F32, GYRE_LORA_ALL);
}

// Another adapter is in effect with the next step, and the base's share stays as it is.
TEST(SampleTogether, ANewAdapterIsInEffectWithTheNextStep) {
  const Threads one{1};
  ModelConfig config = config_of(kShapes[1], "cpu", GYRE_COMPUTE_F32);
  config.lora = {.rank = 2, .targets = GYRE_LORA_ALL, .scale = 1};
  const std::vector<Request> requests = varied_requests(6);
  const auto halve = [](const Policy& policy) {
    for (at::Tensor flat : policy.adapter->parameters().flats()) flat.mul_(0.5);
    policy.adapter->touch();
  };
  const Policy alone = policy_of(config);
  const auto before = generate(alone.decoder(), roomy(), requests);
  halve(alone);
  const auto after = generate(alone.decoder(), roomy(), requests);
  over_ranks(2, [&](Group& group) {
    const Policy policy = policy_of(config);
    policy.decoder().share({&group, [](Group*) {}});
    Engine engine(policy.decoder(), roomy());
    for (const bool changed : {false, true}) {
      if (changed) halve(policy);
      if (group.rank() > 0) {
        while (engine.follow()) {
        }
        continue;
      }
      for (const Request& r : requests) engine.submit(r);
      const auto got = drain(engine);
      engine.dismiss();
      expect_same(got, changed ? after : before, changed ? "halved adapter" : "adapter");
    }
  });
}

TEST(SampleTogether, SequencesThatGiveWayAndSharedPagesAreTheSame) {
  const Threads one{1};
  const ModelConfig config = config_of(kShapes[0], "cpu", GYRE_COMPUTE_F32);
  const auto alone = decoder_of(config);
  std::vector<Request> requests = varied_requests(24);
  for (size_t i = 1; i < requests.size(); i += 2) requests[i].prompt = requests[i - 1].prompt;
  gyre_engine_config few = roomy();
  few.kv_bytes = 14 * alone->bytes_per_page() / 2;  // 14 pages of half the heads
  over_ranks(2, [&](Group& group) {
    const auto decoder = decoder_of(config);
    decoder->share({&group, [](Group*) {}});
    EXPECT_EQ(decoder->bytes_per_page(), alone->bytes_per_page() / 2);
    Engine engine(*decoder, few);
    if (group.rank() > 0) {
      EXPECT_THROW(engine.submit(requests[0]), std::invalid_argument);
      while (engine.follow()) {
      }
      EXPECT_EQ(engine.stats().kv_bytes, 14 * decoder->bytes_per_page());
      EXPECT_GT(engine.stats().decode_tokens, 0);
      return;
    }
    for (const Request& r : requests) engine.submit(r);
    const auto got = drain(engine);
    EXPECT_GT(engine.stats().preemptions, 0);
    EXPECT_GT(engine.stats().cached_tokens, 0);
    engine.dismiss();
    expect_same(got, generate(*alone, roomy(), requests), "14 pages");
  });
}

TEST(SampleTogether, NewWeightsAreInEffectWithTheNextStep) {
  const Threads one{1};
  const ModelConfig config = config_of(kShapes[1], "cpu", GYRE_COMPUTE_F32);
  const std::vector<Request> requests = varied_requests(6);
  const auto alone = decoder_of(config);
  for (at::Tensor flat : alone->parameters().flats()) flat.mul_(0.5);
  alone->touch();
  const auto want = generate(*alone, roomy(), requests);
  over_ranks(2, [&](Group& group) {
    const auto decoder = decoder_of(config);
    decoder->share({&group, [](Group*) {}});
    Engine engine(*decoder, roomy());
    for (const bool changed : {false, true}) {
      if (changed) {
        for (at::Tensor flat : decoder->parameters().flats()) flat.mul_(0.5);
        decoder->touch();
      }
      if (group.rank() > 0) {
        while (engine.follow()) {
        }
      } else {
        for (const Request& r : requests) engine.submit(r);
        const auto got = drain(engine);
        engine.dismiss();
        if (changed) expect_same(got, want, "halved weights");
      }
      engine.sleep();
    }
  });
}

std::string refusal(const ModelConfig& config, int parts) {
  try {
    const Slicing slicing(config, parts);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

TEST(SampleTogether, HeadsThatCannotBeDividedAreRefused) {
  ModelConfig config = tiny_config();  // 4 heads in pairs
  EXPECT_EQ(refusal(config, 4), "");
  EXPECT_EQ(refusal(config, 3),
            "sampling over 3 ranks together: the model's 4 heads and 2 key/value heads can be divided over 1, 2, 4 of "
            "them");
  EXPECT_NE(refusal(config, 8), "");
  config.num_heads = 9, config.num_kv_heads = 3;
  EXPECT_EQ(refusal(config, 2), "") << "one part has two key/value heads";
  EXPECT_NE(refusal(config, 4), "");
  EXPECT_EQ(refusal(config, 9), "");
}

TEST(SampleTogether, EverySliceIsSomebodys) {
  for (const Shape& shape : kShapes) {
    const ModelConfig config = config_of(shape, "cpu", GYRE_COMPUTE_F32);
    const Slicing slicing(config, shape.parts);
    for (const auto& [of, total] : {std::pair{&Slice::heads, config.num_heads},
                                    {&Slice::hidden, config.hidden_size},
                                    {&Slice::intermediate, config.intermediate_size},
                                    {&Slice::vocab, config.vocab_size}}) {
      int64_t end = 0;
      for (int p = 0; p < shape.parts; ++p) {
        EXPECT_EQ((slicing[p].*of).first, end) << shape.name;
        EXPECT_GT((slicing[p].*of).count, 0) << shape.name;
        end += (slicing[p].*of).count;
      }
      EXPECT_EQ(end, total) << shape.name;
    }
  }
}

TEST(SampleTogether, WhatCannotBeSharedOrFollowedIsRefused) {
  const auto decoder = tiny_decoder();
  Engine engine(*decoder, roomy());
  EXPECT_THROW(engine.follow(), std::invalid_argument);
  engine.dismiss();  // nobody follows
  ModelConfig config = tiny_config();
  config.head = GYRE_HEAD_VALUE;
  over_ranks(2, [&](Group& group) {
    Decoder critic(config);
    EXPECT_THROW(critic.share({&group, [](Group*) {}}), std::invalid_argument);
  });
}

}  // namespace
}  // namespace gyre::engine_test
