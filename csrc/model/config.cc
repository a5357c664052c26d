#include "model/config.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace gyre {
namespace {

[[noreturn]] void refuse(const std::string& field, const std::string& expected, const std::string& got) {
  throw std::invalid_argument("model configuration: " + field + " must be " + expected + ", got " + got);
}

void require_positive(const char* field, int64_t value) {
  if (value <= 0) refuse(field, "positive", std::to_string(value));
}

void require_positive(const char* field, double value) {
  if (!(value > 0.0)) refuse(field, "positive", std::to_string(value));
}

// A member of one of gyre.h's enumerations, which all begin at 0.
void require_kind(const char* field, int32_t value, int32_t last) {
  if (value < 0 || value > last) refuse(field, "0 to " + std::to_string(last), std::to_string(value));
}

}  // namespace

ModelConfig::ModelConfig(const gyre_model_config& config) : gyre_model_config(config) {
  set_device({config.device, strnlen(config.device, GYRE_DEVICE_SIZE)});
}

void ModelConfig::set_device(std::string_view name) {
  char* const device = gyre_model_config::device;
  if (name.empty()) name = "cpu";
  if (name.size() >= GYRE_DEVICE_SIZE) refuse("device", "cpu, cuda, cuda:N or aten", '"' + std::string(name) + '"');
  std::fill(std::copy(name.begin(), name.end(), device), device + GYRE_DEVICE_SIZE, '\0');
}

std::string_view ModelConfig::device() const {
  return gyre_model_config::device[0] == '\0' ? "cpu" : gyre_model_config::device;
}

void validate(const ModelConfig& c) {
  require_kind("family", c.family, GYRE_QWEN3);
  require_kind("head", c.head, GYRE_HEAD_VALUE);
  require_kind("rope_scaling", c.rope_scaling, GYRE_ROPE_LINEAR);
  require_kind("compute", c.compute, GYRE_COMPUTE_BF16);
  require_positive("vocab_size", c.vocab_size);
  require_positive("hidden_size", c.hidden_size);
  require_positive("intermediate_size", c.intermediate_size);
  require_positive("num_hidden_layers", c.num_layers);
  require_positive("num_attention_heads", c.num_heads);
  require_positive("num_key_value_heads", c.num_kv_heads);
  require_positive("head_dim", c.head_dim);
  require_positive("max_position_embeddings", c.max_positions);
  require_positive("rms_norm_eps", c.rms_norm_eps);
  require_positive("rope_theta", c.rope_theta);
  if (c.num_heads % c.num_kv_heads != 0) {
    refuse("num_attention_heads", "a multiple of num_key_value_heads (" + std::to_string(c.num_kv_heads) + ")",
           std::to_string(c.num_heads));
  }
  if (c.head_dim % 2 != 0) refuse("head_dim", "even (rotary embedding pairs components)", std::to_string(c.head_dim));
  if (c.rope_scaling != GYRE_ROPE_PLAIN) require_positive("rope_scaling.factor", c.rope_factor);
  if (c.rope_scaling == GYRE_ROPE_LLAMA3) {
    require_positive("rope_scaling.low_freq_factor", c.rope_low_freq_factor);
    require_positive("rope_scaling.original_max_position_embeddings", c.rope_original_max_positions);
    if (!(c.rope_high_freq_factor > c.rope_low_freq_factor)) {
      refuse("rope_scaling.high_freq_factor", "above low_freq_factor (" + std::to_string(c.rope_low_freq_factor) + ")",
             std::to_string(c.rope_high_freq_factor));
    }
  }
}

}  // namespace gyre
