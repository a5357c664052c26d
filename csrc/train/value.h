// The critic: V of the state before token t is the value head on the hidden state of token t-1 (so it sees no later
// token).
#pragma once

#include "backend/decoder.h"
#include "gyre.h"
#include "train/batch.h"
#include "train/gradients.h"

namespace gyre {

// Forward and backward of Σ weight · value_term on one micro-batch; adds to `into`. Arrays are token-aligned; old_values
// may be null when clip <= 0, and values_out too. Throws std::invalid_argument for inconsistent inputs and
// NotFiniteError, with the gradients untouched, when a value is not finite.
gyre_value_stats value_backward(Decoder& critic, const Batch& batch, const float* returns, const float* old_values,
                                const float* weights, double clip, Gradients& into, float* values_out);

}  // namespace gyre
