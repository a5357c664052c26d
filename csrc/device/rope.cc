#include "device/rope.h"

#include <ATen/ops/cat.h>

#include <algorithm>

#include "device/placement.h"

namespace gyre {

RowAngles DeviceRope::rows(const at::Tensor& positions_N, int64_t limit) {
  if (limit > uploaded_) {
    uploaded_ = std::max<int64_t>({limit, 2 * uploaded_, 256});
    table_.reserve(uploaded_);
    cosines_ = to_device(table_.cosines(0), {uploaded_, table_.half()}, device_);
    sines_ = to_device(table_.sines(0), {uploaded_, table_.half()}, device_);
  }
  return {cosines_.index_select(0, positions_N).unsqueeze(1), sines_.index_select(0, positions_N).unsqueeze(1)};
}

at::Tensor rotate(const at::Tensor& x, const RowAngles& angles) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor first = x.narrow(-1, 0, half), second = x.narrow(-1, half, half);
  return at::cat({first * angles.cosines - second * angles.sines, second * angles.cosines + first * angles.sines}, -1);
}

}  // namespace gyre
