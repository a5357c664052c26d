// Process-wide functions of gyre.h: version, threads, memory, and a short measurement of the machine.
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <sys/resource.h>
#include <torch/csrc/api/include/torch/version.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "backend/aten/cuda.h"
#include "capi/boundary.h"
#include "kernels/buffer.h"
#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/table.h"
#include "kernels/vec.h"

namespace gyre::capi {
namespace {

// Every loop of weight is Gyre's own. What is left to ATen (filling new tensors, copies) stays on the caller: its
// OpenMP threads would wait in busy loops of milliseconds, which ruins everyone's speed on shared cores.
[[maybe_unused]] const bool serial_aten = (at::set_num_threads(1), true);

#ifdef __linux__
// What getrusage says outlives exec: a process that a larger one has started would have its parent's peak. 0 where it
// cannot be read.
int64_t peak_of_this_program() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    long long kib = 0;
    if (std::sscanf(line.c_str(), "VmHWM: %lld kB", &kib) == 1) return int64_t{kib} * 1024;
  }
  return 0;
}
#endif

double seconds_of(auto&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The best rate of `body`, which does `work` units, within a fifth of a second.
double best_rate(double work, auto&& body) {
  double best = 0, total = 0;
  do {
    const double seconds = seconds_of(body);
    best = std::max(best, work / seconds);
    total += seconds;
  } while (total < 0.2);
  return best;
}

// All threads read a buffer larger than the caches from one end to the other.
double read_bandwidth() {
  constexpr int64_t kFloats = int64_t{64} << 20, kBlock = 1 << 16;
  Buffer buffer;
  buffer.reserve(kFloats);
  float* data = buffer.data();
  parallel_for(kFloats / kBlock, 1, [&](int64_t b) { std::fill_n(data + b * kBlock, kBlock, 1.0f); });
  std::vector<float> sums(kFloats / kBlock);
  const double rate = best_rate(kFloats * sizeof(float), [&] {
    parallel_for(kFloats / kBlock, 1, [&](int64_t b) {
      vf lanes[4] = {};
      for (int64_t i = 0; i < kBlock; i += 4 * kLanes) {
        for (int k = 0; k < 4; ++k) lanes[k] += load(data + b * kBlock + i + k * kLanes);
      }
      sums[b] = reduce_sum((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]));
    });
  });
  // Using the sums keeps the loads from being optimized away.
  if (std::any_of(sums.begin(), sums.end(), [](float s) { return s != float{kBlock}; })) {
    throw std::runtime_error("measure: memory read back wrong values");
  }
  return rate;
}

// All threads run the register tile under every matrix product on operands that stay in their first-level caches: the
// peak that products of any shape can approach.
double multiply_rate(const Kernels& kernels, Precision precision) {
  constexpr int64_t kTiles = 2000;
  const int64_t tasks = num_threads();
  const double work = static_cast<double>(tasks) * kernels.tile_work(precision, 1) * kTiles;
  return best_rate(work, [&] { parallel_for(tasks, 1, [&](int64_t) { kernels.tile_work(precision, kTiles); }); });
}

// All threads run SwiGLU on rows that stay in their caches: numbers per second.
double activation_rate(const Kernels& kernels) {
  constexpr int64_t kRows = 8, kWidth = 512, kTimes = 50, kFloats = 3 * kRows * kWidth;
  const int64_t tasks = num_threads();
  std::vector<float> rows(static_cast<size_t>(tasks * kFloats), 0.5f);
  return best_rate(static_cast<double>(tasks * kTimes * kRows * kWidth), [&] {
    parallel_for(tasks, 1, [&](int64_t t) {
      float* gate_up = rows.data() + t * kFloats;
      for (int64_t i = 0; i < kTimes; ++i) {
        kernels.glu(GYRE_SILU, gate_up, kRows, kWidth, Precision::kFloat32, gate_up + 2 * kRows * kWidth,
                    Precision::kFloat32, nullptr);
      }
    });
  });
}

}  // namespace
}  // namespace gyre::capi

using namespace gyre::capi;

int32_t gyre_abi_version(void) { return GYRE_ABI_VERSION; }

void gyre_build_info(char* out, size_t size) {
  std::snprintf(out, size, "torch %s, kernels for %s", TORCH_VERSION, gyre::variant_in_use().name);
}

void gyre_cuda_info(char* out, size_t size) {
  // guard: looking for GPUs runs libtorch's code.
  const gyre_status status = guard([&] { std::snprintf(out, size, "%s", gyre::describe_cuda().c_str()); });
  if (status != GYRE_OK) std::snprintf(out, size, "none: %s", gyre_message());
}

const char* gyre_message(void) { return last_message; }

gyre_status gyre_set_threads(int32_t threads) { return guard(gyre::set_num_threads, threads); }

int32_t gyre_threads(void) { return gyre::num_threads(); }

int64_t gyre_peak_rss(void) {
#ifdef __linux__
  if (const int64_t peak = peak_of_this_program(); peak > 0) return peak;
#endif
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
  return usage.ru_maxrss;
#else
  return int64_t{usage.ru_maxrss} * 1024;
#endif
}

gyre_status gyre_measure(int32_t compute, double* bandwidth, double* gemm_flops) {
  return guard([&] {
    gyre::require_thread_setting();
    gyre::require_isa_setting();
    *bandwidth = read_bandwidth();
    gyre::release_idle_memory();  // its buffer is larger than most
    const bool half = compute == GYRE_COMPUTE_BF16;
    *gemm_flops =
        multiply_rate(*gyre::variant_in_use().kernels, half ? gyre::Precision::kBfloat16 : gyre::Precision::kFloat32);
  });
}

gyre_status gyre_measure_rows(double* numbers) {
  return guard([&] {
    gyre::require_thread_setting();
    gyre::require_isa_setting();
    *numbers = activation_rate(*gyre::variant_in_use().kernels);
  });
}

gyre_status gyre_describe_isa(int32_t i, bool measure, gyre_isa* out) {
  return guard([&] {
    gyre::require_isa_setting();
    *out = {};
    const auto all = gyre::variants();
    if (i < 0 || i >= static_cast<int32_t>(all.size())) return;
    const gyre::Variant& variant = all[static_cast<size_t>(i)];
    std::snprintf(out->name, sizeof out->name, "%s", variant.name);
    out->runs_here = variant.runs_here;
    out->in_use = variant.kernels == gyre::variant_in_use().kernels;
    out->bf16_is_faster = variant.bf16_is_faster;
    if (!measure || !variant.runs_here) return;
    out->f32_flops = multiply_rate(*variant.kernels, gyre::Precision::kFloat32);
    out->bf16_flops = multiply_rate(*variant.kernels, gyre::Precision::kBfloat16);
  });
}
