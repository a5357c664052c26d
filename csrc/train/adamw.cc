#include "train/adamw.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace gyre {
namespace {

void require(bool ok, const char* name, double got, const char* expected) {
  if (!ok)
    throw std::invalid_argument(std::string("adamw: ") + name + " is " + std::to_string(got) + ", expected " +
                                expected);
}

}  // namespace

AdamW::AdamW(Decoder& decoder, const gyre_adamw_config& config) : decoder_(decoder), config_(config) {
  require(config.beta1 >= 0 && config.beta1 < 1, "beta1", config.beta1, "0 <= beta1 < 1");
  require(config.beta2 >= 0 && config.beta2 < 1, "beta2", config.beta2, "0 <= beta2 < 1");
  require(std::isfinite(config.eps) && config.eps >= 0, "eps", config.eps, "a number >= 0");
  require(std::isfinite(config.weight_decay) && config.weight_decay >= 0, "weight_decay", config.weight_decay,
          "a number >= 0");
  first_ = decoder.backend().make_moments();
  second_ = decoder.backend().make_moments();
}

StepOutcome AdamW::step(const Gradients& gradients, double lr, double max_norm) {
  require(std::isfinite(lr) && lr >= 0, "lr", lr, "a number >= 0");
  require(std::isfinite(max_norm), "max_norm", max_norm, "a finite number");
  gradients.require_config(decoder_.config());
  const double norm = std::sqrt(gradients.dot(gradients, {}));
  if (!std::isfinite(norm)) return {.grad_norm = norm, .applied = false};

  ++steps_;
  const double t = static_cast<double>(steps_);
  const AdamWCoefficients c{
      .scale = static_cast<float>(max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0),
      .keep = static_cast<float>(1 - lr * config_.weight_decay),
      .one_minus_b1 = static_cast<float>(1 - config_.beta1),
      .b2 = static_cast<float>(config_.beta2),
      .one_minus_b2 = static_cast<float>(1 - config_.beta2),
      .step_size = static_cast<float>(lr / (1 - std::pow(config_.beta1, t))),
      .correction = static_cast<float>(std::sqrt(1 - std::pow(config_.beta2, t))),
      .eps = static_cast<float>(config_.eps),
  };
  decoder_.backend().adamw(decoder_.parameters(), first_, second_, gradients.set(), c);
  decoder_.touch();
  return {.grad_norm = norm, .applied = true};
}

void AdamW::set_steps(int64_t steps) {
  if (steps < 0) throw std::invalid_argument("adamw: steps is " + std::to_string(steps) + ", expected >= 0");
  steps_ = steps;
}

}  // namespace gyre
