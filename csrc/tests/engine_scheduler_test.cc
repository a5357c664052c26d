#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/scheduler.h"

namespace gyre {
namespace {

constexpr bool kCached = true, kUncached = false;

// A request for many tokens after the prompt first, first+1, ...
std::unique_ptr<Sequence> sequence(uint64_t id, int prompt_tokens, int first = 0) {
  Request r;
  r.id = id;
  r.prompt.resize(prompt_tokens);
  std::iota(r.prompt.begin(), r.prompt.end(), first);
  r.sampling.max_tokens = 1000;
  return std::make_unique<Sequence>(std::move(r));
}

// Schedules and completes a pass, with an arbitrary token for every sequence that yields one, and says how many rows of
// which request it had.
std::map<uint64_t, int64_t> pass(Scheduler& scheduler, std::vector<std::pair<int32_t, int32_t>>* copies = nullptr) {
  scheduler.schedule([&](int32_t from, int32_t to) {
    if (copies) copies->emplace_back(from, to);
  });
  std::map<uint64_t, int64_t> rows;
  std::vector<Sequence*> sampled;
  for (const auto& s : scheduler.running()) {
    if (s->scheduled > 0) rows[s->request.id] = s->scheduled;
    if (s->samples()) sampled.push_back(s.get());
  }
  scheduler.commit();
  for (Sequence* s : sampled) s->tokens.push_back(1000 + static_cast<int32_t>(s->request.id));
  return rows;
}

using Rows = std::map<uint64_t, int64_t>;

TEST(Scheduler, DecodeRowsComeBeforePromptChunks) {
  Scheduler scheduler(100, 8, 10, kUncached);
  scheduler.add(sequence(1, 4));
  EXPECT_EQ(pass(scheduler), (Rows{{1, 4}}));
  scheduler.add(sequence(2, 24));
  scheduler.add(sequence(3, 5));
  EXPECT_EQ(pass(scheduler), (Rows{{1, 1}, {2, 9}}));
  EXPECT_EQ(pass(scheduler), (Rows{{1, 1}, {2, 9}}));
  EXPECT_EQ(pass(scheduler), (Rows{{1, 1}, {2, 6}, {3, 3}}));
  EXPECT_EQ(pass(scheduler), (Rows{{1, 1}, {2, 1}, {3, 2}}));
}

TEST(Scheduler, SendsTheYoungestBackAndKeepsArrivalOrder) {
  for (const bool cached : {kCached, kUncached}) {
    Scheduler scheduler(4, 8, 100, cached);
    scheduler.add(sequence(1, 16));
    scheduler.add(sequence(2, 16, 50));
    scheduler.add(sequence(3, 16, 90));
    for (int i = 0; i < 40; ++i) pass(scheduler);
    EXPECT_EQ(scheduler.preemptions(), 1);
    ASSERT_EQ(scheduler.running().size(), 1u);
    EXPECT_EQ(scheduler.running()[0]->request.id, 1u);
    EXPECT_EQ(scheduler.waiting(), 2);
    scheduler.remove(1);
    pass(scheduler);
    ASSERT_GE(scheduler.running().size(), 1u);
    EXPECT_EQ(scheduler.running()[0]->request.id, 2u);
    scheduler.remove(2);
    scheduler.remove(3);
    EXPECT_EQ(scheduler.pages().available(), 4);
  }
}

TEST(Scheduler, APreemptedSequenceResumesFromWhatIsStillCached) {
  for (const bool until_a_page_is_taken : {false, true}) {
    Scheduler scheduler(6, 8, 100, kCached);
    scheduler.add(sequence(1, 40));
    scheduler.add(sequence(2, 20, 50));
    for (int i = 0; scheduler.preemptions() == 0; ++i) {
      ASSERT_LT(i, 20);
      pass(scheduler);
    }
    EXPECT_EQ(scheduler.pages().cached(), 2);
    for (int i = 0; until_a_page_is_taken && scheduler.pages().cached() == 2; ++i) {
      ASSERT_LT(i, 20);
      pass(scheduler);
    }
    scheduler.remove(1);
    EXPECT_EQ(pass(scheduler), (Rows{{2, until_a_page_is_taken ? 17 : 1}}));
  }
}

TEST(Scheduler, AGroupComputesItsPromptOnce) {
  Scheduler scheduler(100, 8, 100, kCached);
  for (uint64_t id = 1; id <= 4; ++id) scheduler.add(sequence(id, 40));
  scheduler.add(sequence(5, 20, 200));
  EXPECT_EQ(pass(scheduler), (Rows{{1, 40}, {5, 20}})) << "the others wait for the prompt's pages, 5 need not";
  std::vector<std::pair<int32_t, int32_t>> copies;
  EXPECT_EQ(pass(scheduler, &copies), (Rows{{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}}));
  EXPECT_EQ(copies.size(), 3u) << "each writes into a third page of its own";
  EXPECT_EQ(scheduler.pages().available(), 100 - 2 - 4 - 2);
  EXPECT_EQ(scheduler.prompt_tokens(), 4 * 40 + 20);
  EXPECT_EQ(scheduler.cached_tokens(), 3 * 39);
  const auto& running = scheduler.running();
  ASSERT_EQ(running.size(), 5u);
  for (size_t i = 0; i < running.size(); ++i) EXPECT_EQ(running[i]->request.id, i + 1) << "in order of arrival";
}

TEST(Scheduler, AGroupSharesAShortPromptToo) {
  Scheduler scheduler(100, 8, 100, kCached);
  scheduler.add(sequence(1, 10));
  scheduler.add(sequence(2, 10));
  scheduler.add(sequence(3, 9));
  scheduler.add(sequence(4, 12));
  EXPECT_EQ(pass(scheduler), (Rows{{1, 10}, {4, 12}})) << "what is computed would not be all that the fourth needs";
  EXPECT_EQ(pass(scheduler), (Rows{{1, 1}, {2, 1}, {3, 1}, {4, 1}}));
}

TEST(Scheduler, SequencesInChunksAreShared) {
  Scheduler scheduler(100, 8, 24, kCached);
  for (uint64_t id = 1; id <= 2; ++id) scheduler.add(sequence(id, 64));
  EXPECT_EQ(pass(scheduler), (Rows{{1, 24}}));
  EXPECT_EQ(pass(scheduler), (Rows{{1, 24}}));
  EXPECT_EQ(pass(scheduler), (Rows{{1, 16}}));
  EXPECT_EQ(pass(scheduler), (Rows{{1, 1}, {2, 1}})) << "a prompt that is wholly cached still needs its last logits";
}

TEST(Scheduler, TheNextTurnAppendsWithoutCopying) {
  Scheduler scheduler(100, 8, 100, kCached);
  scheduler.add(sequence(1, 20));
  for (int i = 0; i < 5; ++i) pass(scheduler);
  const auto first = scheduler.remove(1);
  EXPECT_EQ(first->outputs(), 5);
  auto next = sequence(1, 0);
  next->tokens = first->tokens;
  next->tokens.resize(40, 7);
  next->request.prompt = next->tokens;
  scheduler.add(std::move(next));
  std::vector<std::pair<int32_t, int32_t>> copies;
  EXPECT_EQ(pass(scheduler, &copies), (Rows{{1, 40 - 24}}));
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(scheduler.pages().available(), 97);
}

TEST(Scheduler, CachedPagesAreTakenBackBeforeAnythingIsPreempted) {
  Scheduler scheduler(4, 8, 100, kCached);
  scheduler.add(sequence(1, 30));
  pass(scheduler);
  scheduler.remove(1);
  EXPECT_EQ(scheduler.pages().cached(), 2);
  scheduler.add(sequence(2, 60, 100));
  EXPECT_EQ(pass(scheduler), (Rows{{2, 60}}));
  EXPECT_EQ(scheduler.pages().available(), 0);
  EXPECT_EQ(scheduler.preemptions(), 0);
}

TEST(Scheduler, ATightPoolComputesAgainWhatItHasNoRoomToCopy) {
  Scheduler scheduler(2, 8, 100, kCached);
  scheduler.add(sequence(1, 30));
  pass(scheduler);
  scheduler.remove(1);
  auto other = sequence(2, 30);
  other->request.prompt[25] = other->tokens[25] = 500;
  scheduler.add(std::move(other));
  EXPECT_EQ(pass(scheduler), (Rows{{2, 14}})) << "the first page is shared, the second one is the only one left";
}

TEST(Scheduler, AFailedPassIsScheduledAgain) {
  Scheduler scheduler(100, 8, 100, kCached);
  scheduler.add(sequence(1, 40));
  scheduler.add(sequence(2, 40));
  const auto nothing = [](int32_t, int32_t) {};
  scheduler.schedule(nothing);  // and no commit
  EXPECT_EQ(pass(scheduler), (Rows{{1, 40}}));
  EXPECT_EQ(pass(scheduler), (Rows{{1, 1}, {2, 1}}));

  scheduler.add(sequence(3, 60, 300));
  scheduler.add(sequence(4, 60, 300));
  scheduler.schedule(nothing);
  scheduler.remove(3);  // aborted after the failure: nobody computes what it had announced
  EXPECT_EQ(pass(scheduler), (Rows{{1, 1}, {2, 1}, {4, 60}}));
}

TEST(Scheduler, ForgetsEverything) {
  Scheduler scheduler(100, 8, 100, kCached);
  for (uint64_t id = 1; id <= 3; ++id) scheduler.add(sequence(id, 40));
  pass(scheduler);
  pass(scheduler);
  scheduler.forget();
  EXPECT_EQ(scheduler.pages().free(), 100);
  EXPECT_EQ(scheduler.waiting(), 3);
  EXPECT_EQ(scheduler.preemptions(), 0);
  EXPECT_EQ(pass(scheduler), (Rows{{1, 42}})) << "with what was drawn before";
}

}  // namespace
}  // namespace gyre
