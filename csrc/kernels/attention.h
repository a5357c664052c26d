// Causal grouped-query attention over paged keys and values. One kernel for prefill, decode and training: for every
// (row, head) the scores of keys 0 .. position, or of those in a window, then max, exponentials and their sum, then the
// weighted sum of values, each in key order, whatever other rows are in the call.
//
// Layouts of one layer's pages (kPageTokens = 16 positions each), with kPageMargin readable numbers after the last page
// (vector loads run over a row's end):
//              keys                                  values
//   float32    [page][kv_head][head_dim][16]         [page][kv_head][16][head_dim]
//   bfloat16   [page][kv_head][head_dim / 2][16][2]  [page][kv_head][8][head_dim][2]
// Where they are bf16, queries and probabilities are rounded to it before they are multiplied; all sums are f32.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/isa.h"
#include "kernels/precision.h"

namespace gyre {

// Keys and values live in pages of this many consecutive positions (paged attention as in vLLM, Kwon et al. 2023).
inline constexpr int64_t kPageTokens = 16;
inline constexpr int64_t kPageMargin = 32;

// One layer's pages.
struct PageMemory {
  void *keys, *values;
  Precision precision;
};

struct AttentionShape {
  int64_t heads, kv_heads, head_dim;
  int64_t window = 0;  // positions that a row sees, its own among them; 0: all before it
  float scale = 0;     // of scores; 0: 1 / sqrt(head_dim)
  float cap = 0;       // scores become cap · tanh(score / cap) (Gemma 2); 0: they do not

  float score_scale() const { return scale > 0 ? scale : 1.0f / std::sqrt(static_cast<float>(head_dim)); }
  // The first position that a row at `position` sees.
  int64_t first_seen(int64_t position) const { return window > 0 && position >= window ? position + 1 - window : 0; }
};

// Rows row .. row+count-1 are positions position .. position+count-1 of one sequence whose page table is `pages`.
struct PagedRows {
  int64_t row, count, position;
  const int32_t* pages;

  // Pages that hold its keys, those of these rows included.
  int64_t page_count() const { return (position + count + kPageTokens - 1) / kPageTokens; }
};

// Writes k and v rows (kv_heads * head_dim wide, row strides ld_k and ld_v) into the sequences' pages.
GYRE_KERNEL(void, store_kv, const AttentionShape& shape, std::span<const PagedRows> sequences, const float* k,
            int64_t ld_k, const float* v, int64_t ld_v, const PageMemory& pages);

// o[row, heads * head_dim] (row stride ld_o) = attention of q (row stride ld_q) over the keys up to the row's own
// position. logsumexp[row, heads] of the scaled scores is what backward needs; may be null.
GYRE_KERNEL(void, attend, const AttentionShape& shape, std::span<const PagedRows> sequences, const float* q,
            int64_t ld_q, const PageMemory& pages, float* o, int64_t ld_o, float* logsumexp);

// Consecutive positions that the same sequences go through: rows row .. row+count-1 follow the last row of segment
// `parent`, or begin a sequence where that is -1. In a list of segments rows ascend without gaps and all descendants of
// a segment follow it before anything else does.
struct Segment {
  int64_t row, count, position;
  int32_t parent;
};

// Inputs of the backward pass over whole packed sequences.
struct AttentionBackward {
  Precision precision;  // q, k and v are rounded to it first, as store_kv and attend do
  std::span<const Segment> segments;
  const float *q, *k, *v;  // after rope
  int64_t ld_q, ld_k, ld_v;
  const float *o, *d_o, *logsumexp;  // o and d_o share one row stride
  int64_t ld_o;
  float *dq, *dk, *dv;  // overwritten
  int64_t ld_d;         // one row stride for all three
};

// Recomputes the probabilities block by block (FlashAttention-2, Dao 2023). Parallel over parts of the queries and
// key/value heads; each part sums the gradients of the keys that it sees in `partials` (scratch, grown as needed: at
// most 16 times the size of k and v, and less than twice where sequences are short), and these are added up in order.
// Same bits for any threads.
GYRE_KERNEL(void, attend_backward, const AttentionShape& shape, const AttentionBackward& args,
            std::vector<float>& partials);

}  // namespace gyre
