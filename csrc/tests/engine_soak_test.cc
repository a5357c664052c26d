// A few hundred requests with everything happening at once: small pool, aborts, sleep.
#include <gtest/gtest.h>

#include "engine_fixture.h"

namespace gyre::engine_test {
namespace {

TEST(EngineSoak, LosesNoPageAndNoBit) {
  const Threads one(1);
  auto decoder = tiny_decoder();
  const auto requests = varied_requests(300, 21);
  const auto want = generate(*decoder, roomy(), requests);

  EngineConfig config = with_pages(14);
  config.max_batch_tokens = 24;
  config.max_sequences = 9;
  Engine engine(*decoder, config);
  std::mt19937 generator(22);
  const auto one_in = [&](int n) { return std::uniform_int_distribution<int>(1, n)(generator) == 1; };
  std::map<uint64_t, Output> got;
  size_t next = 0;
  int64_t unfinished = 0;
  while (next < requests.size() || unfinished > 0) {
    while (next < requests.size() && !one_in(3)) {
      Request r = requests[next++];
      engine.submit(r);
      ++unfinished;
    }
    if (one_in(60)) engine.sleep();
    if (unfinished > 0 && one_in(15)) {
      const uint64_t id = requests[std::uniform_int_distribution<size_t>(0, next - 1)(generator)].id;
      if (!got.contains(id)) engine.abort(id);
    }
    unfinished = engine.step();
    while (auto output = engine.poll(1000)) got.emplace(output->id, std::move(*output));
  }
  ASSERT_EQ(got.size(), want.size());
  int aborted = 0;
  for (const auto& [id, out] : got) {
    const Output& full = want.at(id);
    if (out.finish == Finish::kAbort) {
      ++aborted;
      ASSERT_LE(out.tokens.size(), full.tokens.size());
      EXPECT_TRUE(std::equal(out.tokens.begin(), out.tokens.end(), full.tokens.begin())) << "request " << id;
    } else {
      EXPECT_EQ(out.finish, full.finish) << "request " << id;
      EXPECT_EQ(out.tokens, full.tokens) << "request " << id;
      EXPECT_TRUE(same_bits(out.logprobs, full.logprobs)) << "request " << id;
      EXPECT_TRUE(same_bits(out.sampling_logprobs, full.sampling_logprobs)) << "request " << id;
    }
  }
  EXPECT_GT(aborted, 0);
  EXPECT_GT(engine.stats().preemptions, 0);
  EXPECT_EQ(engine.stats().pages_free + engine.stats().pages_cached, 14);
}

}  // namespace
}  // namespace gyre::engine_test
