// Causal grouped-query attention on tensors. Rows that start a sequence go through the library's causal kernel (flash
// attention on a GPU); those behind keys of their own past through a masked one; and the single rows of decoding
// sequences through one batched call over their gathered pages.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "model/pass.h"

namespace gyre {

// Keys and values of one layer, [pages * 16, kv_heads, head_dim].
struct LayerPages {
  at::Tensor keys, values;
};

struct RowRange {
  int64_t row, count;
};

// Rows of one pass that are consecutive positions of one sequence, and where their keys are.
struct AttentionRows {
  int64_t row, count, position;
  std::vector<RowRange> keys;  // rows of the pass that hold positions 0 .. position+count-1, in order; empty when paged
  at::Tensor pages_P;          // int64 page table when paged
  // Added to scores, in the type of queries: 0 where a row sees a key, else -inf. Undefined when position is 0: plain
  // causal.
  at::Tensor mask_NS;
  at::Tensor window_NS;  // the same within the model's window; undefined without one
};

// How the rows of a pass attend, the same for all layers.
struct AttentionPlan {
  std::vector<AttentionRows> segments;
  // Decoding rows (R of them, at most P pages each); undefined when there are none. decode_rows_R is undefined too when
  // they are all rows of the pass in order.
  at::Tensor decode_rows_R, decode_pages_RP, decode_mask_R11S, decode_window_R11S;
  at::Tensor slots_N;  // page * 16 + offset where each row's key and value go; undefined when not paged
  at::Tensor order_N;  // row i of the result is row order[i] of the segments'
                       // outputs laid end to end; undefined: itself
};

// For inference: keys in pages. window: of the layers that have one; 0: none has. options: where, and the type of
// queries.
AttentionPlan plan_paged(const Pass& pass, int64_t window, const at::TensorOptions& options);
// A mask of which `seen` (bool) says what is seen: made once, where the library would make one in each layer.
at::Tensor mask_of(const at::Tensor& seen, const at::TensorOptions& options);
// Of keys at positions keys_S, which a row at each of positions_R1 sees within the window.
at::Tensor seen_within(const at::Tensor& keys_S, const at::Tensor& positions_R1, int64_t window);
// For training: keys in the rows of the pass itself. A segment's are put together from slices of its ancestors' rows,
// whose backward pass adds in a fixed order.
AttentionPlan plan_rows(const Pass& pass, int64_t window, const at::TensorOptions& options);

// q: [N, heads, head_dim], k and v: [N, kv_heads, head_dim], after rope. Stores the rows' keys and values when there
// are pages, which is for inference only: nothing is differentiated through them. Returns [N, heads * head_dim].
at::Tensor attend_tensors(const AttentionShape& shape, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionPlan& plan, const std::optional<LayerPages>& pages);

}  // namespace gyre
