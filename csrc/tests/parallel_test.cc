#include "kernels/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "threads.h"

namespace gyre {
namespace {

TEST(ParallelFor, CallsEveryItemOnce) {
  for (int threads : {1, 2, 3, 8}) {
    const Threads several(threads);
    for (int64_t n : {0, 1, 2, 7, 31, 32, 33, 1000, 100003}) {
      for (int64_t grain : {1, 3, 64}) {
        std::vector<std::atomic<int>> calls(static_cast<size_t>(n));
        parallel_for(n, grain, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
        for (const auto& count : calls) ASSERT_EQ(count, 1) << n << " items, grain " << grain << ", " << threads;
      }
    }
  }
}

TEST(ThreadSetting, IsANumberOfThreadsOrNothing) {
  const char* before = std::getenv("GYRE_THREADS");
  const std::string saved = before == nullptr ? "" : before;
  for (const char* good : {"", "1", "16", "1024"}) {
    setenv("GYRE_THREADS", good, 1);
    EXPECT_NO_THROW(require_thread_setting()) << good;
  }
  for (const char* bad : {"abc", "0", "-1", "1025", "2x", " 2", "2.5", "99999999999"}) {
    setenv("GYRE_THREADS", bad, 1);
    EXPECT_THROW(require_thread_setting(), std::invalid_argument) << bad;
  }
  unsetenv("GYRE_THREADS");
  EXPECT_NO_THROW(require_thread_setting());
  if (before != nullptr) setenv("GYRE_THREADS", saved.c_str(), 1);
}

// Many short loops, some with pauses that put the workers to sleep: no loop may be entered late or left early.
TEST(ParallelFor, SurvivesManyLoops) {
  const Threads several(4);
  for (int loop = 0; loop < 20000; ++loop) {
    if (loop % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    int sums[5] = {};
    parallel_for(1 + loop % 5, 1, [&](int64_t i) { sums[i] += loop; });
    for (int i = 0; i < 5; ++i) ASSERT_EQ(sums[i], i <= loop % 5 ? loop : 0);
  }
}

TEST(ParallelFor, SharesTheWork) {
  const Threads several(3);
  std::mutex mutex;
  std::set<std::thread::id> seen;
  // Each item waits until all three threads have one.
  parallel_for(3, 1, [&](int64_t) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (;;) {
      {
        const std::lock_guard lock(mutex);
        seen.insert(std::this_thread::get_id());
        if (seen.size() == 3 || std::chrono::steady_clock::now() > end) return;
      }
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(seen.size(), 3u);
}

TEST(ParallelFor, NestedLoopsRunOnTheirThread) {
  const Threads several(3);
  std::vector<int> sums(64);
  parallel_for(64, 1, [&](int64_t i) {
    const auto self = std::this_thread::get_id();
    parallel_for(100, 1, [&](int64_t j) {
      if (std::this_thread::get_id() == self) sums[static_cast<size_t>(i)] += static_cast<int>(j);
    });
  });
  for (int sum : sums) EXPECT_EQ(sum, 4950);
}

TEST(ParallelFor, SeveralCallersAtOnce) {
  const Threads several(2);
  std::vector<std::thread> callers;
  std::atomic<int64_t> total{0};
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int loop = 0; loop < 500; ++loop) parallel_for(20, 1, [&](int64_t i) { total += i; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 4 * 500 * 190);
}

TEST(ParallelFor, ExceptionsReachTheCaller) {
  const Threads several(3);
  for (int loop = 0; loop < 200; ++loop) {
    EXPECT_THROW(parallel_for(50, 1,
                              [&](int64_t i) {
                                if (i == loop % 50) throw std::runtime_error("item");
                              }),
                 std::runtime_error);
  }
  std::atomic<int> after{0};
  parallel_for(50, 1, [&](int64_t) { ++after; });
  EXPECT_EQ(after, 50);
}

TEST(ParallelFor, RefusesImpossibleNumbersOfThreads) {
  EXPECT_THROW(set_num_threads(0), std::invalid_argument);
  EXPECT_THROW(set_num_threads(kMostThreads + 1), std::invalid_argument);
}

}  // namespace
}  // namespace gyre
