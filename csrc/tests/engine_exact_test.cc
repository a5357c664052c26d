// Sampling is training bit for bit: a request's tokens and log-probs do not depend on what else the engine does.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "engine_fixture.h"

namespace gyre::engine_test {
namespace {

// Eight groups of eight members that share a prompt, which is up to four pages long; every other group's prompt begins
// with that of the one before.
std::vector<Request> groups(uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<Request> requests = varied_requests(64, seed);
  std::vector<int32_t> prompt;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i % 8 == 0) {
      const auto more = random_ids(generator, 3 + static_cast<int64_t>(i) % 29);
      if (i % 16 == 0) prompt.clear();
      prompt.insert(prompt.end(), more.begin(), more.end());
    }
    requests[i].prompt = prompt;
    requests[i].sampling.max_tokens = std::min<int64_t>(requests[i].sampling.max_tokens, 16);
    requests[i].sampling.min_tokens = std::min(requests[i].sampling.min_tokens, requests[i].sampling.max_tokens);
  }
  return requests;
}

// What the trainer makes of the same requests, one token at a time.
struct Model {
  const char* name;
  gyre_compute compute;
  ModelConfig (*shape)();  // null: the tiny one
  int64_t proposals = 0;   // of next tokens, for a sequence and pass
  ModelConfig config() const {
    ModelConfig c = shape == nullptr ? tiny_config(compute) : shape();
    c.compute = compute, c.vocab_size = 101;
    return c;
  }
};
void PrintTo(const Model& m, std::ostream* out) { *out << m.name; }

class EngineExact : public ::testing::TestWithParam<Model> {
 protected:
  void expect(const gyre_engine_config& config, const std::string& what) {
    expect_same(generate(*decoder_, config, requests_), trained_, what);
  }

  gyre_engine_config roomy() const {
    gyre_engine_config c = engine_test::roomy();
    c.speculative_tokens = GetParam().proposals, c.always_speculate = true;
    return c;
  }

  const Threads one_{1};
  // A pool of exactly this many pages.
  gyre_engine_config with_pages(int64_t pages) const {
    gyre_engine_config c = roomy();
    c.kv_bytes = pages * decoder_->bytes_per_page();
    return c;
  }

  std::unique_ptr<Decoder> decoder_ = testing::normal_decoder(GetParam().config(), 7, 0.35f);
  std::vector<Request> requests_ = groups(6);
  std::map<uint64_t, Output> trained_ = naive_each(*decoder_, requests_);
};

TEST_P(EngineExact, EveryBatchSizeWithAndWithoutTheCache) {
  for (const bool cached : {true, false})
    for (int64_t together = 1; together <= 64; ++together) {
      gyre_engine_config config = roomy();
      config.prefix_cache = cached;
      config.max_sequences = together;
      expect(config, std::to_string(together) + " at a time, " + (cached ? "cached" : "not cached"));
    }
}

TEST_P(EngineExact, EveryChunkSize) {
  for (const bool cached : {true, false})
    for (const int64_t rows : {1, 2, 3, 5, 8, 15, 16, 17, 31, 40, 64, 100, 1000}) {
      gyre_engine_config config = roomy();
      config.prefix_cache = cached;
      config.max_batch_tokens = rows;
      expect(config, "passes of " + std::to_string(rows) + " rows, " + (cached ? "cached" : "not cached"));
    }
}

TEST_P(EngineExact, ForcedPreemption) {
  requests_.resize(20);
  for (Request& r : requests_) r.sampling.max_tokens = 45, r.stop_ids.clear();
  trained_ = naive_each(*decoder_, requests_);
  for (const bool cached : {true, false}) {
    int64_t preemptions = 0;
    for (const int64_t pages : {6, 8, 9, 11, 14, 17, 30}) {
      gyre_engine_config config = with_pages(pages);
      config.prefix_cache = cached;
      Engine engine(*decoder_, config);
      for (const Request& r : requests_) engine.submit(r);
      expect_same(drain(engine), trained_, std::to_string(pages) + " pages");
      preemptions += engine.stats().preemptions;
      EXPECT_EQ(engine.stats().blocks_free + engine.stats().blocks_cached, pages);
    }
    EXPECT_GT(preemptions, 10) << "the pools were not small enough to test anything";
  }
}

