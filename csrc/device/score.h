// Log-probs and entropies of chosen tokens on tensors, and the value head: what model/score.h and train/value.h compute
// on the CPU, in the same chunks of rows. Only numbers per token leave the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "model/decoder.h"
#include "model/score.h"

namespace gyre {

Scores score_on_device(Decoder& decoder, const at::Tensor& hidden_NH, std::span<const Target> targets,
                       float inverse_temperature, bool want_entropy);

// score_backward() of model/score.h.
void score_backward_on_device(Decoder& decoder, const at::Tensor& hidden_NH, std::span<const Target> targets,
                              float inverse_temperature, const Objective& objective);

// Adds the value head's gradients of Σ d_values[i]·V_i and returns that of the hidden states.
at::Tensor value_backward_on_device(const Decoder& critic, const at::Tensor& hidden_NH, std::span<const Target> targets,
                                    std::span<const double> d_values, ParameterSet& gradients);

}  // namespace gyre
