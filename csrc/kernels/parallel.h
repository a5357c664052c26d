// One loop over independent items on this process's threads. Which thread runs which item is left open on purpose
// (cores may be shared): kernels built on it give the same bits for every assignment and any number of threads.
//
// The pool is our own rather than OpenMP's because of shared cores: the caller waits only for items that a worker has
// begun, never for a worker that has no core to begin on, and nobody waits for long in a busy loop.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace gyre {

// Threads that work on one loop, the caller included. At first: GYRE_THREADS, or else the cores that this process may
// use.
int num_threads();
// 1 <= count <= kMostThreads; throws std::invalid_argument otherwise. Waits for a loop in progress.
void set_num_threads(int count);
inline constexpr int kMostThreads = 1024;
// Throws std::invalid_argument when GYRE_THREADS is set to something else than a number of threads.
void require_thread_setting();

namespace detail {
using Range = void (*)(const void* body, int64_t begin, int64_t end);
void run_ranges(int64_t n, int64_t grain, Range range, const void* body);
}  // namespace detail

// Calls f(i) for 0 <= i < n and returns when all are done. `grain` items are the least worth handing to a thread (some
// 10 us); fewer run on the caller. An exception of f ends the loop (items not begun are skipped) and reaches the
// caller. A call from inside f, or while another thread's loop runs, is carried out by the calling thread alone.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  if (n <= grain) {
    for (int64_t i = 0; i < n; ++i) f(i);
    return;
  }
  using Body = std::remove_reference_t<F>;
  detail::run_ranges(
      n, grain,
      [](const void* body, int64_t begin, int64_t end) {
        auto& each = *static_cast<Body*>(const_cast<void*>(body));
        for (int64_t i = begin; i < end; ++i) each(i);
      },
      std::addressof(f));
}

}  // namespace gyre