TEST_P(EngineExact, AnyOrderOfArrival) {
  std::mt19937 generator(1);
  for (int i = 0; i < 8; ++i) {
    std::ranges::shuffle(requests_, generator);
    gyre_engine_config config = roomy();
    config.max_sequences = i % 2 == 0 ? 64 : 9;
    config.max_batch_tokens = i % 3 == 0 ? 33 : 256;
    expect(config, "order " + std::to_string(i));
  }
}

TEST_P(EngineExact, LaterArrivalsJoinRunningOnes) {
  Engine engine(*decoder_, roomy());
  for (const Request& r : requests_) {
    engine.submit(r);
    engine.step();
  }
  expect_same(drain(engine), trained_, "one arrival a step");
}

TEST_P(EngineExact, AnyNumberOfThreads) {
  for (const int threads : {2, 4}) {
    const Threads several(threads);
    expect(roomy(), std::to_string(threads) + " threads");
    gyre_engine_config small = with_pages(11);
    small.max_batch_tokens = 24;
    expect(small, std::to_string(threads) + " threads, 11 pages");
  }
}

TEST_P(EngineExact, AWarmCacheChangesNothing) {
  Engine engine(*decoder_, roomy());
  int64_t computed = 0;
  for (int round = 0; round < 3; ++round) {
    for (const Request& r : requests_) engine.submit(r);
    expect_same(drain(engine), trained_, "round " + std::to_string(round));
    if (round == 0) computed = engine.stats().prefill_tokens;
  }
  const gyre_engine_stats_t stats = engine.stats();
  EXPECT_EQ(stats.prefill_tokens - computed, 2 * 64) << "a cached prompt costs the row of its last token";
  if (GetParam().proposals > 0) {
    EXPECT_GT(stats.accepted_tokens, 500) << "what was drawn before is drawn again";
    EXPECT_GT(stats.proposed_tokens - stats.accepted_tokens, 50);
  }
}

