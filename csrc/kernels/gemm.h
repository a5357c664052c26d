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
  // Of a quantised matrix, which has no data: the numbers are codes times their column's scale, rounded to the
  // precision. Codes lie in panels [ceil(out/panel)][round_up(in, 2)][panel], scales one for each column of a panel.
  const int8_t* codes = nullptr;
  const float* scales = nullptr;
  // Words in a row of the last panel: fewer where the matrix is narrow, that is without padding.
  int64_t tail = kPanel;

  int64_t depth() const { return precision == Precision::kBfloat16 ? ceil_div(in, 2) : in; }
  // From this column on, a multiple of kPanel.
  Panels from(int64_t column) const {
    if (codes == nullptr) return {data + column * depth(), in, precision};
    return {nullptr, in, precision, codes + column * round_up(in, 2), scales + column};
  }
};

// weight: [out, in] row-major. tail as in Panels.
GYRE_KERNEL(void, pack_panels, const float* weight, int64_t out, int64_t in, Precision precision, int64_t tail,
            float* panels);
// Symmetric int8 per row of weight [out, in]: scale = the largest magnitude / 127, codes are rounded to nearest even.
// Zeros after the last row and column.
GYRE_KERNEL(void, quantize_panels, const float* weight, int64_t out, int64_t in, int8_t* codes, float* scales);
// y[rows, out] (row stride ldy) = x[rows, in] (row stride ldx) · W^T (+ bias[out] when not null). ldx = 0: the rows are
// operands, what the kernel makes of rows first (to_operands()), operand_width() floats apart.
GYRE_KERNEL(void, multiply_panels, const Panels& panels, int64_t out, const float* x, int64_t ldx, int64_t rows,
            const float* bias, float* y, int64_t ldy);
// y += the same product: the chain goes on from what is in y.
GYRE_KERNEL(void, add_panels, const Panels& panels, int64_t out, const float* x, int64_t ldx, int64_t rows, float* y,
            int64_t ldy);
// As operands: rows of W from columns first .. first+count-1 of the panels, as they were packed; first is a multiple of
// kPanel.
GYRE_KERNEL(void, unpack_panels, const Panels& panels, int64_t first, int64_t count, float* operands);
// Floats of an operand's row of `in` numbers: as many in f32, words of bf16 numbers where the variant multiplies those.
GYRE_KERNEL(int64_t, operand_width, Precision precision, int64_t in);
// Rows of x as operands; those of f32 are copies.
GYRE_KERNEL(void, to_operands, const float* x, int64_t ldx, int64_t rows, int64_t width, Precision precision,
            float* operands);
// y[r] = row columns[r] of W, which is not quantised.
GYRE_KERNEL(void, gather_columns, const Panels& panels, const int32_t* columns, int64_t rows, float* y);

class PackedMatrix {
 public:
  PackedMatrix() = default;
  // weight: [out, in] row-major. A narrow matrix has no padding, and can only be multiplied.
  void pack(const float* weight, int64_t out, int64_t in, Precision precision, bool narrow = false) {
    panels_ = {nullptr, in, precision};
    out_ = out;
    if (narrow && out % kPanel != 0) panels_.tail = out % kPanel;
    const int64_t columns = round_up(out, kPanel) - kPanel + panels_.tail;
    memory_.reserve(columns * panels_.depth() + kPanel, true);  // the last vector may end behind the last row
    panels_.data = memory_.data();
    pack_panels(weight, out, in, precision, panels_.tail, memory_.data());
  }
  // The same as codes of int8, which take a quarter of the memory in f32, half in bf16.
  void quantize(const float* weight, int64_t out, int64_t in, Precision precision) {
    const int64_t columns = ceil_div(out, kPanel) * kPanel;
    out_ = out;
    memory_.reserve(columns + ceil_div(columns * round_up(in, 2), 4), true);
    float* scales = memory_.data();
    auto* codes = reinterpret_cast<int8_t*>(scales + columns);
    quantize_panels(weight, out, in, codes, scales);
    panels_ = {nullptr, in, precision, codes, scales};
  }
  bool empty() const { return out_ == 0; }
  int64_t out() const { return out_; }
  const Panels& panels() const { return panels_; }

  void multiply(const float* x, int64_t ldx, int64_t rows, const float* bias, float* y, int64_t ldy) const {
    multiply_panels(panels_, out_, x, ldx, rows, bias, y, ldy);
  }
  void add(const float* x, int64_t ldx, int64_t rows, float* y, int64_t ldy) const {
    add_panels(panels_, out_, x, ldx, rows, y, ldy);
  }
  void unpack(int64_t first, int64_t count, float* operands) const { unpack_panels(panels_, first, count, operands); }
  // Columns first .. first+count-1 of that; first is a multiple of kPanel.
  void multiply_columns(int64_t first, int64_t count, const float* x, int64_t ldx, int64_t rows, const float* bias,
                        float* y, int64_t ldy) const {
    multiply_panels(panels_.from(first), count, x, ldx, rows, bias ? bias + first : nullptr, y, ldy);
  }

 private:
  Buffer memory_;
  Panels panels_{nullptr, 0, Precision::kFloat32};
  int64_t out_ = 0;
};

}  // namespace gyre
