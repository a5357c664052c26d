// The kernels of one variant.
#pragma once

#include <type_traits>

#include "kernels/attention.h"
#include "kernels/dropout.h"
#include "kernels/gemm.h"
#include "kernels/product.h"
#include "kernels/rope.h"
#include "kernels/rowwise.h"
#include "kernels/softmax.h"
#include "kernels/tile.h"

// clang-format off
#define GYRE_ALL_KERNELS(X)                                                                                       \
  X(rms_norm) X(add_rms_norm) X(rms_norm_backward) X(glu) X(glu_backward) X(gather_rows) X(scatter_add_rows)      \
  X(add) X(scale) X(bend_logits) X(bend_backward) X(widen) X(add_column_sums) X(rotate_heads)                     \
  X(rotate_heads_backward) X(add_logits) X(softmax_gradient) X(score_row) X(store_kv) X(attend)                   \
  X(attend_backward) X(multiply_factors) X(dot_pairs) X(pack_panels) X(quantize_panels) X(unpack_panels)          \
  X(multiply_panels) X(add_panels) X(operand_width) X(to_operands) X(gather_columns) X(tile_work) X(drop)         \
  X(drop_operands)
// clang-format on

namespace gyre {

struct Kernels {
#define GYRE_MEMBER(name) std::decay_t<decltype(gyre::name)> name;
  GYRE_ALL_KERNELS(GYRE_MEMBER)
#undef GYRE_MEMBER
};

}  // namespace gyre
