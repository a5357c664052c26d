// Everything at once: a small pool, shared prompts, continued histories, aborts, sleep, new weights.
#include <gtest/gtest.h>
#include <malloc.h>

#include "engine_fixture.h"

namespace gyre::engine_test {
namespace {

class EngineSoak : public ::testing::TestWithParam<int64_t> {};  // proposals

TEST_P(EngineSoak, LosesNoPageAndNoBit) {
  const Threads one(1);
  auto decoder = tiny_decoder();
  const auto requests = varied_requests(300, 21);
  const auto want = generate(*decoder, roomy(), requests);

  gyre_engine_config config = with_pages(14);
  config.max_batch_tokens = 24;
  config.max_sequences = 9;
  config.speculative_tokens = GetParam(), config.always_speculate = true;
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
    if (out.finish == GYRE_FINISH_ABORT) {
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
  EXPECT_EQ(engine.stats().blocks_free + engine.stats().blocks_cached, 14);
  if (GetParam() > 0) {
    EXPECT_GT(engine.stats().accepted_tokens, 20);
  }
}

INSTANTIATE_TEST_SUITE_P(Proposals, EngineSoak, ::testing::Values(0, 6));

// Bytes that this process has allocated and not freed.
int64_t allocated() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// Submits ten thousand requests to one engine, half of them in each call.
class Marathon {
 public:
  static constexpr int64_t kPages = 13;  // just enough for the longest sequence

  explicit Marathon(int64_t proposals)
      : engine_(*decoder_, config(proposals)), requests_(varied_requests(10000, 31)), generator_(32) {
    for (auto& prompt : prompts_) prompt = random_ids(generator_, pick(1, 40));
  }

  void run_half() {
    const size_t end = next_ + requests_.size() / 2;
    for (int64_t unfinished = 0; next_ < end || unfinished > 0;) {
      while (next_ < end && unfinished < 40 && pick(1, 3) > 1) submit(), ++unfinished;
      if (unfinished > 0 && pick(1, 12) == 1) abort_one();
      if (pick(1, 300) == 1) engine_.sleep();
      if (pick(1, 300) == 1) decoder_->touch();
      unfinished = engine_.step();
      while (auto output = engine_.poll(1000)) finish(*output);
    }
  }

  // The whole pool for one sequence: impossible if anything still held a page.
  void run_longest() {
    engine_.submit({.id = 1, .prompt = std::vector<int32_t>(150, 1), .sampling = {.max_tokens = 50}});
    EXPECT_EQ(drain(engine_).at(1).tokens.size(), 50u);
  }

  gyre_engine_stats_t stats() const { return engine_.stats(); }
  int finished() const { return finished_; }
  int aborted() const { return aborted_; }

 private:
  static gyre_engine_config config(int64_t proposals) {
    gyre_engine_config c = with_pages(kPages);
    c.max_sequences = 9;
    c.max_batch_tokens = 48;
    c.speculative_tokens = proposals, c.always_speculate = true;
    return c;
  }
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator_); }

  // A known beginning and something new.
  void submit() {
    Request r = requests_[next_++];
    r.sampling.max_tokens = pick(0, 9) == 0 ? 90 : std::min<int64_t>(r.sampling.max_tokens, 6);
    r.sampling.min_tokens = std::min(r.sampling.min_tokens, r.sampling.max_tokens);
    const auto& base = prompts_[pick(0, kPrompts - 1)];
    r.prompt.assign(base.begin(), base.end() - pick(0, static_cast<int>(base.size()) - 1));
    const auto more = random_ids(generator_, pick(0, 3) == 0 ? pick(1, 20) : 0);
    r.prompt.insert(r.prompt.end(), more.begin(), more.end());
    engine_.submit(r);
    running_.emplace(r.id, std::move(r));
  }

  void abort_one() {
    engine_.abort(std::next(running_.begin(), pick(0, static_cast<int>(running_.size()) - 1))->first);
  }

  void finish(const Output& out) {
    const Request r = running_.extract(out.id).mapped();
    ++finished_;
    if (out.finish == GYRE_FINISH_ABORT) ++aborted_;
    if (finished_ % 50 == 0 && out.finish != GYRE_FINISH_ABORT) {
      const Output want = naive(*decoder_, r);
      EXPECT_EQ(out.tokens, want.tokens) << "request " << r.id;
      EXPECT_TRUE(same_bits(out.logprobs, want.logprobs)) << "request " << r.id;
    }
    // Some become the beginning of later prompts.
    if (auto& prompt = prompts_[finished_ % kPrompts]; finished_ % 7 == 0) {
      prompt = r.prompt.size() > 30 ? random_ids(generator_, 20) : r.prompt;
      prompt.insert(prompt.end(), out.tokens.begin(), out.tokens.end());
    }
  }

  static constexpr int kPrompts = 20;
  std::unique_ptr<Decoder> decoder_ = tiny_decoder();
  Engine engine_;
  std::vector<Request> requests_;
  std::mt19937 generator_;
  size_t next_ = 0;
  std::vector<int32_t> prompts_[kPrompts];
  std::map<uint64_t, Request> running_;
  int finished_ = 0, aborted_ = 0;
};

TEST_P(EngineSoak, TenThousandRequestsLeaveNothingBehind) {
  const Threads one(1);
  Marathon marathon(GetParam());
  marathon.run_half();
  const int64_t half_way = allocated();
  marathon.run_half();
  EXPECT_LT(allocated() - half_way, 64 << 10) << "memory grows with the number of requests";
  const gyre_engine_stats_t stats = marathon.stats();
  EXPECT_EQ(marathon.finished(), 10000);
  EXPECT_GT(marathon.aborted(), 100);
  EXPECT_GT(stats.preemptions, 100);
  EXPECT_GT(stats.cached_tokens, stats.prompt_tokens / 8);
  EXPECT_EQ(stats.waiting + stats.running + stats.finished, 0);
  EXPECT_EQ(stats.blocks_free + stats.blocks_cached, Marathon::kPages);
  marathon.run_longest();
}

}  // namespace
}  // namespace gyre::engine_test
