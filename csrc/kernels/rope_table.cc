#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/rope.h"

namespace gyre {

std::vector<float> inverse_frequencies(const gyre_model_config& c) {
  std::vector<float> frequencies(static_cast<size_t>(c.head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(c.head_dim);
    double f = static_cast<float>(1.0 / static_cast<float>(std::pow(c.rope_theta, exponent)));
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

void RopeTable::reserve(int64_t count) {
  if (count <= count_) return;
  const int64_t grown = std::max<int64_t>({count, 2 * count_, 256});
  cosines_.resize(static_cast<size_t>(grown * half()));
  sines_.resize(static_cast<size_t>(grown * half()));
  for (int64_t position = count_; position < grown; ++position) {
    for (int64_t i = 0; i < half(); ++i) {
      const double angle = static_cast<float>(position) * frequencies_[static_cast<size_t>(i)];
      cosines_[static_cast<size_t>(position * half() + i)] = static_cast<float>(std::cos(angle));
      sines_[static_cast<size_t>(position * half() + i)] = static_cast<float>(std::sin(angle));
    }
  }
  count_ = grown;
}

}  // namespace gyre