TEST_P(EngineExact, LogprobsAreThoseOfScore) {
  const auto outputs = generate(*decoder_, roomy(), requests_);
  for (const Request& r : requests_) {
    const Output& out = outputs.at(r.id);
    std::vector<int32_t> ids = r.prompt;
    ids.insert(ids.end(), out.tokens.begin(), out.tokens.end());
    const int64_t offsets[] = {0, static_cast<int64_t>(ids.size())};
    std::vector<Target> targets;
    for (int64_t t = static_cast<int64_t>(r.prompt.size()); t < offsets[1]; ++t) targets.push_back({t - 1, ids[t]});
    const double temperature = r.sampling.temperature == 0 ? 1.0 : r.sampling.temperature;
    const Scores scores = decoder_->score(decoder_->forward(pack(ids, offsets), nullptr), targets, temperature, false);
    EXPECT_TRUE(same_bits(out.logprobs, scores.logprobs)) << "request " << r.id << " at temperature " << temperature;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EngineExact,
                         ::testing::Values(Model{"f32", GYRE_COMPUTE_F32, nullptr},
                                           Model{"bf16", GYRE_COMPUTE_BF16, nullptr},
                                           Model{"sandwichF32", GYRE_COMPUTE_F32, testing::sandwich_config},
                                           Model{"sandwichBf16", GYRE_COMPUTE_BF16, testing::sandwich_config},
                                           Model{"wideF32", GYRE_COMPUTE_F32, testing::wide_config},
                                           Model{"wideBf16", GYRE_COMPUTE_BF16, testing::wide_config},
                                           Model{"partialF32", GYRE_COMPUTE_F32, testing::partial_config},
                                           Model{"partialBf16", GYRE_COMPUTE_BF16, testing::partial_config},
                                           Model{"expertsF32", GYRE_COMPUTE_F32, testing::experts_config},
                                           Model{"expertsBf16", GYRE_COMPUTE_BF16, testing::experts_config},
                                           Model{"sharedExpertF32", GYRE_COMPUTE_F32, testing::shared_expert_config},
                                           Model{"sharedExpertBf16", GYRE_COMPUTE_BF16, testing::shared_expert_config},
                                           Model{"proposedF32", GYRE_COMPUTE_F32, nullptr, 3},
                                           Model{"proposedBf16", GYRE_COMPUTE_BF16, testing::wide_config, 20}),
                         [](const auto& info) { return info.param.name; });

// Turns of an episode: each prompt is the history so far plus something new, and a group's first turns are alike.
TEST(EngineTurns, HistoriesAreReused) {
  const Threads one(1);
  auto decoder = tiny_decoder();
  Engine engine(*decoder, roomy());
  std::mt19937 generator(2);
  std::vector<std::vector<int32_t>> histories(6, random_ids(generator, 20));
  histories[5] = random_ids(generator, 33);
  for (int turn = 0; turn < 4; ++turn) {
    std::vector<Request> requests(histories.size());
    for (size_t i = 0; i < histories.size(); ++i) {
      requests[i].id = i;
      requests[i].prompt = histories[i];
      // The first two play the same game to the end.
      requests[i].sampling = {.max_tokens = 10, .seed = (i == 1 ? 0 : i * 10) + turn};
      engine.submit(requests[i]);
    }
    const auto outputs = drain(engine);
    expect_same(outputs, naive_each(*decoder, requests), "turn " + std::to_string(turn));
    for (size_t i = 0; i < histories.size(); ++i) {
      const int64_t length = static_cast<int64_t>(histories[i].size());
      if (turn > 0) {
        // All but the last drawn token of the turn before; the twin of the first finds even what is new.
        EXPECT_EQ(outputs.at(i).cached_tokens, i == 1 ? length - 1 : length - 8) << "turn " << turn << ", " << i;
      } else {
        EXPECT_EQ(outputs.at(i).cached_tokens, i == 0 || i == 5 ? 0 : 19) << i;
      }
      const auto& tokens = outputs.at(i).tokens;
      histories[i].insert(histories[i].end(), tokens.begin(), tokens.end());
      std::mt19937 next(static_cast<uint32_t>((i == 1 ? 0 : i) * 100 + turn));
      const auto more = random_ids(next, 7);
      histories[i].insert(histories[i].end(), more.begin(), more.end());
    }
  }
  const gyre_engine_stats_t stats = engine.stats();
  EXPECT_EQ(stats.blocks_free + stats.blocks_cached, stats.blocks_total);
  EXPECT_GT(stats.cached_tokens, stats.prompt_tokens / 2);
}

TEST(EngineTurns, AChangedHistoryIsReusedUpToTheChange) {
  auto decoder = tiny_decoder();
  Engine engine(*decoder, roomy());
  std::mt19937 generator(4);
  Request r{.id = 1, .prompt = random_ids(generator, 50), .sampling = {.max_tokens = 5}};
  engine.submit(r);
  drain(engine);
  const std::vector<int32_t> before = r.prompt;
  r.prompt[37] = (r.prompt[37] + 1) % 101;
  engine.submit(r);
  const auto outputs = drain(engine);
  expect_same(outputs, naive_each(*decoder, {r}), "changed history");
  EXPECT_EQ(outputs.at(1).cached_tokens, 37);
  r.prompt = before;
  engine.submit(r);
  EXPECT_EQ(drain(engine).at(1).cached_tokens, 49) << "the copy was written to, not the original";
}

}  // namespace
}  // namespace gyre::engine_test
