// The optimizer's step and inner products on tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "train/adamw.h"

namespace gyre {

// Inner product in f64 of two f32 tensors of one shape.
double dot_on_device(const at::Tensor& a, const at::Tensor& b);

// One AdamW step of a flat tensor, in the order of operations of the CPU's.
void adamw_on_device(at::Tensor& parameter, at::Tensor& first, at::Tensor& second, const at::Tensor& gradient,
                     const AdamWCoefficients& c);

}  // namespace gyre
