// One transformer block in tensor operations; autograd differentiates it. Products and attention are in the compute
// type; the residual stream, norms and rotations between them are f32, which costs little and keeps bfloat16 from
// rounding the sum of all layers at every one of them.
#pragma once

#include "device/attention.h"
#include "device/rope.h"
#include "model/config.h"
#include "model/parameters.h"

namespace gyre {

// What all blocks of a pass share.
struct DevicePass {
  AttentionPlan attention;
  RowAngles angles;
};

// RMSNorm over the last dimension of f32.
at::Tensor normalize(const at::Tensor& x, const at::Tensor& weight, const ModelConfig& config);

// f32 [N, H] from f32 [N, H].
at::Tensor block_forward(const ModelConfig& config, const BlockTensors& weights, const at::Tensor& x_NH,
                         const DevicePass& pass, const std::optional<LayerPages>& pages);

}  // namespace gyre
