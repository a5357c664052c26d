// y = x · W^T with W packed once per update. Every output element is one chain of fused multiply-adds over the inner
// dimension in the same order whatever the number of rows, their place in the batch or the number of threads: the
// row-invariance on which "sampling = training, bit for bit" rests.
#pragma once

#include <cstdint>

#include "kernels/buffer.h"
#include "kernels/isa.h"
#include "kernels/precision.h"
#include "kernels/tile.h"

namespace gyre {

// Columns of W^T in panels: [ceil(out/panel)][depth][panel], padded with zeros. A word of a panel is one number in f32
// and a pair of consecutive inner positions in bf16, the even one in the lower half.
struct Panels {
  const float* data;
  int64_t in;
  Precision precision;

  int64_t depth() const { return precision == Precision::kBfloat16 ? ceil_div(in, 2) : in; }
};

// weight: [out, in] row-major.
GYRE_KERNEL(void, pack_panels, const float* weight, int64_t out, int64_t in, Precision precision, float* panels);
// y[rows, out] (row stride ldy) = x[rows, in] (row stride ldx) · W^T (+ bias[out] when not null).
GYRE_KERNEL(void, multiply_panels, const Panels& panels, int64_t out, const float* x, int64_t ldx, int64_t rows,
            const float* bias, float* y, int64_t ldy);
// The same for x as operands: what the kernel makes of rows first. Rows lie operand_width() floats apart.
GYRE_KERNEL(void, multiply_operands, const Panels& panels, int64_t out, const float* operands, int64_t rows,
            const float* bias, float* y, int64_t ldy);
// Floats of an operand's row of `in` numbers: as many in f32, words of bf16 numbers where the variant multiplies those.
GYRE_KERNEL(int64_t, operand_width, Precision precision, int64_t in);
// y[r] = row columns[r] of W.
GYRE_KERNEL(void, gather_columns, const Panels& panels, const int32_t* columns, int64_t rows, float* y);

class PackedMatrix {
 public:
  PackedMatrix() = default;
  // weight: [out, in] row-major.
  void pack(const float* weight, int64_t out, int64_t in, Precision precision) {
    panels_ = {nullptr, in, precision};
    out_ = out;
    memory_.reserve(ceil_div(out, kPanel) * kPanel * panels_.depth());
    panels_.data = memory_.data();
    pack_panels(weight, out, in, precision, memory_.data());
  }
  bool empty() const { return out_ == 0; }
  int64_t out() const { return out_; }
  const Panels& panels() const { return panels_; }

  void multiply(const float* x, int64_t ldx, int64_t rows, const float* bias, float* y, int64_t ldy) const {
    multiply_panels(panels_, out_, x, ldx, rows, bias, y, ldy);
  }
  void multiply_operands(const float* operands, int64_t rows, const float* bias, float* y, int64_t ldy) const {
    gyre::multiply_operands(panels_, out_, operands, rows, bias, y, ldy);
  }
  // Columns first .. first+count-1 of that; first is a multiple of kPanel.
  void multiply_columns(int64_t first, int64_t count, const float* x, int64_t ldx, int64_t rows, const float* bias,
                        float* y, int64_t ldy) const {
    const Panels part{panels_.data + first * panels_.depth(), panels_.in, panels_.precision};
    multiply_panels(part, count, x, ldx, rows, bias ? bias + first : nullptr, y, ldy);
  }

 private:
  Buffer memory_;
  Panels panels_{nullptr, 0, Precision::kFloat32};
  int64_t out_ = 0;
};

}  // namespace gyre
