// A draft model changes nothing but the number of passes.
#include <gtest/gtest.h>

#include <limits>

#include "engine/draft.h"
#include "engine_fixture.h"
#include "lora_fixture.h"

namespace gyre::engine_test {
namespace {

gyre_engine_config proposing(gyre_engine_config c = roomy()) {
  c.speculative_tokens = 5, c.always_speculate = true;
  return c;
}

std::shared_ptr<Decoder> frozen(const Decoder& of) { return lora_test::frozen_copy(of); }

// Another shape, and weights that have nothing to do with the policy's.
std::shared_ptr<Decoder> useless() {
  ModelConfig c = tiny_config();
  c.hidden_size = 16, c.num_heads = 2, c.num_kv_heads = 1, c.num_layers = 1, c.max_positions = 60;
  return frozen(*testing::normal_decoder(c, 23, 0.35f));
}

// No two tokens in a row twice: look-up finds nothing.
std::vector<Request> unrepeated(int count) {
  std::vector<Request> requests = varied_requests(count, 29);
  for (Request& r : requests) {
    if (r.id % 2 == 0) r.sampling.temperature = 1.3, r.sampling.max_tokens = 40;
  }
  return requests;
}

TEST(EngineDraft, AnyDraftGivesTheBitsOfNone) {
  auto decoder = tiny_decoder();
  for (const int64_t pages : {0, 14}) {
    const gyre_engine_config config = pages == 0 ? roomy() : with_pages(pages);
    const std::vector<Request> requests = unrepeated(pages == 0 ? 40 : 24);
    const auto want = generate(*decoder, roomy(), requests);
    double shares[2];
    for (const bool same : {false, true}) {
      Engine engine(*decoder, proposing(config));
      engine.set_draft(same ? frozen(*decoder) : useless());
      for (const Request& r : requests) engine.submit(r);
      expect_same(drain(engine), want, same ? "the policy as draft" : "a useless draft");
      const gyre_engine_stats_t stats = engine.stats();
      EXPECT_EQ(stats.preemptions > 0, pages > 0);
      shares[same] = static_cast<double>(stats.accepted_tokens) / static_cast<double>(stats.proposed_tokens);
    }
    EXPECT_LT(shares[0], 0.5);
    EXPECT_GT(shares[1], 0.99) << "the same distribution and the same numbers";
  }
}

TEST(EngineDraft, TakesAFewPasses) {
  auto decoder = tiny_decoder();
  Engine engine(*decoder, proposing());
  engine.set_draft(frozen(*decoder));
  Request request{.id = 1, .prompt = {8, 9, 3, 4}, .sampling = {.max_tokens = 61, .seed = 9}, .stop_ids = {}};
  engine.submit(request);
  const auto got = drain(engine);
  EXPECT_EQ(engine.stats().steps, 11) << "of six tokens each, but for the first";
  request.stop_ids = {got.at(1).tokens[20]};
  for (const bool ignore : {false, true}) {
    request.sampling.ignore_eos = ignore;
    engine.submit(request);
    expect_same(drain(engine), generate(*decoder, roomy(), {request}), ignore ? "goes on" : "stops");
  }
}

// The policy's weights change, and with them what the draft is worth; adapters beside it have none.
TEST(EngineDraft, OtherWeightsAdaptersSleepAndAbort) {
  auto decoder = tiny_decoder();
  const auto adapter = lora_test::adapter_on(*decoder, lora_test::kAll, 5);
  Engine engine(*decoder, proposing());
  engine.set_draft(frozen(*decoder));
  std::vector<Request> requests = unrepeated(12);
  for (size_t i = 0; i < requests.size(); i += 3) {
    requests[i].policy = {std::shared_ptr<const Decoder>(), adapter.get()};
  }
  for (const uint32_t seed : {0u, 31u}) {
    if (seed > 0) randomize(*decoder, seed), adapter->touch();
    for (const Request& r : requests) engine.submit(r);
    for (int i = 0; i < 3; ++i) engine.step();
    engine.sleep();
    EXPECT_EQ(engine.stats().kv_bytes, 0);
    engine.submit({.id = 7, .prompt = {1, 2, 3}, .sampling = {.max_tokens = 50}});
    engine.step();
    EXPECT_GT(engine.stats().kv_bytes, engine.stats().blocks_total * decoder->bytes_per_page());
    engine.abort(7);
    auto got = drain(engine);
    got.erase(7);
    expect_same(got, generate(*decoder, roomy(), requests), "weights " + std::to_string(seed));
  }
}

TEST(EngineDraft, DamagedWeightsHarmNobody) {
  auto decoder = tiny_decoder(), damaged = tiny_decoder();
  damaged->parameters().root.embed_VH.fill_(std::numeric_limits<float>::quiet_NaN());
  damaged->touch();
  const std::vector<Request> requests = unrepeated(8);
  Engine engine(*decoder, proposing());
  engine.set_draft(std::move(damaged));
  for (const Request& r : requests) engine.submit(r);
  expect_same(drain(engine), generate(*decoder, roomy(), requests), "a damaged draft");
}

TEST(EngineDraft, RefusesWhatCannotPropose) {
  auto decoder = tiny_decoder();
  ModelConfig other = tiny_config();
  other.vocab_size = 90;
  Engine engine(*decoder, proposing());
  EXPECT_THROW(engine.set_draft(std::make_shared<Decoder>(other)), std::invalid_argument);
  other = tiny_config();
  other.head = GYRE_HEAD_VALUE;
  EXPECT_THROW(engine.set_draft(std::make_shared<Decoder>(other)), std::invalid_argument);
  Engine plain(*decoder, roomy());
  EXPECT_THROW(plain.set_draft(useless()), std::invalid_argument);
}

TEST(Draft, IsTriedOnAccountAndPaysItBack) {
  auto decoder = tiny_decoder();
  Draft draft(useless(), roomy(), 100);
  draft.earn(1, 2);
  EXPECT_TRUE(draft.affords(false, 2)) << "begins with the savings of two passes";
  draft.earn(-5, 2);
  EXPECT_FALSE(draft.affords(false, 2));
  EXPECT_TRUE(draft.affords(true, 2)) << "a debt that it is thought to pay back";
  draft.earn(-40, 2);
  EXPECT_FALSE(draft.affords(true, 2));
  draft.earn(100, 2);
  draft.earn(-5, 2);
  EXPECT_FALSE(draft.affords(false, 2)) << "savings are bounded";
}

}  // namespace
}  // namespace gyre::engine_test
