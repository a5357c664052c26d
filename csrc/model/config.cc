#include "model/config.h"

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

}  // namespace

RopeParameters rope_parameters(const ModelConfig& c) {
  RopeParameters p;
  p.scaling = c.rope_scaling == RopeScaling::kLlama3   ? RopeParameters::kLlama3
              : c.rope_scaling == RopeScaling::kLinear ? RopeParameters::kLinear
                                                       : RopeParameters::kPlain;
  p.head_dim = c.head_dim;
  p.theta = c.rope_theta;
  p.factor = c.rope_factor;
  p.low_freq_factor = c.rope_low_freq_factor;
  p.high_freq_factor = c.rope_high_freq_factor;
  p.original_max_positions = c.rope_original_max_positions;
  return p;
}

void validate(const ModelConfig& c) {
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
  if (c.rope_scaling != RopeScaling::kPlain) require_positive("rope_scaling.factor", c.rope_factor);
  if (c.rope_scaling == RopeScaling::kLlama3) {
    require_positive("rope_scaling.low_freq_factor", c.rope_low_freq_factor);
    require_positive("rope_scaling.original_max_position_embeddings", c.rope_original_max_positions);
    if (!(c.rope_high_freq_factor > c.rope_low_freq_factor)) {
      refuse("rope_scaling.high_freq_factor", "above low_freq_factor (" + std::to_string(c.rope_low_freq_factor) + ")",
             std::to_string(c.rope_high_freq_factor));
    }
  }
}

}  // namespace gyre
