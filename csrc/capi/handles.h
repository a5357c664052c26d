// What the opaque handles of gyre.h point to.
#pragma once

#include "gyre.h"
#include "model/decoder.h"
#include "train/adamw.h"
#include "train/gradients.h"

struct gyre_model {
  explicit gyre_model(const gyre::ModelConfig& config) : decoder(config) {}
  gyre::Decoder decoder;
};

struct gyre_gradients {
  explicit gyre_gradients(const gyre::ModelConfig& config) : gradients(config) {}
  gyre::Gradients gradients;
};

struct gyre_optimizer {
  gyre_optimizer(gyre::Decoder& decoder, const gyre_adamw_config& config) : adamw(decoder, config) {}
  gyre::AdamW adamw;
};

namespace gyre::capi {

// A heap-allocated handle to the tensor, owned by the caller of the C function.
inline gyre_tensor new_tensor_handle(const at::Tensor& tensor) { return new at::Tensor(tensor); }

// named[i].value with the index checked; throws std::invalid_argument.
const NamedTensor& named_parameter(const ParameterSet& set, int32_t i);

}  // namespace gyre::capi
