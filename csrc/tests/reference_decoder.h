// The decoders of transformers written plainly in ATen operations, for autograd and tolerance checks of Gyre's own.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <span>
#include <string>

#include "backend/decoder.h"
#include "kernels/rope.h"

namespace gyre::reference {

using Weights = std::map<std::string, at::Tensor>;

// Detached copies of a model's parameters that require gradients.
inline Weights copy_weights(const ParameterSet& parameters) {
  Weights w;
  for (const NamedTensor& p : parameters.named) w[p.name] = p.value.clone().set_requires_grad(true);
  return w;
}

inline at::Tensor find(const Weights& w, const std::string& name) {
  const auto it = w.find(name);
  return it == w.end() ? at::Tensor() : it->second;
}

inline at::Tensor linear(const Weights& w, const at::Tensor& x, const std::string& name) {
  const at::Tensor bias = find(w, name + ".bias"), lora = find(w, name + ".lora_A.weight"),
                   kept = find(w, name + ".kept");
  at::Tensor y = at::matmul(x, w.at(name + ".weight").t());
  if (lora.defined()) {  // whose scale is in B, and what is dropped of its input in `kept`
    y = y + at::matmul(at::matmul(kept.defined() ? x * kept : x, lora.t()), w.at(name + ".lora_B.weight").t());
  }
  return bias.defined() ? y + bias : y;
}

inline at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x * at::rsqrt((x * x).mean(-1, true) + eps) * weight;
}

// Where there is one; as the shape says that weights are.
inline at::Tensor norm(const ModelConfig& c, const Weights& w, const at::Tensor& x, const std::string& name) {
  const at::Tensor weight = find(w, name + ".weight");
  if (!weight.defined()) return x;
  return rms_norm(x, c.shape.unit_norms ? weight + 1 : weight, c.rms_norm_eps);
}

// x: [heads, length, head_dim].
inline at::Tensor rope(const at::Tensor& whole, const at::Tensor& frequencies, double magnitude = 1,
                       bool interleaved = false) {
  const int64_t dims = 2 * frequencies.size(0);
  if (dims < whole.size(2) || interleaved) {  // the rest as it is, and pairs of neighbours as pairs of halves
    at::Tensor x = whole.narrow(2, 0, dims);
    const auto in_pairs = [&](const at::Tensor& t, int64_t a, int64_t b) {
      return t.reshape({t.size(0), t.size(1), a, b}).transpose(2, 3).reshape(t.sizes());
    };
    if (interleaved) x = in_pairs(x, dims / 2, 2);
    x = rope(x, frequencies, magnitude);
    if (interleaved) x = in_pairs(x, 2, dims / 2);
    return at::cat({x, whole.narrow(2, dims, whole.size(2) - dims)}, -1);
  }
  const at::Tensor& x = whole;
  const at::Tensor angles = at::outer(at::arange(x.size(1), at::kFloat), frequencies);
  const at::Tensor both = at::cat({angles, angles}, -1);
  const int64_t half = x.size(2) / 2;
  const at::Tensor rotated = at::cat({-x.narrow(2, half, half), x.narrow(2, 0, half)}, -1);
  return (x * both.cos() + rotated * both.sin()) * magnitude;
}

inline at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const gyre_shape& shape = {},
                            int64_t window = 0) {
  const int64_t length = q.size(1), group = q.size(0) / k.size(0);
  at::Tensor mask = at::ones({length, length}, at::kBool).triu(1);
  if (window > 0) mask = mask.logical_or(at::ones({length, length}, at::kBool).tril(-window));
  at::Tensor scores = at::matmul(q, k.repeat_interleave(group, 0).transpose(1, 2)) *
                      (shape.query_scale > 0 ? shape.query_scale : 1 / std::sqrt(static_cast<double>(q.size(2))));
  if (shape.score_cap > 0) scores = at::tanh(scores / shape.score_cap) * shape.score_cap;
  scores = scores.masked_fill(mask, -std::numeric_limits<double>::infinity());
  return at::matmul(scores.softmax(-1), v.repeat_interleave(group, 0));
}

