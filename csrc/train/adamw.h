// AdamW with decoupled weight decay (Loshchilov & Hutter 2019) on every parameter, with global gradient-norm clipping.
#pragma once

#include <cstdint>

#include "backend/decoder.h"
#include "gyre.h"
#include "train/gradients.h"

namespace gyre {

struct StepOutcome {
  double grad_norm;  // global L2 norm before clipping
  bool applied;
};

class AdamW {
 public:
  // The decoder must outlive the optimizer.
  AdamW(Decoder& decoder, const gyre_adamw_config& config);

  // One update with the gradients scaled by min(1, max_norm / (norm + 1e-6)) (max_norm <= 0: not scaled; the buffer
  // itself is left as it is), then touches the decoder. A norm that is not finite changes nothing.
  StepOutcome step(const Gradients& gradients, double lr, double max_norm);

  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }
  void configure(const gyre_adamw_config& config) { config_ = config; }  // of the steps to come
  const ParameterSet& first_moment() const { return first_; }
  const ParameterSet& second_moment() const { return second_; }

 private:
  Decoder& decoder_;
  gyre_adamw_config config_;
  ParameterSet first_, second_;
  int64_t steps_ = 0;
};

}  // namespace gyre
