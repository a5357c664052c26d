// One transformer block over packed rows: forward with the row-invariant kernels, backward by hand.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "backend/cpu/experts.h"
#include "backend/cpu/lora.h"
#include "backend/peers.h"
#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/rope.h"
#include "model/config.h"
#include "model/parameters.h"
#include "model/pass.h"

namespace gyre {

struct PackedBlock {
  PackedMatrix qkv, out, gate_up, down;
  PackedExperts experts;
};
void pack(PackedMatrix& to, const at::Tensor& weight, Precision precision);
void pack(PackedBlock& to, const BlockTensors& from, Precision precision, bool int8 = false);
// Copies of the tensors that a forward pass does not read in packed form.
BlockTensors beside_packed(const BlockTensors& from);

// Rows in memory of huge pages, which later passes use again: products write 16 rows at a time, each on a small page of
// its own.
at::Tensor rows_of(int64_t rows, int64_t width);

// What the backward pass of a block needs (A = heads). Norms, rotated heads and the SwiGLU product are recomputed from
// these.
struct BlockActivations {
  at::Tensor input_NH, attn_rstd_N, qkv_NR /* before q/k norm and rope */, o_NQ, logsumexp_NA;
  at::Tensor middle_NH /* after the attention residual */, mlp_rstd_N, gate_up_N2F /* in the precision of products */;
  at::Tensor attn_out_NH, attn_out_rstd_N, mlp_out_NH, mlp_out_rstd_N;  // before the norms of what is added
  ExpertActivations experts;                                            // router_NE is made by whoever makes these
  bool read_again = true;  // false: forward() leaves out what costs time to keep

  // Makes the tensors of a pass of `rows` rows in `memory`, size() floats that must outlive them.
  void place(const ModelConfig& config, int64_t rows, float* memory);
  static int64_t size(const ModelConfig& config, int64_t rows);
};

// Scratch that all blocks of a pass share. E = Q + K, the rotated heads. gate_up_N2F is float32 where what is kept of
// it is not.
struct ForwardWorkspace {
  ForwardWorkspace(const ModelConfig& config, int64_t rows);
  at::Tensor normed_NH, heads_NE, delta_NH, act_NF, gate_up_N2F;
  Buffer router_input;
  ExpertWorkspace experts;
};
struct BackwardWorkspace {
  BackwardWorkspace(const ModelConfig& config, int64_t rows);
  // Recomputed once per block, for all gradients that go back through it. As operands: what only products read.
  at::Tensor attn_normed_NH, heads_NE, mlp_normed_NH, act_NF;
  at::Tensor mlp_rows_NH;  // as floats, for experts
  at::Tensor d_normed_NH, d_qkv_NR, d_o_NQ, d_act_NF, d_gate_up_N2F /* as operands */;
  Buffer d_gate_up, dy_operands, x_operands;  // made when they are needed
  at::Tensor d_scaled_NH, d_out_NH;  // of what is added to the residual stream, where it is scaled or has a norm
  std::vector<float> attention;
  ExpertWorkspace experts;
  Buffer weight;  // a packed matrix in rows again
};

// A norm's weight as rows are multiplied by it: itself, or more by 1.
at::Tensor norm_scale(const ModelConfig& config, const at::Tensor& weight);

// A projection of a block, as its parts are called in each set.
struct Projection;

struct Block {
  const ModelConfig& config;
  const BlockTensors& weights;
  const Ropes& ropes;
  int64_t layer = 0;
  // Of a part of a block, whose configuration and weights those above are: forward() puts what the parts compute
  // together. Null for a whole block.
  const TensorParallel* parallel = nullptr;
  // The rows that pass through adapters.
  std::span<const LoraRows> lora{};
  // For backward(), of a network with an adapter: its tensors, and the base's matrices where `weights` has let them go.
  const BlockTensors* adapter = nullptr;
  const PackedBlock* packed = nullptr;

  // output_NH (may be the input) from kept.input_NH. Writes the rows' keys and values into the layer's pages and fills
  // the rest of `kept`.
  void forward(const PackedBlock& packed, const Pass& pass, const PageMemory& pages, BlockActivations& kept,
               ForwardWorkspace& work, at::Tensor& output_NH) const;

  // Fills the first part of `work` from what the forward pass kept: comes before backward().
  void recompute(const BlockActivations& kept, const Pass& pass, BackwardWorkspace& work) const;
  // d_NH holds the gradient of the block's output and becomes that of its input; parameter gradients are added to
  // `gradients`, which has the weights' tensors or the adapter's. d_router_NE: as in Mixture.
  void backward(const BlockActivations& kept, const at::Tensor& d_router_NE, const Pass& pass, BackwardWorkspace& work,
                at::Tensor& d_NH, BlockTensors& gradients) const;

 private:
  // A norm's weight as rows are multiplied by it.
  at::Tensor norm(const at::Tensor& weight) const { return norm_scale(config, weight); }
  const float* router_input(const BlockActivations& kept, ForwardWorkspace& work) const;
  void rotate(const Pass& pass, float* qkv, float* heads) const;
  void normalize_wide(float* qkv, int64_t rows) const;
  void normalize_output(at::Tensor& out_NH, const at::Tensor& weight, at::Tensor& kept_NH, at::Tensor& rstd_N) const;
  const float* output_gradient(const float* d, const at::Tensor& weight, const at::Tensor& kept_NH,
                               const at::Tensor& rstd_N, const at::Tensor& d_weight, BackwardWorkspace& work) const;
  Rows operands(const float* x, int64_t rows, int64_t width, Buffer& buffer) const;
  void linear_backward(const Projection& of, int64_t rows, const float* dy, Rows d, Rows x, BlockTensors& gradients,
                       Buffer& weight, float* dx) const;
  const RopeTable* rope() const { return ropes.of(config.layer_kind(layer)); }
};

}  // namespace gyre
