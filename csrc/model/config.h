// What a decoder is made of: the shape parameters of config.json, already validated by the Go side and again here.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "kernels/rope.h"

namespace gyre {

enum class Family { kLlama, kQwen2, kQwen3 };
enum class RopeScaling { kPlain, kLlama3, kLinear };
enum class HeadKind { kLanguageModel, kValue };
// Type of the arithmetic; parameters are f32 in any case. Auto: bfloat16 on a GPU, float32 elsewhere.
enum class Compute { kAuto, kFloat32, kBfloat16 };

// Shape suffixes used throughout csrc:
//   N rows (packed tokens) · H hidden · V vocabulary · Q query width (heads·head_dim) · K key/value width
//   (kv_heads·head_dim) F intermediate · D head_dim · P parameters
struct ModelConfig {
  Family family = Family::kLlama;
  HeadKind head = HeadKind::kLanguageModel;
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_layers = 0;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0, max_positions = 0;
  double rms_norm_eps = 1e-6, rope_theta = 10000.0;
  RopeScaling rope_scaling = RopeScaling::kPlain;
  double rope_factor = 1.0, rope_low_freq_factor = 1.0, rope_high_freq_factor = 4.0;
  int64_t rope_original_max_positions = 0;
  bool qkv_bias = false, out_bias = false, mlp_bias = false, qk_norm = false, tie_embeddings = false;
  // What computes, a backend's name for it: "cpu" Gyre's own kernels, "cuda" or "cuda:N" tensor operations on a GPU,
  // "aten" the same operations on the CPU (to check them, and the kernels against them).
  std::string device = "cpu";
  Compute compute = Compute::kAuto;

  int64_t query_width() const { return num_heads * head_dim; }
  int64_t kv_width() const { return num_kv_heads * head_dim; }
  int64_t qkv_width() const { return query_width() + 2 * kv_width(); }
  bool operator==(const ModelConfig&) const = default;
};

// Failures that the C ABI reports under a status of their own. Everything else is std::invalid_argument (the caller's
// mistake) or an internal error.
//
// A number that must be finite is not: the model has diverged.
struct NotFiniteError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An id that names nothing.
struct NotFoundError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws std::invalid_argument naming the field.
void validate(const ModelConfig& config);

RopeParameters rope_parameters(const ModelConfig& config);

}  // namespace gyre
