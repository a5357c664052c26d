// The rows of one forward pass: where each stands in its sequence and in the pages of keys and values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "model/config.h"
#include "model/packing.h"

namespace gyre {

// Consecutive positions of one sequence inside a forward pass of packed rows.
struct RowSpan {
  int64_t row;                     // first row in the pass
  int64_t count;                   // number of rows
  int64_t position;                // position of the first row in its sequence
  std::span<const int32_t> pages;  // page table: pages[i] holds positions [16 i, 16 i + 16); covers position+count
};

struct Pass {
  Pass() = default;
  Pass(Pass&&) = default;  // moving keeps the page tables in place, copying would not
  Pass& operator=(Pass&&) = default;

  int64_t rows = 0, end = 0;       // end: one more than the last position
  std::vector<int32_t> positions;  // one per row
  std::vector<PagedRows> attended, stored;
  std::vector<Segment> segments;  // training only: what backward needs to know of the above

  int64_t num_pages = 0;  // training only: the pages that the pass needs, numbered from 0
  std::vector<int32_t> tables;
};

// Rows of the engine's batch; the spans' page tables must outlive the pass. Throws std::invalid_argument when the spans
// do not cover `rows`, exceed the model's positions, or name pages outside 0 .. num_pages-1.
Pass inference_pass(const ModelConfig& config, int64_t rows, std::span<const RowSpan> spans, int64_t num_pages);

// Whole packed sequences on pages of their own. Full pages of a shared prefix are read by all its branches; where a
// branch leaves in the middle of a page, the page's earlier rows are stored again in the branch's first page.
Pass training_pass(const ModelConfig& config, const Packing& packing);

}  // namespace gyre
