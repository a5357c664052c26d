// What the backward pass needs of one training forward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/buffer.h"
#include "model/block.h"

namespace gyre {

struct DeviceActivations;

class Activations {
 public:
  int64_t rows() const { return pass_.rows; }

 private:
  friend class Decoder;
  std::vector<int32_t> ids_;  // of the rows
  Pass pass_;
  std::shared_ptr<Buffer> memory_;             // of the blocks' tensors
  std::vector<BlockActivations> blocks_;       // with recomputation: only input_NH of each is defined
  at::Tensor last_NH_, rstd_N_;                // output of the last block; the final norm's statistics
  std::shared_ptr<DeviceActivations> device_;  // of a decoder on tensors, in place of the tensors above
};

}  // namespace gyre
