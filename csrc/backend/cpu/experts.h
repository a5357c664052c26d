// Mixtures of experts: the rows of a pass by experts, each with the packed products of an MLP. A row's output is the
// sum over its experts in ascending order of what each gives, so that it is the same bits in any batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "backend/cpu/lora.h"
#include "backend/peers.h"
#include "kernels/buffer.h"
#include "kernels/gemm.h"
#include "model/config.h"
#include "model/parameters.h"

namespace gyre {

// Start of a tensor's floats, null when it is undefined; of its numbers in bf16.
inline float* floats(const at::Tensor& t) { return t.defined() ? t.data_ptr<float>() : nullptr; }
inline uint16_t* halves(const at::Tensor& words) { return reinterpret_cast<uint16_t*>(floats(words)); }

struct PackedExperts {
  PackedMatrix router;  // in f32
  std::vector<PackedMatrix> gate_up, down;

  void pack(const BlockTensors& from, Precision precision, bool int8);
  bool empty() const { return down.empty(); }
};

// Scratch of a pass, made when it is needed.
struct ExpertWorkspace {
  Buffer gate_up, act, out;
};

// What the backward pass needs. Of bf16 products gate_up is in halves.
struct ExpertActivations {
  at::Tensor router_NE;  // logits
  at::Tensor gate_up_C2F;
};

struct Mixture {
  const ModelConfig& config;
  const PackedExperts* packed;               // backward() unpacks matrices; null: `weights` has them
  const TensorParallel* parallel = nullptr;  // as in Block, like what follows
  std::span<const LoraRows> lora{};
  const BlockTensors* adapter = nullptr;

  // y[rows, ldy] += the experts' part. x: the rows, and operands: the same as their first product takes them, null: x.
  // keep_gate_up: false leaves out what costs time to keep.
  void forward(const float* x, const float* operands, int64_t rows, bool keep_gate_up, ExpertActivations& kept,
               ExpertWorkspace& work, float* y, int64_t ldy) const;

  // From dy, the gradient of the output: adds to those of x and of the weights, where these have tensors. d_router_NE:
  // what else the router's logits have of a gradient; may be undefined.
  void backward(const BlockTensors& weights, const ExpertActivations& kept, const at::Tensor& d_router_NE,
                const float* x, const float* dy, int64_t rows, ExpertWorkspace& work, BlockTensors& gradients,
                float* dx) const;
};

}  // namespace gyre