// Gated, of the modules below `name`.
inline at::Tensor mlp(const ModelConfig& c, const Weights& w, const at::Tensor& x, const std::string& name) {
  const at::Tensor gate = linear(w, x, name + "gate_proj");
  const at::Tensor act = c.shape.activation == GYRE_SILU ? at::silu(gate) : at::gelu(gate, "tanh");
  return linear(w, act * linear(w, x, name + "up_proj"), name + "down_proj");
}

// Every expert computes every row, which has a weight of zero where it is not chosen.
inline at::Tensor experts(const ModelConfig& c, const Weights& w, const at::Tensor& x, const std::string& name) {
  const at::Tensor p = at::matmul(x, w.at(name + "gate.weight").t()).softmax(-1);
  const at::Tensor chosen = std::get<1>(p.topk(c.shape.chosen_experts, -1));
  at::Tensor weights = p * at::zeros_like(p).scatter_(-1, chosen, 1.0);
  if (c.shape.normalized_routing) weights = weights / weights.sum(-1, true);
  at::Tensor sum = at::zeros_like(x);
  for (int64_t e = 0; e < c.shape.experts; ++e) {
    sum = sum + weights.narrow(1, e, 1) * mlp(c, w, x, name + "experts." + std::to_string(e) + ".");
  }
  return sum;
}

// Final-norm hidden states of one sequence, [length, H].
inline at::Tensor hidden(const ModelConfig& c, const Weights& w, std::span<const int32_t> ids) {
  const auto length = static_cast<int64_t>(ids.size());
  const gyre_shape& shape = c.shape;
  const auto on_tensor = [](std::vector<float> f) {
    return at::from_blob(f.data(), {static_cast<int64_t>(f.size())}).clone();
  };
  const at::Tensor angles = on_tensor(inverse_frequencies(c));
  at::Tensor index = at::empty({length}, at::kLong);
  for (int64_t i = 0; i < length; ++i) index.data_ptr<int64_t>()[i] = ids[static_cast<size_t>(i)];

  at::Tensor x = w.at("model.embed_tokens.weight").index_select(0, index);
  if (shape.embedding_scale != 0) x = x * shape.embedding_scale;
  const double residual = shape.residual_scale != 0 ? shape.residual_scale : 1;
  const auto split = [&](const at::Tensor& t, int64_t heads) {
    return t.view({length, heads, c.head_dim}).transpose(0, 1);
  };
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const int kind = c.layer_kind(i);
    const at::Tensor h = norm(c, w, x, layer + "input_layernorm");
    const auto heads = [&](const char* of, int64_t count) {
      const std::string name = layer + "self_attn." + of;
      at::Tensor t = linear(w, h, name + "_proj");
      if (shape.wide_qk_norm) t = norm(c, w, t, name + "_norm");
      t = split(t, count);
      if (!shape.wide_qk_norm) t = norm(c, w, t, name + "_norm");
      if ((kind & GYRE_LAYER_NOPE) != 0) return t;
      if ((kind & GYRE_LAYER_LOCAL) != 0) return rope(t, on_tensor(inverse_frequencies(c, true)));
      return rope(t, angles, shape.rope.magnitude != 0 ? shape.rope.magnitude : 1, shape.rope_interleaved);
    };
    const at::Tensor v = split(linear(w, h, layer + "self_attn.v_proj"), c.num_kv_heads);
    const at::Tensor o = attention(heads("q", c.num_heads), heads("k", c.num_kv_heads), v, shape, c.window_of(i))
                             .transpose(0, 1)
                             .reshape({length, c.query_width()});
    x = x + residual * norm(c, w, linear(w, o, layer + "self_attn.o_proj"), layer + "post_self_attn_layernorm");
    const at::Tensor m = norm(c, w, x, layer + "post_attention_layernorm");
    at::Tensor made = c.mixes(i) ? experts(c, w, m, layer + "mlp.") : at::zeros_like(m);
    if (c.mlp_width(i) > 0) made = made + mlp(c, w, m, layer + "mlp.");
    x = x + residual * norm(c, w, made, layer + "post_mlp_layernorm");
  }
  return norm(c, w, x, "model.norm");
}

}  // namespace gyre::reference
