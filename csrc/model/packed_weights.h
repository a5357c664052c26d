// Copies of a model's matrices in the layout of the multiply kernel. The engine reads all of them for a few rows at a
// time and keeps them; a training pass has enough rows to pack one block after the other into the same memory.
#pragma once

#include <cstdint>
#include <vector>

#include "model/block.h"
#include "model/config.h"
#include "model/parameters.h"

namespace gyre {

class PackedWeights {
 public:
  // The parameters must outlive this object.
  explicit PackedWeights(const ParameterSet& parameters) : parameters_(parameters) {}

  // The parameters changed.
  void touch() { ++version_; }
  uint64_t version() const { return version_; }

  // Packs all blocks unless that has been done for these parameters.
  void keep_blocks();
  // Frees what keep_blocks() made, and the head's copy.
  void release_blocks();
  // Valid until the next call when the blocks are not kept.
  const PackedBlock& block(size_t i);
  const PackedMatrix& head();
  // Columns first .. first+count-1 of the head are columns `at` and on of `matrix`: of head() while the blocks are
  // kept, otherwise packed for this call and valid until the next.
  struct HeadColumns {
    const PackedMatrix& matrix;
    int64_t at;
  };
  HeadColumns head_columns(int64_t first, int64_t count);

 private:
  const at::Tensor& head_weight() const;

  const ParameterSet& parameters_;
  uint64_t version_ = 1, blocks_version_ = 0, head_version_ = 0;
  std::vector<PackedBlock> blocks_;
  PackedBlock one_;
  PackedMatrix head_, head_part_;
};

}  // namespace gyre
