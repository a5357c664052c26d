// Rotary position embedding on tensors, with the cosines and sines of the CPU kernels' table.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/rope.h"

namespace gyre {

// The angles of a pass's rows, f32 [N, 1, head_dim / 2].
struct RowAngles {
  at::Tensor cosines, sines;
};

class DeviceRope {
 public:
  DeviceRope(std::vector<float> inverse_frequencies, at::Device device)
      : table_(std::move(inverse_frequencies)), device_(device) {}
  // positions_N: int64 on the device, all below `limit`.
  RowAngles rows(const at::Tensor& positions_N, int64_t limit);

 private:
  RopeTable table_;
  at::Device device_;
  int64_t uploaded_ = 0;
  at::Tensor cosines_, sines_;  // [positions, head_dim / 2]
};

// x: f32 [N, heads, head_dim].
at::Tensor rotate(const at::Tensor& x, const RowAngles& angles);

}  // namespace gyre
