// Which rows a batch of sequences needs: tokens with the same whole history have the same keys, values and hidden
// state, so a prompt that many sequences begin with takes part once (prefix sharing as in Hydragen, Juravsky et al.
// 2024, for training).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"

namespace gyre {

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

// All sequences of a batch: sequence s is ids[offsets[s]] .. ids[offsets[s+1]-1]. Throws std::invalid_argument when the
// offsets do not run from 0 to the number of ids without decreasing.
Packing pack(std::span<const int32_t> ids, std::span<const int64_t> offsets);

}  // namespace gyre
