#include <algorithm>
#include <cmath>

#include "kernels/rope.h"

namespace gyre {

std::vector<float> inverse_frequencies(const gyre_model_config& c, bool local) {
  const int64_t dims = c.shape.rotary_dims > 0 ? c.shape.rotary_dims : c.head_dim;
  const double theta = local ? c.shape.local_theta : c.rope_theta;
  const gyre_rope& rope = local ? c.shape.local_rope : c.shape.rope;
  std::vector<float> frequencies(static_cast<size_t>(dims / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(dims);
    const double plain = static_cast<float>(1.0 / static_cast<float>(std::pow(theta, exponent)));
    const bool scaled = i < GYRE_MAX_PAIRS && rope.divisors[i] != 0;
    frequencies[i] = static_cast<float>(scaled ? plain / rope.divisors[i] : plain);
  }
  return frequencies;
}

Ropes::Ropes(const gyre_model_config& c) : main_(inverse_frequencies(c), c.shape.rope.magnitude) {
  if (c.shape.local_theta > 0) local_.emplace(inverse_frequencies(c, true), c.shape.local_rope.magnitude);
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
