// Small decoders with seeded random weights, one per architectural corner.
#pragma once

#include <ATen/ATen.h>

#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "backend/decoder.h"

namespace gyre::testing {

inline ModelConfig llama_config() {
  ModelConfig c;
  c.vocab_size = 101, c.hidden_size = 48, c.intermediate_size = 80, c.num_layers = 2;
  c.num_heads = 6, c.num_kv_heads = 2, c.head_dim = 8, c.max_positions = 512;
  c.tie_embeddings = true;
  return c;
}

// Every optional bias, odd widths, a head_dim that is no multiple of a vector.
inline ModelConfig llama_bias_config() {
  ModelConfig c = llama_config();
  c.vocab_size = 67, c.hidden_size = 33, c.intermediate_size = 45;
  c.num_heads = 3, c.num_kv_heads = 1, c.head_dim = 10;
  c.qkv_bias = c.out_bias = c.mlp_bias = true, c.tie_embeddings = false;
  return c;
}

inline ModelConfig qwen2_config() {
  ModelConfig c = llama_config();
  c.hidden_size = 64, c.num_heads = 4, c.num_kv_heads = 4, c.head_dim = 16;
  c.qkv_bias = true, c.tie_embeddings = false, c.rope_theta = 1e6;
  return c;
}

inline ModelConfig qwen3_config() {
  ModelConfig c = llama_config();
  c.hidden_size = 40, c.num_heads = 5, c.num_kv_heads = 1, c.head_dim = 20;
  c.qk_norm = true;
  return c;
}

// Gemma 2's corners: norms on both sides whose weights are less 1, soft-capping, windows in every other layer, GeGLU.
inline ModelConfig sandwich_config() {
  ModelConfig c = llama_config();
  gyre_shape& s = c.shape;
  s.output_norms = s.unit_norms = true, s.activation = GYRE_GELU_TANH;
  s.query_scale = 0.3, s.score_cap = 2, s.logit_cap = 3, s.embedding_scale = 4;
  s.window = 5, s.layers[0] = GYRE_LAYER_WINDOW;
  return c;
}

// OLMo 3's: norms on what branches add alone, those of queries and keys over all heads, another rotary embedding in
// layers with a window, and scaled ones in the others.
inline ModelConfig wide_config() {
  ModelConfig c = llama_bias_config();
  c.num_heads = 6, c.num_kv_heads = 2, c.qk_norm = true;
  gyre_shape& s = c.shape;
  s.no_input_norms = s.output_norms = s.wide_qk_norm = true;
  s.window = 18, s.layers[1] = GYRE_LAYER_WINDOW | GYRE_LAYER_LOCAL;
  s.rope.magnitude = 1.2, s.rope.divisors[1] = 2.5, s.rope.divisors[4] = 4;
  s.local_theta = 40;
  return c;
}

// GLM-4's rotations of neighbours in a part of each head, a layer without, and Granite's scales.
inline ModelConfig partial_config() {
  ModelConfig c = qwen3_config();
  gyre_shape& s = c.shape;
  s.rotary_dims = 6, s.rope_interleaved = true, s.layers[1] = GYRE_LAYER_NOPE;
  s.residual_scale = 0.6, s.logit_scale = 0.7, s.embedding_scale = 1.5;
  return c;
}

// Seven experts of which three compute a row, their weights not normalised; one layer has an MLP instead.
inline ModelConfig experts_config() {
  ModelConfig c = qwen3_config();
  gyre_shape& s = c.shape;
  s.experts = 7, s.chosen_experts = 3, s.expert_size = 21;
  c.num_layers = 3, s.layers[1] = GYRE_LAYER_DENSE;
  return c;
}

// Normalised weights, an MLP beside the experts, and a router that reads what has no norm.
inline ModelConfig shared_expert_config() {
  ModelConfig c = wide_config();
  gyre_shape& s = c.shape;
  s.experts = 4, s.chosen_experts = 2, s.expert_size = 30, s.shared_size = 17, s.normalized_routing = true;
  c.mlp_bias = false;
  return c;
}

inline ModelConfig value_config() {
  ModelConfig c = qwen2_config();
  c.head = GYRE_HEAD_VALUE;
  return c;
}

inline ParameterSet make_parameters(const ModelConfig& config) { return open_backend(config)->make_set(); }

// A value that depends only on (seed, index): uniform in [-scale, scale] around `center`.
inline void fill(at::Tensor tensor, uint64_t seed, float scale, float center = 0.0f) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  at::Tensor dense = at::empty(tensor.sizes(), at::kFloat);
  for (int64_t i = 0; i < dense.numel(); ++i) dense.data_ptr<float>()[i] = center + uniform(random);
  tensor.copy_(dense);
}

inline at::Tensor random_tensor(at::IntArrayRef shape, uint64_t seed, float scale = 1.0f) {
  at::Tensor t = at::empty(shape, at::kFloat);
  fill(t, seed, scale);
  return t;
}

inline void randomize(Decoder& decoder, uint64_t seed) {
  for (NamedTensor& p : decoder.parameters().named) {
    const bool norm = p.name.find("norm") != std::string::npos;
    fill(p.value, ++seed, p.value.dim() == 2 ? 0.25f : 0.3f, norm ? 1.0f : 0.0f);
  }
  decoder.touch();
}

// Normal numbers of one stream, for tensors of floats.
inline void fill_normal(std::vector<at::Tensor> tensors, uint32_t seed, float deviation) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor host = at::empty(tensor.sizes(), at::kFloat);
    float* p = host.mutable_data_ptr<float>();
    for (int64_t i = 0; i < tensor.numel(); ++i) p[i] = normal(generator);
    tensor.copy_(host);
  }
}

// All weights from one normal distribution, wide enough that what is sampled varies.
inline void randomize_normal(Decoder& decoder, uint32_t seed, float deviation) {
  fill_normal(decoder.parameters().flats(), seed, deviation);
  decoder.touch();
}

inline std::unique_ptr<Decoder> normal_decoder(const ModelConfig& config, uint32_t seed, float deviation) {
  auto decoder = std::make_unique<Decoder>(config);
  randomize_normal(*decoder, seed, deviation);
  return decoder;
}

inline std::vector<int32_t> random_ids(int64_t count, int64_t vocab, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
  return ids;
}

// Bits, not values.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), a.nbytes()) == 0;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// |a - b| / |b| in the Euclidean norm (|a| when b is zero).
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const double norm = b.norm().item<double>(), difference = (a - b).norm().item<double>();
  return norm > 0 ? difference / norm : difference;
}

}  // namespace gyre::testing
