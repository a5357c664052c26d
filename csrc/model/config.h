// What a decoder is made of: the shape parameters of config.json, which are checked where that is read
// (orchestrate/model/checkpoint/hf).
#pragma once

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

#include "gyre.h"
#include "kernels/precision.h"

namespace gyre {

// Shape suffixes used throughout csrc:
//   N rows (packed tokens) · H hidden · V vocabulary · Q query width (heads·head_dim) · K key/value width
//   (kv_heads·head_dim) F intermediate · D head_dim · P parameters · E experts · C rows of all chosen experts
//
// What the C ABI takes, with the defaults of config.json and the widths that follow.
struct ModelConfig : gyre_model_config {
  ModelConfig() : gyre_model_config{} { rms_norm_eps = 1e-6, rope_theta = 10000.0; }
  // What a caller of the C ABI gave, in one spelling: the device has a name.
  explicit ModelConfig(const gyre_model_config& config) : gyre_model_config(config) { set_device(device()); }

  // A backend's name for what computes, in less than GYRE_DEVICE_SIZE characters.
  void set_device(std::string_view name) {
    char* const to = gyre_model_config::device;
    const std::string copy(name);  // it may be the one that is overwritten
    std::fill(std::ranges::copy(copy, to).out, to + GYRE_DEVICE_SIZE, '\0');
  }
  std::string_view device() const {
    const char* const name = gyre_model_config::device;
    return name[0] == '\0' ? "cpu" : std::string_view(name, strnlen(name, GYRE_DEVICE_SIZE - 1));
  }
  int64_t query_width() const { return num_heads * head_dim; }
  int64_t kv_width() const { return num_kv_heads * head_dim; }
  // Of the CPU's kernels.
  Precision precision() const { return compute == GYRE_COMPUTE_BF16 ? Precision::kBfloat16 : Precision::kFloat32; }
  int64_t qkv_width() const { return query_width() + 2 * kv_width(); }
  // Of the norms on queries and keys.
  int64_t q_norm_width() const { return shape.wide_qk_norm ? query_width() : head_dim; }
  int64_t k_norm_width() const { return shape.wide_qk_norm ? kv_width() : head_dim; }
  // gyre_layer bits.
  int layer_kind(int64_t layer) const { return layer < GYRE_MAX_LAYERS ? shape.layers[layer] : 0; }
  // Whether experts are in place of a layer's MLP, and how wide an MLP is in their place or beside them; 0: there is
  // none.
  bool mixes(int64_t layer) const { return shape.experts > 0 && (layer_kind(layer) & GYRE_LAYER_DENSE) == 0; }
  int64_t mlp_width(int64_t layer) const { return mixes(layer) ? shape.shared_size : intermediate_size; }
  int64_t widest_mlp() const {
    int64_t widest = 0;
    for (int64_t i = 0; i < num_layers; ++i) widest = std::max(widest, mlp_width(i));
    return widest;
  }
  int64_t window_of(int64_t layer) const { return (layer_kind(layer) & GYRE_LAYER_WINDOW) != 0 ? shape.window : 0; }
};

// Throws an error, by default the caller's mistake, unless `holds`. Its message is the parts one after another.
template <typename Error = std::invalid_argument, typename... Parts>
void require(bool holds, const Parts&... message) {
  if (!holds) throw Error(c10::str(message...));
}

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

}  // namespace gyre
