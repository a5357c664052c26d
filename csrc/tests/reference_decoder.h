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
  const at::Tensor bias = find(w, name + ".bias");
  const at::Tensor y = at::matmul(x, w.at(name + ".weight").t());
  return bias.defined() ? y + bias : y;
}

inline at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x * at::rsqrt((x * x).mean(-1, true) + eps) * weight;
}

// x: [heads, length, head_dim].
inline at::Tensor rope(const at::Tensor& x, const at::Tensor& frequencies) {
  const at::Tensor angles = at::outer(at::arange(x.size(1), at::kFloat), frequencies);
  const at::Tensor both = at::cat({angles, angles}, -1);
  const int64_t half = x.size(2) / 2;
  const at::Tensor rotated = at::cat({-x.narrow(2, half, half), x.narrow(2, 0, half)}, -1);
  return x * both.cos() + rotated * both.sin();
}

inline at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const int64_t length = q.size(1), group = q.size(0) / k.size(0);
  const at::Tensor mask = at::ones({length, length}, at::kBool).triu(1);
  at::Tensor scores =
      at::matmul(q, k.repeat_interleave(group, 0).transpose(1, 2)) / std::sqrt(static_cast<double>(q.size(2)));
  scores = scores.masked_fill(mask, -std::numeric_limits<double>::infinity());
  return at::matmul(scores.softmax(-1), v.repeat_interleave(group, 0));
}

// Final-norm hidden states of one sequence, [length, H]. Plain rope only.
inline at::Tensor hidden(const ModelConfig& c, const Weights& w, std::span<const int32_t> ids) {
  const auto length = static_cast<int64_t>(ids.size());
  std::vector<float> frequencies = inverse_frequencies(c);
  const at::Tensor angles = at::from_blob(frequencies.data(), {static_cast<int64_t>(frequencies.size())}).clone();
  at::Tensor index = at::empty({length}, at::kLong);
  for (int64_t i = 0; i < length; ++i) index.data_ptr<int64_t>()[i] = ids[static_cast<size_t>(i)];

  at::Tensor x = w.at("model.embed_tokens.weight").index_select(0, index);
  const auto split = [&](const at::Tensor& t, int64_t heads) {
    return t.view({length, heads, c.head_dim}).transpose(0, 1);
  };
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const at::Tensor h = rms_norm(x, w.at(layer + "input_layernorm.weight"), c.rms_norm_eps);
    at::Tensor q = split(linear(w, h, layer + "self_attn.q_proj"), c.num_heads);
    at::Tensor k = split(linear(w, h, layer + "self_attn.k_proj"), c.num_kv_heads);
    const at::Tensor v = split(linear(w, h, layer + "self_attn.v_proj"), c.num_kv_heads);
    if (c.qk_norm) {
      q = rms_norm(q, w.at(layer + "self_attn.q_norm.weight"), c.rms_norm_eps);
      k = rms_norm(k, w.at(layer + "self_attn.k_norm.weight"), c.rms_norm_eps);
    }
    const at::Tensor o =
        attention(rope(q, angles), rope(k, angles), v).transpose(0, 1).reshape({length, c.query_width()});
    x = x + linear(w, o, layer + "self_attn.o_proj");
    const at::Tensor m = rms_norm(x, w.at(layer + "post_attention_layernorm.weight"), c.rms_norm_eps);
    x = x + linear(w, at::silu(linear(w, m, layer + "mlp.gate_proj")) * linear(w, m, layer + "mlp.up_proj"),
                   layer + "mlp.down_proj");
  }
  return rms_norm(x, w.at("model.norm.weight"), c.rms_norm_eps);
}

}  // namespace gyre::reference
