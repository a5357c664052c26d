// The rows of one forward pass: which of a batch's tokens they are, where each stands in its sequence and in the pages
// of keys and values, and how much work they make.
//
// Tokens with the same whole history have the same keys, values and hidden state, so a prompt that many sequences begin
// with takes part once (prefix sharing as in Hydragen, Juravsky et al. 2024, for training).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/dropout.h"
#include "model/config.h"

namespace gyre {

class Adapter;  // backend/backend.h

// How the rows of a layer attend.
AttentionShape attention_shape(const ModelConfig& config, int64_t layer);

struct Packing {
  std::vector<int32_t> ids;       // token of each row
  std::vector<int64_t> row_of;    // row of each token of the batch
  std::vector<Segment> segments;  // cover the rows in order

  int64_t rows() const { return static_cast<int64_t>(ids.size()); }
};

// Radix tree over token sequences. The sequences must outlive it.
class PrefixTree {
 public:
  int64_t rows() const { return rows_; }
  // Rows that add() would add: the tokens after the longest prefix that is already there.
  int64_t new_rows(std::span<const int32_t> sequence) const;
  void add(std::span<const int32_t> sequence);
  // Rows in depth-first order, branches in the order in which they were added: unrelated sequences lie one after
  // another.
  Packing pack() const;

 private:
  struct Node {
    std::span<const int32_t> ids;
    std::vector<int32_t> children;
  };
  struct Match {
    int32_t node;         // the deepest that the sequence reaches
    size_t used, length;  // how much of that node it shares, and how much of the sequence that makes
  };
  Match match(std::span<const int32_t> sequence) const;
  int32_t child(const Node& node, int32_t id) const;  // -1 when no branch begins with id

  std::vector<Node> nodes_{Node{}};  // the first is the empty root
  std::vector<std::span<const int32_t>> sequences_;
  int64_t rows_ = 0;
};

// All sequences of a batch: sequence s is ids[offsets[s]] .. ids[offsets[s+1]-1].
Packing pack(std::span<const int32_t> ids, std::span<const int64_t> offsets);

// Consecutive positions of one sequence inside a forward pass of packed rows.
struct RowSpan {
  int64_t row;                     // first row in the pass
  int64_t count;                   // number of rows
  int64_t position;                // position of the first row in its sequence
  std::span<const int32_t> pages;  // page table: pages[i] holds positions [16 i, 16 i + 16); covers position+count
  Adapter* adapter = nullptr;      // that the rows pass through; null: the base alone
};

// Consecutive rows that pass through one adapter.
struct AdapterRows {
  Adapter* adapter;
  int64_t first, count;
};

// Adds rows to the last run, or a new one; rows of no adapter are left out.
void join_rows(std::vector<AdapterRows>& runs, Adapter* adapter, int64_t first, int64_t count);

// What a training pass drops of the inputs of its adapter's modules (Srivastava et al. 2014; gyre_dropout).
struct Dropout : gyre_dropout {
  std::vector<uint64_t> histories{};  // of each row: of its token and all before it, so one prompt has one mask

  bool on() const { return probability > 0; }
  // What kept numbers are multiplied by.
  float scale() const { return static_cast<float>(1 / (1 - probability)); }
  // Of one module of a layer.
  DropKey module(int64_t layer, uint32_t target) const;
};
Dropout drop_rows(const Packing& packing, const gyre_dropout& dropout);

struct Pass {
  Pass() = default;
  Pass(Pass&&) = default;  // moving keeps the page tables in place, copying would not
  Pass& operator=(Pass&&) = default;

  int64_t rows = 0, end = 0;       // end: one more than the last position
  std::vector<int32_t> positions;  // one per row
  std::vector<PagedRows> attended, stored;
  std::vector<AdapterRows> adapters;  // in order; the base's rows are in none
  std::vector<Segment> segments;      // training only: what backward needs to know of the above
  Dropout dropout;                    // training only

  int64_t num_pages = 0;  // training only: the pages that the pass needs, numbered from 0
  std::vector<int32_t> tables;
};

// Rows of the engine's batch, which the spans cover; their page tables must outlive the pass.
Pass inference_pass(int64_t rows, std::span<const RowSpan> spans);

// Whole packed sequences on pages of their own. Full pages of a shared prefix are read by all its branches; where a
// branch leaves in the middle of a page, the page's earlier rows are stored again in the branch's first page.
Pass training_pass(const Packing& packing);

// How much has been computed and read, counted from shapes: profiling divides it by time and by what the machine can
// do: arithmetic that was carried out (recomputation included, shared prefixes once) and the least traffic that it
// takes.
gyre_work& operator+=(gyre_work& sum, const gyre_work& work);
gyre_work operator-(const gyre_work& a, const gyre_work& b);
gyre_work operator*(const gyre_work& work, double times);

// All blocks over the rows of a pass; embedding, norms and rotations are not counted.
gyre_work forward_work(const ModelConfig& config, const Pass& pass);
// Its backward pass: each product of the forward has two, and attention computes its scores again.
gyre_work backward_work(const ModelConfig& config, const Pass& pass);
// `rows` rows of logits (or values).
gyre_work head_work(const ModelConfig& config, int64_t rows);

}  // namespace gyre
