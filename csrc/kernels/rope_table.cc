#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/rope.h"

namespace gyre {
namespace {

int64_t rotary_dims(const gyre_model_config& c) { return c.shape.rotary_dims > 0 ? c.shape.rotary_dims : c.head_dim; }

double plain_frequency(const gyre_model_config& c, double theta, size_t pair) {
  const double exponent = static_cast<double>(2 * pair) / static_cast<double>(rotary_dims(c));
  return static_cast<float>(1.0 / static_cast<float>(std::pow(theta, exponent)));
}

double divisor(const gyre_rope& rope, size_t pair) {
  return pair < GYRE_MAX_PAIRS && rope.divisors[pair] != 0 ? rope.divisors[pair] : 1;
}

}  // namespace

std::vector<float> inverse_frequencies(const gyre_model_config& c) {
  std::vector<float> frequencies(static_cast<size_t>(rotary_dims(c) / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double f = plain_frequency(c, c.rope_theta, i) / divisor(c.shape.rope, i);
    if (c.rope_scaling == GYRE_ROPE_LINEAR) {
      f /= c.rope_factor;
    } else if (c.rope_scaling == GYRE_ROPE_LLAMA3) {
      const double old_length = static_cast<double>(c.rope_original_max_positions);
      const double wavelength = 2.0 * std::numbers::pi / f;
      if (wavelength > old_length / c.rope_low_freq_factor) {
        f /= c.rope_factor;
      } else if (wavelength >= old_length / c.rope_high_freq_factor) {
        const double smooth =
            (old_length / wavelength - c.rope_low_freq_factor) / (c.rope_high_freq_factor - c.rope_low_freq_factor);
        f = (1.0 - smooth) * f / c.rope_factor + smooth * f;
      }
    }
    frequencies[i] = static_cast<float>(f);
  }
  return frequencies;
}

std::vector<float> local_frequencies(const gyre_model_config& c) {
  std::vector<float> frequencies(static_cast<size_t>(rotary_dims(c) / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const gyre_rope& rope = c.shape.local_rope;
    frequencies[i] = static_cast<float>(plain_frequency(c, rope.theta, i) / divisor(rope, i));
  }
  return frequencies;
}

Ropes::Ropes(const gyre_model_config& c) : main_(inverse_frequencies(c), c.shape.rope.magnitude) {
  if (c.shape.local_rope.theta > 0) local_.emplace(local_frequencies(c), c.shape.local_rope.magnitude);
}

void Ropes::reserve(int64_t count) {
  main_.reserve(count);
  if (local_) local_->reserve(count);
}

const RopeTable* Ropes::of(int kind) const {
  if ((kind & GYRE_LAYER_NOPE) != 0) return nullptr;
  return (kind & GYRE_LAYER_LOCAL) != 0 && local_ ? &*local_ : &main_;
}

void RopeTable::reserve(int64_t count) {
  if (count <= count_) return;
  const int64_t grown = std::max<int64_t>({count, 2 * count_, 256});
  cosines_.resize(static_cast<size_t>(grown * half()));
  sines_.resize(static_cast<size_t>(grown * half()));
  for (int64_t position = count_; position < grown; ++position) {
    for (int64_t i = 0; i < half(); ++i) {
      const double angle = static_cast<float>(position) * frequencies_[static_cast<size_t>(i)];
      cosines_[static_cast<size_t>(position * half() + i)] = static_cast<float>(std::cos(angle) * magnitude_);
      sines_[static_cast<size_t>(position * half() + i)] = static_cast<float>(std::sin(angle) * magnitude_);
    }
  }
  count_ = grown;
}

}  // namespace gyre
