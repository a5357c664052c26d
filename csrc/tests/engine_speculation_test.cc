// Proposed tokens change nothing but the number of passes.
#include <gtest/gtest.h>

#include <limits>

#include "engine/speculation.h"
#include "engine_fixture.h"

namespace gyre::engine_test {
namespace {

gyre_engine_config proposing(int64_t tokens) {
  gyre_engine_config c = roomy();
  c.speculative_tokens = tokens, c.always_speculate = true;
  return c;
}

// Token i stands for the letter number i % 26.
void set_letters(Engine& engine) {
  std::string data;
  std::vector<int64_t> offsets = {0};
  for (int32_t i = 0; i < 101; ++i) {
    data += static_cast<char>('a' + i % 26);
    offsets.push_back(i + 1);
  }
  engine.set_vocabulary(data, offsets);
}

TEST(EngineSpeculation, RepeatedRequestsTakeFewPasses) {
  auto decoder = tiny_decoder();
  Engine engine(*decoder, proposing(7));
  set_letters(engine);
  std::vector<Request> requests = varied_requests(40, 17);
  for (Request& r : requests) {
    r.sampling.alternatives = 2;
    if (r.id % 3 == 0) r.stop_strings = {"q", "ab"};
  }
  std::map<uint64_t, Output> want;
  int64_t passes = 0;
  for (int round = 0; round < 3; ++round) {
    for (const Request& r : requests) engine.submit(r);
    const int64_t before = engine.stats().steps;
    const auto got = drain(engine);
    if (round == 0) {
      Engine plain(*decoder, roomy());
      set_letters(plain);
      for (const Request& r : requests) plain.submit(r);
      want = drain(plain);
      passes = plain.stats().steps;
    } else {
      EXPECT_LT(3 * (engine.stats().steps - before), passes);
    }
    expect_same(got, want, "round " + std::to_string(round));
    for (const auto& [id, output] : want) {
      const auto& beside = got.at(id).alternatives;
      ASSERT_EQ(beside.size(), output.alternatives.size());
      for (size_t i = 0; i < beside.size(); ++i) {
        EXPECT_EQ(beside[i].token, output.alternatives[i].token);
        EXPECT_EQ(beside[i].logprob, output.alternatives[i].logprob);
      }
    }
  }
}

// A repetition under other weights proposes much that is not drawn.
TEST(EngineSpeculation, OtherWeightsAndWhatIsKeptOfOlderOnes) {
  for (const int64_t proposals : {0, 5}) {
    auto decoder = tiny_decoder();
    Engine engine(*decoder, proposals == 0 ? roomy() : proposing(proposals));
    std::vector<Request> requests = varied_requests(12, 19);
    for (Request& r : requests) {
      r.sampling.max_tokens = 40, r.sampling.min_tokens = 0, r.keep = GYRE_KEEP_CUT, r.stop_ids.clear();
      engine.submit(r);
    }
    drain(engine);
    static std::map<uint64_t, Output> plain;
    std::map<uint64_t, Output> all;
    for (const int64_t cut : {9, 16, 31}) {
      for (Request r : requests) {
        r.sampling.max_tokens = cut;
        if (all.contains(r.id)) {
          r.prompt.insert(r.prompt.end(), all[r.id].tokens.begin(), all[r.id].tokens.end());
          r.drawn = std::ssize(all[r.id].tokens), r.kept = true;
        }
        engine.submit(r);
      }
      all = drain(engine);
      randomize(*decoder, 7 + static_cast<uint32_t>(cut));
    }
    for (const auto& [id, output] : all) EXPECT_TRUE(output.kept) << id;
    if (proposals == 0) plain = all;
    expect_same(all, plain, "kept");
    EXPECT_EQ(engine.stats().accepted_tokens > 0, proposals > 0);
  }
}

// Rows of proposed tokens must not fail where those of drawn ones do not.
class DamagedProposals : public ::testing::TestWithParam<gyre_compute> {};

TEST_P(DamagedProposals, DoNotFail) {
  constexpr int32_t kDamaged = 77;
  auto decoder = tiny_decoder(7, GetParam());
  decoder->parameters().root.embed_VH[kDamaged].fill_(std::numeric_limits<float>::quiet_NaN());
  decoder->touch();
  const Request request{.id = 1, .prompt = {8, 9, 3, 4}, .sampling = {.temperature = 0, .max_tokens = 8}};
  const auto want = generate(*decoder, roomy(), {request});
  Engine engine(*decoder, proposing(4));
  engine.submit({.id = 2, .prompt = {3, 4, kDamaged, 3, 4, kDamaged}, .sampling = {.max_tokens = 1}});
  EXPECT_THROW(engine.step(), NotFiniteError);
  engine.abort(2);
  engine.poll(8);
  engine.submit(request);
  expect_same(drain(engine), want, "after a damaged token");
  EXPECT_GT(engine.stats().proposed_tokens, engine.stats().accepted_tokens);
}

INSTANTIATE_TEST_SUITE_P(Types, DamagedProposals, ::testing::Values(GYRE_COMPUTE_F32, GYRE_COMPUTE_BF16));

TEST(EngineSpeculation, WhatDoesNotPayIsNotProposed) {
  Pace pace;
  for (int i = 0; i < 100; ++i) pace.measured(16, i % 2 == 0 ? 0 : 4, i % 2 == 0 ? 1.0 : 1.1);
  EXPECT_FALSE(pace.pays(0.4, 16, 0, 0)) << "a row takes 0.4 of the time of the first ones";
  EXPECT_TRUE(pace.pays(0.9, 16, 0, 0));
  EXPECT_FALSE(pace.pays(0.6, 16, 0, 0)) << "gains too little";
  for (int i = 0; i < 100; ++i) pace.measured(1, i % 4, 0.1 * (1 + 0.02 * (i % 4)));
  EXPECT_TRUE(pace.pays(0.2, 1, 0, 0)) << "further rows take next to no time";
  EXPECT_TRUE(pace.pays(0.2, 1, 4, 3));
}

// Where proposals are always worth a try, nothing else would tell what a pass without them takes.
TEST(EngineSpeculation, PassesWithoutProposalsAreMeasured) {
  Pace pace;
  EXPECT_TRUE(pace.unknown(16));
  pace.measured(16, 0, 1.0);
  EXPECT_FALSE(pace.unknown(16));
  for (int i = 0; i < 64; ++i) pace.measured(16, 16, 1.5);
  EXPECT_TRUE(pace.unknown(16));
  for (int i = 0; i < 30; ++i) {
    pace.measured(16, 0, 0.5);
    for (int k = 0; k < 64; ++k) pace.measured(16, 16, 1.0);
  }
  EXPECT_FALSE(pace.pays(0.9, 16, 0, 0)) << "a row takes as long as the first ones";
}

TEST(LookUp, FindsWhatTheNumberDraws) {
  LookUp known;
  const std::vector<double> rates(LookUp::kKinds, 0.5);
  std::vector<int32_t> ids = {1, 2, 3, 4, 5};
  EXPECT_FALSE(known.find(ids, 0.5, rates));
  ids.push_back(6);
  known.learn(ids, {0.2f, 0.6f}, true);
  ids.back() = 7;
  known.learn(ids, {0.6f, 0.9f}, true);
  ids.pop_back();
  EXPECT_EQ(known.find(ids, 0.3, rates)->token, 6);
  EXPECT_EQ(known.find(ids, 0.6f, rates)->token, 7);
  EXPECT_FALSE(known.find(ids, 0.95, rates));
  EXPECT_EQ(known.find(std::vector<int32_t>{4, 5}, 0.3, rates)->token, 6);
  EXPECT_FALSE(known.find(std::vector<int32_t>{3, 5}, 0.3, rates));
  EXPECT_FALSE(known.find(std::vector<int32_t>{5}, 0.3, rates)) << "one token says too little";
  ids.push_back(6);
  known.learn(ids, {}, false);  // a prompt knows no shares, and keeps those that are known
  ids.pop_back();
  EXPECT_FALSE(known.find(ids, 0.95, rates));
}

}  // namespace
}  // namespace gyre::engine_test
