// Where the tensor implementation of the decoder keeps its tensors, and in which type it computes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <string>

#include "model/config.h"

namespace gyre {

struct Placement {
  at::Device device;
  at::ScalarType compute;  // of products, residual stream, keys and values; parameters and results are f32
};

// Whether the decoder is the one of this folder rather than Gyre's own CPU kernels.
inline bool on_tensors(const ModelConfig& config) { return config.device != "cpu"; }

// Looks the device up. Throws std::invalid_argument, with what to do about it, for a name that is none, a GPU that is
// not there and a type that the device does not compute in.
Placement placement_of(const ModelConfig& config);

// "cuda:0 NVIDIA H200 (139 GiB), bfloat16".
std::string describe_placement(const ModelConfig& config);

// Where parameters and everything shaped like them live: f32 on the CPU, or on the GPU.
at::TensorOptions parameter_options(const ModelConfig& config);

// A copy on the device of numbers from the host.
template <typename T>
at::Tensor to_device(const T* data, at::IntArrayRef shape, at::Device device);

}  // namespace gyre
