#include "kernels/parallel.h"

#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace gyre {
namespace {

// Longer than the gaps between the loops of one forward pass, shorter than what another program would miss.
constexpr std::chrono::microseconds kSpin{40};
constexpr int64_t kRangesPerThread = 8;  // uneven threads even out; 16 bits of Pool::next_ suffice for the count

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `word` differs from `old`: first in a bounded busy loop, then asleep.
void await_change(const std::atomic<int>& word, int old) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (word.load(std::memory_order_acquire) != old) return;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  word.wait(old, std::memory_order_acquire);
}

int usable_cores() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::clamp(CPU_COUNT(&set), 1, kMostThreads);
#endif
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostThreads);
}

// What GYRE_THREADS says; 0 when it is not set, -1 when it is no number of threads.
int threads_asked_for() {
  const char* text = std::getenv("GYRE_THREADS");
  if (text == nullptr || *text == '\0') return 0;
  int count = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, count);
  return error == std::errc{} && stop == end && count >= 1 && count <= kMostThreads ? count : -1;
}

int initial_threads() {
  const int asked = threads_asked_for();
  return asked > 0 ? asked : usable_cores();
}

thread_local bool inside_loop = false;

class Pool {
 public:
  ~Pool() { stop(); }

  int threads() const { return threads_.load(std::memory_order_relaxed); }

  void resize(int count) {
    const std::lock_guard lock(mutex_);
    stop();
    threads_ = count;
  }

  void run(int64_t n, int64_t grain, detail::Range range, const void* body) {
    if (threads() == 1 || inside_loop || !mutex_.try_lock()) return range(body, 0, n);
    const std::lock_guard held(mutex_, std::adopt_lock);
    start();
    n_ = n;
    size_ = std::max(grain, n / (threads() * kRangesPerThread));
    range_ = range;
    body_ = body;
    const auto count = static_cast<uint64_t>((n + size_ - 1) / size_);
    done_.store(0, std::memory_order_relaxed);
    loop_ = (loop_ + 1) & 0x7fffffff;
    next_.store(static_cast<uint64_t>(loop_) << 32 | count << 16, std::memory_order_release);
    signal_.store(loop_);  // sequentially consistent: no worker may fall asleep on the old value unnoticed
    signal_.notify_all();

    inside_loop = true;
    work();
    inside_loop = false;
    for (int done; (done = done_.load(std::memory_order_acquire)) != static_cast<int>(count);)
      await_change(done_, done);
    if (failed_.load(std::memory_order_relaxed)) {
      failed_.store(false, std::memory_order_relaxed);
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
  }

 private:
  // Takes ranges of the current loop until none is left. The fields of a loop may be read only after a range of it has
  // been claimed: until that range is done, its caller stays.
  void work() {
    uint64_t at = next_.load(std::memory_order_acquire);
    while ((at & 0xffff) < (at >> 16 & 0xffff)) {
      if (!next_.compare_exchange_weak(at, at + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      const int64_t begin = static_cast<int64_t>(at & 0xffff) * size_;
      const auto count = static_cast<int>(at >> 16 & 0xffff);
      if (!failed_.load(std::memory_order_relaxed)) run_range(begin, std::min(n_, begin + size_));
      if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == count) done_.notify_one();
      at = next_.load(std::memory_order_acquire);
    }
  }

  void run_range(int64_t begin, int64_t end) {
    try {
      range_(body_, begin, end);
    } catch (...) {
      const std::lock_guard lock(failure_mutex_);
      if (!failure_) failure_ = std::current_exception();
      failed_.store(true, std::memory_order_relaxed);
    }
  }

  void start() {
    while (static_cast<int>(workers_.size()) < threads() - 1) {
      workers_.emplace_back([this, seen = signal_.load()]() mutable {
        inside_loop = true;
        for (;;) {
          await_change(signal_, seen);
          seen = signal_.load(std::memory_order_acquire);
          if (seen == kStop) return;
          work();
        }
      });
    }
  }

  void stop() {
    signal_.store(kStop);
    signal_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
    signal_.store(loop_);
  }

  static constexpr int kStop = -1;

  std::mutex mutex_;  // held by the one caller whose loop runs
  std::vector<std::thread> workers_;
  std::atomic<int> threads_{initial_threads()};
  int loop_ = 0;

  int64_t n_ = 0, size_ = 0;
  detail::Range range_ = nullptr;
  const void* body_ = nullptr;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  std::atomic<bool> failed_{false};

  alignas(64) std::atomic<uint64_t> next_{0};  // loop << 32 | ranges << 16 | next range: one word, so that no thread
                                               // claims a range of a loop that is over
  alignas(64) std::atomic<int> done_{0};       // ranges
  alignas(64) std::atomic<int> signal_{0};     // the current loop, or kStop; workers sleep on it
};

Pool& pool() {
  static Pool instance;
  return instance;
}

}  // namespace

int num_threads() { return pool().threads(); }

void set_num_threads(int count) {
  if (count < 1 || count > kMostThreads) {
    throw std::invalid_argument("threads is " + std::to_string(count) + ", expected 1 to " +
                                std::to_string(kMostThreads));
  }
  pool().resize(count);
}

void require_thread_setting() {
  if (threads_asked_for() >= 0) return;
  throw std::invalid_argument("GYRE_THREADS is \"" + std::string(std::getenv("GYRE_THREADS")) +
                              "\", expected a whole number from 1 to " + std::to_string(kMostThreads) +
                              " (or unset it: all usable cores)");
}

void detail::run_ranges(int64_t n, int64_t grain, Range range, const void* body) { pool().run(n, grain, range, body); }

}  // namespace gyre
