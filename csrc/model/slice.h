// What each of several processes has of a model that they sample from together (tensor parallelism): some of the heads,
// of the columns of every product and of the rows of the vocabulary.
//
// Unlike in Megatron-LM (Shoeybi et al. 2019) no product is cut along its inner dimension: every output is made by one
// process over the whole of it and then shown to the others. So the order of additions, and with it every bit, is that
// of one process.
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameters.h"

namespace gyre {

struct Range {
  int64_t first = 0, count = 0;
};

// Of one part. Heads come with the key/value heads that they read; `hidden` are outputs of the two projections back to
// the residual stream, `intermediate` those of gate and up, `expert` and `shared` those of a mixture.
struct Slice {
  Range heads, kv_heads, hidden, intermediate, expert, shared, vocab;
};

class Slicing {
 public:
  // Throws std::invalid_argument, naming the numbers of parts that would do, when heads cannot be divided so.
  Slicing(const ModelConfig& config, int parts);

  int parts() const { return static_cast<int>(slices_.size()); }
  const Slice& operator[](int part) const { return slices_[static_cast<size_t>(part)]; }
  // `each` times the counts of all parts, in order.
  std::vector<int64_t> widths(Range Slice::* of, int64_t each = 1) const;
  // The configuration with the part's heads and intermediate columns.
  ModelConfig config(int part) const;
  // That of a part with the most key/value heads.
  ModelConfig largest() const;
  // A block's tensors for the part: norms as they are, of matrices and biases the part's rows.
  BlockTensors block(const BlockTensors& whole, int part) const;
  // An adapter's modules with the part's columns of their projections, and its tensors: A as it is, of B the part's
  // rows. The embedding's are whole.
  LoraParts modules(int part) const;
  BlockTensors lora(const BlockTensors& whole, int part) const;
  LoraTensors head_lora(const LoraTensors& whole, int part) const;

 private:
  Range outputs(uint32_t target, int part) const;
  LoraTensors lora(const LoraTensors& whole, const std::vector<LoraPart>& modules, int part) const;

  ModelConfig config_;
  std::vector<Slice> slices_;
};

}  // namespace gyre
