#include "fsdp/shard_map.h"

#include <algorithm>

namespace gyre {
namespace {

// Where cuts may lie when products() asks for no place: signs of sketches come 64 together.
constexpr int64_t kGrain = 1024;

struct Placed {
  size_t parameter;
  int64_t at, count;
};

// The parameters whose storage is this one, in the order of their entries.
std::vector<Placed> placed_in(const at::Tensor& flat, const ParameterSet& shape) {
  std::vector<Placed> all;
  for (size_t i = 0; i < shape.named.size(); ++i) {
    const at::Tensor& value = shape.named[i].value;
    if (value.storage().unsafeGetStorageImpl() == flat.storage().unsafeGetStorageImpl()) {
      all.push_back({i, value.storage_offset(), value.numel()});
    }
  }
  std::ranges::sort(all, {}, &Placed::at);
  return all;
}

}  // namespace

ShardMap::ShardMap(const ParameterSet& shape, int shards, int64_t block)
    : shards_(shards), flat_of_(shape.named.size()) {
  const int64_t grain = block > 0 ? block : kGrain;
  for (const at::Tensor& flat : shape.flats()) {
    const std::vector<Placed> placed = placed_in(flat, shape);
    std::vector<int64_t> places;
    for (const Placed& p : placed) {
      flat_of_[p.parameter] = flats_.size();
      for (int64_t at = 0; at < p.count; at += grain) places.push_back(p.at + at);
    }
    places.push_back(flat.numel());
    Flat& f = flats_.emplace_back();
    f.cuts.push_back(0);
    for (int shard = 1; shard < shards; ++shard) {
      const int64_t wanted = flat.numel() / shards * shard;
      auto above = std::ranges::lower_bound(places, wanted);
      if (above != places.begin() && wanted - *(above - 1) < *above - wanted) --above;
      f.cuts.push_back(std::max(*above, f.cuts.back()));
    }
    f.cuts.push_back(flat.numel());
    for (const Placed& p : placed) {
      for (int64_t first = 0; first < p.count;) {
        const int64_t at = p.at + first;
        const auto cut = std::ranges::upper_bound(f.cuts.begin(), f.cuts.end() - 1, at);
        int64_t count = std::min(p.count - first, *cut - at);
        if (block > 0) count = std::min(count, block);
        f.runs.push_back({p.parameter, first, count, at, static_cast<int>(cut - f.cuts.begin()) - 1});
        first += count;
      }
    }
  }
}

ShardMap::Range ShardMap::held(size_t parameter, int shard) const {
  Range range{.first = 0, .count = 0, .flat = flat_of_[parameter], .at = 0};
  for (const ShardRun& run : flats_[range.flat].runs) {
    if (run.parameter != parameter || run.shard != shard) continue;
    if (range.count == 0) range.first = run.first, range.at = run.at;
    range.count += run.count;
  }
  return range;
}

}  // namespace gyre
