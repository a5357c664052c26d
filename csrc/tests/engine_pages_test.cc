#include <gtest/gtest.h>

#include <stdexcept>

#include "engine/page_allocator.h"
#include "engine/scheduler.h"

namespace gyre {
namespace {

std::unique_ptr<Sequence> sequence(uint64_t id, int prompt_tokens) {
  Request r;
  r.id = id;
  for (int i = 0; i < prompt_tokens; ++i) r.prompt.push_back(i);
  r.sampling.max_tokens = 1000;
  return std::make_unique<Sequence>(std::move(r));
}

// What the engine does after a pass, with an arbitrary token for every sequence that yields one.
void complete_pass(Scheduler& scheduler) {
  for (const auto& s : scheduler.running()) {
    const bool samples = s->samples();
    s->computed += s->scheduled;
    if (samples) s->tokens.push_back(1);
  }
}

TEST(PageAllocator, CountsReferencesAndRefusesDoubleRelease) {
  PageAllocator pages(2);
  std::vector<int32_t> table = {pages.take(), pages.take()};
  EXPECT_NE(table[0], table[1]);
  EXPECT_EQ(pages.free(), 0);
  EXPECT_THROW(pages.take(), std::logic_error);
  std::vector<int32_t> again = {table[1]};
  pages.truncate(table, 1);
  EXPECT_EQ(pages.free(), 1);
  EXPECT_THROW(pages.release(again), std::logic_error);
  pages.release(table);
  EXPECT_EQ(pages.free(), 2);
}

TEST(Scheduler, MixesDecodeRowsWithPromptChunks) {
  Scheduler scheduler(100, 8, 10);
  scheduler.add(sequence(1, 4));
  scheduler.schedule();
  complete_pass(scheduler);  // 1 has its first token
  scheduler.add(sequence(2, 14));
  scheduler.add(sequence(3, 5));
  scheduler.schedule();
  ASSERT_EQ(scheduler.running().size(), 2u);
  EXPECT_EQ(scheduler.running()[0]->scheduled, 1);
  EXPECT_EQ(scheduler.running()[1]->scheduled, 9);
  complete_pass(scheduler);
  scheduler.schedule();
  ASSERT_EQ(scheduler.running().size(), 3u);
  EXPECT_EQ(scheduler.running()[0]->scheduled, 1);
  EXPECT_EQ(scheduler.running()[1]->scheduled, 5);
  EXPECT_TRUE(scheduler.running()[1]->samples());
  EXPECT_EQ(scheduler.running()[2]->scheduled, 4);
  EXPECT_FALSE(scheduler.running()[2]->samples());
}

TEST(Scheduler, SendsTheYoungestBackAndKeepsArrivalOrder) {
  Scheduler scheduler(4, 8, 100);
  scheduler.add(sequence(1, 16));
  scheduler.add(sequence(2, 16));
  scheduler.schedule();
  ASSERT_EQ(scheduler.running().size(), 2u);
  complete_pass(scheduler);
  for (int i = 0; i < 40; ++i) {
    scheduler.schedule();
    complete_pass(scheduler);
  }
  EXPECT_EQ(scheduler.preemptions(), 1);
  ASSERT_EQ(scheduler.running().size(), 1u);
  EXPECT_EQ(scheduler.running()[0]->request.id, 1u);
  EXPECT_EQ(scheduler.waiting(), 1);
  scheduler.remove(1);
  scheduler.schedule();
  ASSERT_EQ(scheduler.running().size(), 1u);
  EXPECT_EQ(scheduler.running()[0]->request.id, 2u);
  scheduler.remove(2);
  EXPECT_EQ(scheduler.pages().free(), 4);
}

}  // namespace
}  // namespace gyre
