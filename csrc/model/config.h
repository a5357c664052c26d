// What a decoder is made of: the shape parameters of config.json, already validated by the Go side and again here.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string_view>

#include "gyre.h"
#include "kernels/precision.h"

namespace gyre {

// Shape suffixes used throughout csrc:
//   N rows (packed tokens) · H hidden · V vocabulary · Q query width (heads·head_dim) · K key/value width
//   (kv_heads·head_dim) F intermediate · D head_dim · P parameters
//
// What the C ABI takes, with the defaults of config.json and the widths that follow.
struct ModelConfig : gyre_model_config {
  ModelConfig() : gyre_model_config{} {
    rms_norm_eps = 1e-6, rope_theta = 10000.0;
    rope_factor = rope_low_freq_factor = 1.0, rope_high_freq_factor = 4.0;
  }
  // What a caller of the C ABI gave, in one spelling: the device has a name.
  explicit ModelConfig(const gyre_model_config& config);

  // A backend's name for what computes. Throws std::invalid_argument for a name that is too long to be one.
  void set_device(std::string_view name);
  std::string_view device() const;
  int64_t query_width() const { return num_heads * head_dim; }
  int64_t kv_width() const { return num_kv_heads * head_dim; }
  // Of the CPU's kernels.
  Precision precision() const { return compute == GYRE_COMPUTE_BF16 ? Precision::kBfloat16 : Precision::kFloat32; }
  int64_t qkv_width() const { return query_width() + 2 * kv_width(); }
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

}  // namespace gyre
