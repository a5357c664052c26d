// y = x · W^T with W packed once per update. Every output element is one chain of fused multiply-adds over the inner
// dimension in the same order whatever the number of rows, their place in the batch or the number of threads: the
// row-invariance on which "sampling = training, bit for bit" rests.
#pragma once

#include <cstdint>

#include "kernels/buffer.h"

namespace gyre {

class PackedMatrix {
 public:
  PackedMatrix() = default;
  // weight: [out, in] row-major.
  void pack(const float* weight, int64_t out, int64_t in);
  bool empty() const { return out_ == 0; }
  int64_t out() const { return out_; }
  int64_t in() const { return in_; }
  int64_t bytes() const;

  // y[rows, out] (row stride ldy) = x[rows, in] (row stride ldx) · W^T (+ bias[out] when not null).
  void multiply(const float* x, int64_t ldx, int64_t rows, const float* bias, float* y, int64_t ldy) const {
    multiply_columns(0, out_, x, ldx, rows, bias, y, ldy);
  }
  // Columns first .. first+count-1 of that; first is a multiple of kPanel.
  void multiply_columns(int64_t first, int64_t count, const float* x, int64_t ldx, int64_t rows, const float* bias,
                        float* y, int64_t ldy) const;

 private:
  Buffer panels_;  // [ceil(out/panel)][in][panel], padded with zeros
  int64_t out_ = 0, in_ = 0;
};

}  // namespace gyre
