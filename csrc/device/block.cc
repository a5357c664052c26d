#include "device/block.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>

namespace gyre {
namespace {

// In the weight's type.
at::Tensor project(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(x.to(weight.scalar_type()), weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

}  // namespace

at::Tensor normalize(const at::Tensor& x, const at::Tensor& weight, const ModelConfig& config) {
  return at::rms_norm(x, {x.size(-1)}, weight, config.rms_norm_eps);
}

at::Tensor block_forward(const ModelConfig& c, const BlockTensors& w, const at::Tensor& x_NH, const DevicePass& pass,
                         const std::optional<LayerPages>& pages) {
  const at::Tensor qkv = project(normalize(x_NH, w.attn_norm_H, c), w.qkv_RH, w.qkv_bias_R)
                             .view({x_NH.size(0), c.num_heads + 2 * c.num_kv_heads, c.head_dim});
  at::Tensor q = qkv.narrow(1, 0, c.num_heads).to(at::kFloat);
  at::Tensor k = qkv.narrow(1, c.num_heads, c.num_kv_heads).to(at::kFloat);
  const at::Tensor v = qkv.narrow(1, c.num_heads + c.num_kv_heads, c.num_kv_heads);
  if (c.qk_norm) {
    q = normalize(q, w.q_norm_D, c);
    k = normalize(k, w.k_norm_D, c);
  }
  const auto type = v.scalar_type();
  const at::Tensor o =
      attend(rotate(q, pass.angles).to(type), rotate(k, pass.angles).to(type), v, pass.attention, pages);
  const at::Tensor middle_NH = x_NH + project(o, w.out_HQ, w.out_bias_H);

  const at::Tensor gate_up = project(normalize(middle_NH, w.mlp_norm_H, c), w.gate_up_2FH, w.gate_up_bias_2F);
  const int64_t f = c.intermediate_size;
  const at::Tensor act = at::silu(gate_up.narrow(1, 0, f)) * gate_up.narrow(1, f, f);
  return middle_NH + project(act, w.down_HF, w.down_bias_H);
}

}  // namespace gyre
