#include "train/adamw.h"

#include <algorithm>
#include <cmath>

namespace gyre {

AdamW::AdamW(Decoder& decoder, const gyre_adamw_config& config)
    : decoder_(decoder),
      config_(config),
      first_(decoder.backend().make_moments()),
      second_(decoder.backend().make_moments()) {}

StepOutcome AdamW::step(const Gradients& gradients, double lr, double max_norm) {
  gradients.require_config(decoder_.config());
  const double norm = std::sqrt(gradients.dot(gradients, {}));
  if (!std::isfinite(norm)) return {.grad_norm = norm, .applied = false};

  ++steps_;
  const double t = static_cast<double>(steps_);
  const AdamWCoefficients c{
      .scale = static_cast<float>(max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0),
      .one_minus_b1 = static_cast<float>(1 - config_.beta1),
      .b2 = static_cast<float>(config_.beta2),
      .one_minus_b2 = static_cast<float>(1 - config_.beta2),
      .correction = static_cast<float>(std::sqrt(1 - std::pow(config_.beta2, t))),
      .eps = static_cast<float>(config_.eps),
      .keep = static_cast<float>(1 - lr * config_.weight_decay),
      .step_size = static_cast<float>(lr / (1 - std::pow(config_.beta1, t))),
  };
  decoder_.backend().adamw(decoder_.parameters(), first_, second_, gradients.set(), c);
  decoder_.touch();
  return {.grad_norm = norm, .applied = true};
}

}  // namespace gyre
