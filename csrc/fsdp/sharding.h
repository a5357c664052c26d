// How a model is sharded over the ranks of a group, and the backend that does it around any other.
//
//   full       parameters, gradients and moments in shards (ZeRO-3, Rajbhandari et al. 2020): a block's weights are
//              gathered before its forward and its backward pass, the next block's on the way meanwhile; its gradient
//              goes to its owners when it is complete
//   optimizer  moments in shards, parameters and gradients whole (ZeRO-1): gradients go to their owners once per step,
//              and the owners' updated parameters come back
//   none       everything whole: owners' sums of gradients come back, and every rank makes the same update
//
// Sums over ranks are in the order of a fixed tree (group.h). With `deterministic` a rank's passes belong to lanes,
// whose gradients are added in one tree over all lanes, whichever rank computed them: the same bits for every number of
// ranks that divides the lanes.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "fsdp/group.h"
#include "gyre.h"

namespace gyre {

using Sharding = gyre_sharding;

// The backend of a configuration, over ranks unless `sharding` is null. Throws std::invalid_argument for settings that
// do not fit each other or the number of ranks.
std::shared_ptr<const Backend> open_backend(const ModelConfig& config, const Sharding* sharding);

// The shard of a sharded set's parameter that this rank holds (in `optimizer` and `none`, of parameters and gradients:
// all of it), flat, and the entries of it that no other rank of its replica writes to a checkpoint.
struct HeldShard {
  at::Tensor values;  // aliases the storage
  gyre_held place;
};
HeldShard held_shard(const ParameterSet& set, int32_t parameter);

// With `deterministic`: what is added to the gradients from now on belongs to this lane, one of those of this rank, in
// rising order.
void begin_lane(ParameterSet& gradients, int lane);
// The first lane of this rank and how many it has; 0 and 1 for a set without lanes.
struct Lanes {
  int first = 0, count = 1;
};
Lanes lanes_of(const Sharding& sharding);

}  // namespace gyre
