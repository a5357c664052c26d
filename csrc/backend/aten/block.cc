#include "backend/aten/block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>

namespace gyre {
namespace {

// Adds the adapters' part of a projection of x to y.
void add_lora(std::span<const AtenLoraRows> all, LoraTensors BlockTensors::* of,
              std::vector<LoraPart> LoraParts::* parts, const at::Tensor& x, at::Tensor& y) {
  for (const AtenLoraRows& rows : all) {
    const LoraTensors& lora = rows.tensors->*of;
    if (!lora.a_SI.defined()) continue;
    const int64_t rank = lora.b_OR.size(1);
    const at::Tensor u =
        at::linear(x.narrow(0, rows.first, rows.count).to(lora.a_SI.scalar_type()), lora.a_SI) * rows.scale;
    int64_t at = 0, out = 0;
    for (const LoraPart& part : rows.parts->*parts) {
      y.narrow(0, rows.first, rows.count)
          .narrow(1, part.first, part.count)
          .add_(at::linear(u.narrow(1, at, rank), lora.b_OR.narrow(0, out, part.count)));
      at += rank, out += part.count;
    }
  }
}

// In the weight's type.
at::Tensor project(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(x.to(weight.scalar_type()), weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

// x: f32 [N, heads, head_dim], of which as many components rotate as there are angles.
at::Tensor rotate(const at::Tensor& x, const Angles& angles, bool interleaved) {
  const int64_t half = angles.cosines.size(-1), rest = x.size(-1) - 2 * half;
  const std::vector<at::Tensor> parts = interleaved ? x.narrow(-1, 0, 2 * half).unflatten(-1, {half, 2}).unbind(-1)
                                        : rest == 0 ? x.split(half, -1)
                                                    : x.split_with_sizes({half, half, rest}, -1);
  const at::Tensor &first = parts[0], &second = parts[1];
  const at::Tensor one = first * angles.cosines - second * angles.sines,
                   other = second * angles.cosines + first * angles.sines;
  const at::Tensor turned =
      interleaved ? at::cat({one.unsqueeze(-1), other.unsqueeze(-1)}, -1).flatten(-2) : at::cat({one, other}, -1);
  return rest == 0 ? turned : at::cat({turned, interleaved ? x.narrow(-1, 2 * half, rest) : parts[2]}, -1);
}

// The norm over all heads of each row. Of a part `join` gives those of all parts, and `first` is where its own begin.
template <class Join>
at::Tensor normalize_wide(const at::Tensor& x, const at::Tensor& weight, const ModelConfig& c, int64_t first,
                          Join&& join) {
  const at::Tensor rows = join(x.flatten(1));
  return normalize(rows, weight, c).narrow(1, first * c.head_dim, x.size(1) * c.head_dim).view(x.sizes());
}

}  // namespace

std::vector<at::Tensor> tensors_of(const BlockTensors& block, bool adapter) {
  std::vector<at::Tensor> all;
  const auto add = [&](const at::Tensor& t) {
    if (t.defined()) all.push_back(t);
  };
  if (adapter) {
    for (const auto of : kLoras) add((block.*of).a_SI), add((block.*of).b_OR);
    return all;
  }
  for (const auto of : kNorms) add(block.*of);
  for (const auto of : kProjections) add(block.*of);
  return all;
}

at::Tensor normalize(const at::Tensor& x, const at::Tensor& weight, const ModelConfig& config) {
  if (!weight.defined()) return x;
  return at::rms_norm(x, {x.size(-1)}, config.shape.unit_norms ? weight + 1 : weight, config.rms_norm_eps);
}

BlockTensors block_copy(const BlockTensors& from, at::ScalarType compute) {
  BlockTensors copy;
  const auto add = [&](const auto& fields, at::ScalarType type) {
    for (const auto field : fields) {
      const at::Tensor& t = from.*field;
      if (t.defined()) copy.*field = t.to(type, /*non_blocking=*/false, /*copy=*/true);
    }
  };
  add(kNorms, at::kFloat);
  add(kProjections, compute);
  return copy;
}

// The norms of queries and keys, [N, heads + kv_heads, head_dim].
static at::Tensor normalize_heads(const ModelConfig& c, const BlockTensors& w, const at::Tensor& qk,
                                  const TensorParallel* parallel) {
  const auto parts = qk.split_with_sizes({c.num_heads, c.num_kv_heads}, 1);
  const at::Tensor &q = parts[0], &k = parts[1];
  if (!c.shape.wide_qk_norm) return at::cat({normalize(q, w.q_norm_D, c), normalize(k, w.k_norm_D, c)}, 1);
  const auto queries = [&](const at::Tensor& own) { return parallel ? parallel->query(own.contiguous()) : own; };
  const auto keys = [&](const at::Tensor& own) {
    return parallel ? parallel->keys(own.contiguous(), c.head_dim) : own;
  };
  return at::cat({normalize_wide(q, w.q_norm_D, c, parallel ? parallel->mine().heads.first : 0, queries),
                  normalize_wide(k, w.k_norm_D, c, parallel ? parallel->mine().kv_heads.first : 0, keys)},
                 1);
}

at::Tensor block_forward(const ModelConfig& c, int64_t layer, const BlockTensors& w, const at::Tensor& x_NH,
                         const AtenPass& pass, const std::optional<LayerPages>& pages, const TensorParallel* parallel,
                         std::span<const AtenLoraRows> lora) {
  using B = BlockTensors;
  using P = LoraParts;
  const at::Tensor normed_NH = normalize(x_NH, w.attn_norm_H, c);
  at::Tensor qkv_NR = project(normed_NH, w.qkv_RH, w.qkv_bias_R);
  add_lora(lora, &B::qkv_lora, &P::qkv, normed_NH, qkv_NR);
  const at::Tensor qkv = qkv_NR.view({x_NH.size(0), c.num_heads + 2 * c.num_kv_heads, c.head_dim});
  // Queries and keys stay together where they can: one operation instead of two. Split, not narrowed: the backward pass
  // of a split is one operation, that of each narrowed tensor three.
  const gyre_shape& shape = c.shape;
  const std::vector<at::Tensor> turned_and_v = qkv.split_with_sizes({c.num_heads + c.num_kv_heads, c.num_kv_heads}, 1);
  at::Tensor qk = turned_and_v[0].to(at::kFloat);
  const at::Tensor& v = turned_and_v[1];
  if (c.qk_norm) qk = normalize_heads(c, w, qk, parallel);
  const int kind = c.layer_kind(layer);
  if ((kind & GYRE_LAYER_NOPE) == 0) {
    qk = rotate(qk, (kind & GYRE_LAYER_LOCAL) != 0 ? pass.angles.local : pass.angles.main, shape.rope_interleaved);
  }
  const auto q_and_k = qk.to(v.scalar_type()).split_with_sizes({c.num_heads, c.num_kv_heads}, 1);
  at::Tensor o = attend_tensors(attention_shape(c, layer), q_and_k[0], q_and_k[1], v, pass.attention, pages);
  if (parallel) o = parallel->query(o);
  const auto added = [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& to,
                         const at::Tensor& out_norm, LoraTensors B::* of, std::vector<LoraPart> P::* parts) {
    at::Tensor own = project(x, weight, bias);
    add_lora(lora, of, parts, x, own);
    if (parallel) own = parallel->hidden(own);
    if (out_norm.defined()) own = normalize(own.to(at::kFloat), out_norm, c);
    return to + (shape.residual_scale != 0 ? own * shape.residual_scale : own);
  };
  const at::Tensor middle_NH = added(o, w.out_HQ, w.out_bias_H, x_NH, w.attn_out_norm_H, &B::out_lora, &P::out);

  const at::Tensor mlp_normed_NH = normalize(middle_NH, w.mlp_norm_H, c);
  at::Tensor gate_up = project(mlp_normed_NH, w.gate_up_2FH, w.gate_up_bias_2F);
  add_lora(lora, &B::gate_up_lora, &P::gate_up, mlp_normed_NH, gate_up);
  const auto gate_and_up = gate_up.split(c.intermediate_size, 1);
  const at::Tensor& gate = gate_and_up[0];
  at::Tensor act = (shape.activation == GYRE_SILU ? at::silu(gate) : at::gelu(gate, "tanh")) * gate_and_up[1];
  if (parallel) act = parallel->intermediate(act);
  return added(act, w.down_HF, w.down_bias_H, middle_NH, w.mlp_out_norm_H, &B::down_lora, &P::down);
}

}  // namespace gyre
