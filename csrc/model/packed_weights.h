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
  // Frees what keep_blocks() made.
  void release_blocks();
  // Valid until the next call when the blocks are not kept.
  const PackedBlock& block(size_t i);
  const PackedMatrix& head();

 private:
  const ParameterSet& parameters_;
  uint64_t version_ = 1, blocks_version_ = 0, head_version_ = 0;
  std::vector<PackedBlock> blocks_;
  PackedBlock one_;
  PackedMatrix head_;
};

}  // namespace gyre
