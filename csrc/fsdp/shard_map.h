// Which rank holds which shard of a set's flat storages.
//
// Every flat storage (root, blocks) is cut into as many shards as there are ranks, of about the same size. Cuts lie
// only where a backend's products() begins a new run of entries (a parameter's first entry, and every block after it),
// so that each of its partial sums is one rank's: collected and added in order they give the bits that one process has.
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameters.h"

namespace gyre {

// Entries first .. first + count - 1 of a named parameter, which lie together in one shard.
struct ShardRun {
  size_t parameter;
  int64_t first, count;
  int64_t at;  // of the first in the flat storage
  int shard;
};

class ShardMap {
 public:
  // `block`: entries that products() adds up before it goes on; 0: it has no such order, and a run is as long as it can
  // be.
  ShardMap(const ParameterSet& shape, int shards, int64_t block);

  int shards() const { return shards_; }
  size_t flats() const { return flats_.size(); }
  int64_t size(size_t flat) const { return flats_[flat].cuts.back(); }
  int64_t begin(size_t flat, int shard) const { return flats_[flat].cuts[static_cast<size_t>(shard)]; }
  int64_t count(size_t flat, int shard) const { return begin(flat, shard + 1) - begin(flat, shard); }
  // All runs in the order of their entries.
  const std::vector<ShardRun>& runs(size_t flat) const { return flats_[flat].runs; }

  // What a shard holds of a parameter: its runs lie together.
  struct Range {
    int64_t first = 0, count = 0;
    size_t flat = 0;
    int64_t at = 0;
  };
  Range held(size_t parameter, int shard) const;

 private:
  struct Flat {
    std::vector<int64_t> cuts;  // shards + 1
    std::vector<ShardRun> runs;
  };
  int shards_;
  std::vector<Flat> flats_;
  std::vector<size_t> flat_of_;  // by parameter
};

}  // namespace gyre
