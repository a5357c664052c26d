// Twins: the same model on the CPU kernels and on another backend, for tests that hold one against the other.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "backend/aten/cuda.h"
#include "model_fixture.h"

namespace gyre::testing {

inline ModelConfig llama3_config() {
  ModelConfig c = llama_config();
  for (const int pair : {1, 2, 3}) c.shape.rope.divisors[pair] = pair == 1 ? 1.7 : 8;
  return c;
}

struct Twins {
  explicit Twins(ModelConfig config, const std::string& device, gyre_compute compute = GYRE_COMPUTE_F32)
      : kernels(config) {
    config.set_device(device);
    config.compute = compute;
    other = std::make_unique<Decoder>(config);
    randomize(kernels, 3);
    copy_weights();
  }
  // Gives the other the CPU's weights.
  void copy_weights() {
    const auto from = kernels.parameters().flats();
    const auto to = other->parameters().flats();
    for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
    other->touch();
  }
  Decoder kernels;
  std::unique_ptr<Decoder> other;
};

// Why a device cannot be tested here; empty where it can. "fake" stands for a GPU where there is none (fake/device.h).
inline std::string absence(const std::string& device) {
  const CudaState& state = cuda_state();
  if (device == "cuda" && state.devices == 0) return state.problem;
  return device == "fake" && state.devices > 0 ? "there is a GPU, which is tested itself" : "";
}

// One suite for every backend: on the kernels and on tensors on the CPU always, on the first GPU where there is one.
class OnDevice : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string why = absence(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
};

#define GYRE_ON_EVERY_DEVICE(suite)                                                          \
  INSTANTIATE_TEST_SUITE_P(Devices, suite, ::testing::Values("cpu", "aten", "cuda", "fake"), \
                           [](const auto& info) { return std::string(info.param); })

inline double error_on_host(const at::Tensor& got, const at::Tensor& want) {
  return relative_error(got.to(at::kCPU), want);
}

}  // namespace gyre::testing
