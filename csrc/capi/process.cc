// Process-wide functions of gyre.h: version, threads, memory, and a short measurement of the machine.
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <sys/resource.h>
#include <torch/csrc/api/include/torch/version.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "capi/guard.h"
#include "kernels/gemm.h"
#include "kernels/parallel.h"
#include "kernels/vec.h"

namespace gyre::capi {
namespace {

double seconds_of(auto&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The best of a few passes over a buffer larger than the caches.
double read_bandwidth() {
  constexpr int64_t kFloats = int64_t{64} << 20, kBlock = 1 << 16;
  const std::unique_ptr<float[]> buffer(new float[kFloats]);
  float* data = buffer.get();
  parallel_for(kFloats / kBlock, 1, [&](int64_t b) { std::fill_n(data + b * kBlock, kBlock, 1.0f); });
  std::vector<float> sums(kFloats / kBlock);
  double best = 0;
  for (int pass = 0; pass < 3; ++pass) {
    const double seconds = seconds_of([&] {
      parallel_for(kFloats / kBlock, 1, [&](int64_t b) {
        vf lanes[4] = {};
        for (int64_t i = 0; i < kBlock; i += 4 * kLanes) {
          for (int k = 0; k < 4; ++k) lanes[k] += load(data + b * kBlock + i + k * kLanes);
        }
        sums[b] = reduce_sum((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]));
      });
    });
    best = std::max(best, static_cast<double>(kFloats * sizeof(float)) / seconds);
  }
  // Using the sums keeps the loads from being optimized away.
  if (std::any_of(sums.begin(), sums.end(), [](float s) { return s != float{kBlock}; })) {
    throw std::runtime_error("measure: memory read back wrong values");
  }
  return best;
}

// The best rate of a transformer-sized product within a fifth of a second.
double gemm_rate() {
  constexpr int64_t kRows = 256, kIn = 576, kOut = 1536;
  const std::vector<float> weight(kOut * kIn, 0.01f), x(kRows * kIn, 0.5f);
  std::vector<float> y(kRows * kOut);
  PackedMatrix packed;
  packed.pack(weight.data(), kOut, kIn);
  double best = 0, total = 0;
  do {
    const double seconds = seconds_of([&] { packed.multiply(x.data(), kIn, kRows, nullptr, y.data(), kOut); });
    best = std::max(best, 2.0 * kRows * kIn * kOut / seconds);
    total += seconds;
  } while (total < 0.2);
  return best;
}

}  // namespace
}  // namespace gyre::capi

using namespace gyre::capi;

int32_t gyre_abi_version(void) { return GYRE_ABI_VERSION; }

void gyre_build_info(char* out, size_t size) {
  std::snprintf(out, size, "torch %s, f32 vector width %d, CPU capability %s", TORCH_VERSION, gyre::kLanes,
                at::get_cpu_capability().c_str());
}

gyre_status gyre_set_threads(int32_t threads, gyre_error* err) {
  return guard(err, [&] {
    gyre::set_num_threads(threads);
    at::set_num_threads(threads);
  });
}

int32_t gyre_threads(void) { return gyre::num_threads(); }

int64_t gyre_peak_rss(void) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
  return usage.ru_maxrss;
#else
  return int64_t{usage.ru_maxrss} * 1024;
#endif
}

gyre_status gyre_measure(double* bandwidth, double* gemm_flops, gyre_error* err) {
  return guard(err, [&] {
    deref(bandwidth, "bandwidth") = read_bandwidth();
    deref(gemm_flops, "gemm_flops") = gemm_rate();
  });
}
