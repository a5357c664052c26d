// The parameters in the type that the device computes in, as leaves of autograd's graphs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/parameters.h"

namespace gyre {

// Projections are in the compute type: in float32 they share the parameters' storage, otherwise they are copies, made
// again after each change. Norms are f32; embedding and head are used as they are, in f32.
struct DeviceWeights {
  uint64_t version = 0;
  std::vector<BlockTensors> blocks;  // without flat_P
  at::Tensor final_norm_H;           // f32

  // Brings the weights up to the given version of the parameters.
  void refresh(const ParameterSet& parameters, uint64_t newest, at::ScalarType compute);
};

// The tensors of a block that are there, in a fixed order.
std::vector<at::Tensor> tensors_of(const BlockTensors& block);

}  // namespace gyre
