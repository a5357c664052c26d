// The critic: V of the state before token t is the value head on the hidden state of token t-1 (so it sees no later
// token).
#pragma once

#include <span>

#include "backend/decoder.h"
#include "gyre.h"
#include "train/batch.h"
#include "train/gradients.h"

namespace gyre {

// Token-aligned; old_values may be empty when clip <= 0.
struct ValueInputs {
  std::span<const float> returns, old_values, weights;
  double clip = 0;
};

// Forward and backward of Σ weight · value_term on one micro-batch; adds to `into`. values_out is token-aligned and may
// be empty. Throws std::invalid_argument for inconsistent inputs and NotFiniteError, with the gradients untouched, when
// a value is not finite.
gyre_value_stats value_backward(Decoder& critic, const Batch& batch, const ValueInputs& inputs, Gradients& into,
                                std::span<float> values_out);

}  // namespace gyre
