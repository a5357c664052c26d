// One block of the decoder in tensor operations.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <vector>

#include "backend/aten/attention.h"
#include "backend/peers.h"
#include "model/parameters.h"

namespace gyre {

// Cosines and sines of each pair of components.
struct Angles {
  at::Tensor cosines, sines;
};

// The angles of a pass's rows, f32 [N, 1, pairs]: of most layers, and of those with a rotary embedding of their own.
struct RowAngles {
  Angles main, local;
};

// What all blocks of a pass share.
struct AtenPass {
  AttentionPlan attention;
  RowAngles angles;
};

// The tensors of a block that passes read (an adapter's: see kLoras).
inline constexpr at::Tensor BlockTensors::* kNorms[] = {&BlockTensors::attn_norm_H,     &BlockTensors::q_norm_D,
                                                        &BlockTensors::k_norm_D,        &BlockTensors::mlp_norm_H,
                                                        &BlockTensors::attn_out_norm_H, &BlockTensors::mlp_out_norm_H};
inline constexpr at::Tensor BlockTensors::* kProjections[] = {
    &BlockTensors::qkv_RH,      &BlockTensors::qkv_bias_R,      &BlockTensors::out_HQ,  &BlockTensors::out_bias_H,
    &BlockTensors::gate_up_2FH, &BlockTensors::gate_up_bias_2F, &BlockTensors::down_HF, &BlockTensors::down_bias_H};
inline constexpr LoraTensors BlockTensors::* kLoras[] = {&BlockTensors::qkv_lora, &BlockTensors::out_lora,
                                                         &BlockTensors::gate_up_lora, &BlockTensors::down_lora};
// Those of them that are there, in a fixed order; adapter: those of kLoras.
std::vector<at::Tensor> tensors_of(const BlockTensors& block, bool adapter);

// Norms in f32 and projections in the compute type: copies, also where the type is the same.
BlockTensors block_copy(const BlockTensors& from, at::ScalarType compute);
// RMSNorm over the last dimension of f32; x itself where there is no weight.
at::Tensor normalize(const at::Tensor& x, const at::Tensor& weight, const ModelConfig& config);
// What a block has of an adapter, for some rows of a pass.
struct AtenLoraRows {
  const BlockTensors* tensors;  // in the compute type
  const LoraParts* parts;
  double scale;
  int64_t first, count;
};
// One block. Of a part, whose configuration and weights these are, `parallel` joins what the parts compute.
at::Tensor block_forward(const ModelConfig& config, int64_t layer, const BlockTensors& weights, const at::Tensor& x_NH,
                         const AtenPass& pass, const std::optional<LayerPages>& pages,
                         const TensorParallel* parallel = nullptr, std::span<const AtenLoraRows> lora = {});

}  // namespace gyre
