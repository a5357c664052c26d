// One loop over independent items on OpenMP threads. Which thread runs which item is left open on purpose (cores may be
// shared): kernels built on it give the same bits for every assignment.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace gyre {

// Calls f(i) for 0 <= i < n. `grain` items are the least worth handing to a thread (some 10 us); fewer run on the
// caller.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  const int threads = omp_get_max_threads();
  if (n <= grain || threads == 1) {
    for (int64_t i = 0; i < n; ++i) f(i);
    return;
  }
  const int64_t chunk = std::max(grain, n / (threads * 4));
#pragma omp parallel for schedule(dynamic, chunk)
  for (int64_t i = 0; i < n; ++i) f(i);
}

}  // namespace gyre
