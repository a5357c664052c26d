#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "fsdp/sharded_set.h"

namespace gyre {
namespace {

// The runs of lanes that begin_lane() leaves of lanes first .. first + count - 1: neighbours whose tree holds nothing
// else are added up.
std::vector<std::pair<int, int>> lane_nodes(int first, int count) {
  std::vector<std::pair<int, int>> nodes;
  for (int lane = first; lane < first + count; ++lane) {
    nodes.emplace_back(lane, 1);
    while (nodes.size() > 1) {
      auto& [a, n] = nodes[nodes.size() - 2];
      if (n != nodes.back().second || a % (2 * n) != 0) break;
      n *= 2;
      nodes.pop_back();
    }
  }
  return nodes;
}

}  // namespace

SummedSet::SummedSet(ShardGroup& ranks, const std::vector<at::Tensor>& whole)
    : ShardedSet(ranks), lane_(lanes_of(ranks.sharding()).first) {
  view(whole);
}

void SummedSet::zero() {
  ShardedSet::zero();
  nodes_.clear();
  lane_ = lanes_of(group_.sharding()).first;
  unsettled_ = settled_ = false;
}

void SummedSet::reopen() {
  if (std::exchange(settled_, false) && group_.replica() > 0) group_.inner().zero(own_);
}

void SummedSet::begin_lane(int lane) {
  const Lanes mine = lanes_of(group_.sharding());
  require(lane >= lane_ && lane < mine.first + mine.count, "gradients: lane ", lane, ", expected ", lane_, " to ",
          mine.first + mine.count - 1, ": those of this rank, in rising order");
  while (lane_ < lane) end_lane();
}

// The lane's gradient joins those before it. A sum that is not defined is zero.
void SummedSet::end_lane() {
  Node node{lane_++, 1, {}};
  if (unsettled_) {
    ParameterSet now = set_of(whole_);
    std::vector<at::Tensor> flats;
    for (const at::Tensor& flat : whole_) flats.push_back(group_.inner().make_flat(flat.numel()));
    node.sum = set_of(std::move(flats));
    group_.inner().add(node.sum, now, 1);
    group_.inner().zero(now);
    unsettled_ = false;
  }
  while (!nodes_.empty() && nodes_.back().lanes == node.lanes && nodes_.back().first % (2 * node.lanes) == 0) {
    Node before = std::move(nodes_.back());
    nodes_.pop_back();
    before.lanes *= 2;
    if (!before.sum.root.flat_P.defined()) {
      before.sum = std::move(node.sum);
    } else if (node.sum.root.flat_P.defined()) {
      group_.inner().add(before.sum, node.sum, 1);
    }
    node = std::move(before);
  }
  nodes_.push_back(std::move(node));
}

void SummedSet::settle_lanes() {
  const Sharding& sharding = group_.sharding();
  const Lanes mine = lanes_of(sharding);
  while (lane_ < mine.first + mine.count) end_lane();
  lane_ = mine.first;
  const int shards = group_.map().shards();
  for (size_t flat = 0; flat < whole_.size(); ++flat) {
    std::vector<at::Tensor> to, from;
    std::vector<std::pair<int, at::Tensor>> rows;  // by first lane
    for (int p = 0; p < shards; ++p) {
      const auto theirs = lane_nodes(p * mine.count, mine.count);
      at::Tensor out =
          at::zeros({static_cast<int64_t>(nodes_.size()), group_.map().count(flat, p)}, whole_[flat].options());
      for (size_t k = 0; k < nodes_.size(); ++k) {
        const ParameterSet& sum = nodes_[k].sum;
        if (sum.root.flat_P.defined()) out[static_cast<int64_t>(k)].copy_(group_.piece(sum.flats()[flat], flat, p));
      }
      at::Tensor in = p == group_.shard()
                          ? out
                          : at::empty({static_cast<int64_t>(theirs.size()), group_.count(flat)}, out.options());
      for (size_t k = 0; k < theirs.size(); ++k) rows.emplace_back(theirs[k].first, in[static_cast<int64_t>(k)]);
      to.push_back(out);
      from.push_back(in);
    }
    group_.exchange("adding gradients of lanes", GYRE_CARGO_GRADIENTS, to, from).wait();
    std::vector<at::Tensor> lanes(static_cast<size_t>(sharding.lanes));
    for (const auto& [first, row] : rows) lanes[static_cast<size_t>(first)] = row;
    combine_tree(lanes.size(), [&](size_t a, size_t b) {
      if (!lanes[b].defined()) return;  // in the sum that begins at a already
      ParameterSet sum = only(lanes[a]);
      group_.inner().add(sum, only(lanes[b]), 1);
    });
    ParameterSet own = only(own_.flats()[flat]);
    group_.inner().add(own, only(lanes[0]), 1);
  }
  nodes_.clear();
}

void SummedSet::add(const ShardedSet& from, float scale) {
  if (!from.settled()) {
    add_own(set_of(from.whole()), scale);
    return;
  }
  if (!unsettled_) {
    settled_ = true;
  } else if (group_.replica() > 0) {  // the first replica's counts
    return;
  }
  group_.inner().add(own_, from.own(), scale);
}

void SummedSet::add_own(const ParameterSet& from, float scale) {
  enter(kRoot);
  ParameterSet all = set_of(whole_);
  group_.inner().add(all, from, scale);
}

void SummedSet::settle() {
  reopen();
  if (group_.sharding().deterministic) {
    settle_lanes();
  } else {
    const std::vector<at::Tensor> own = own_.flats();
    std::optional<ShardGroup::Reduce> before;
    const auto finish = [&](size_t flat) {
      at::Tensor into = own[flat];
      const at::Tensor sum = before->wait();
      if (sum.const_data_ptr() != into.const_data_ptr()) into.copy_(sum);
    };
    for (size_t flat = 0; flat < whole_.size(); ++flat) {
      ShardGroup::Reduce now(group_, flat, whole_[flat]);
      if (before.has_value()) finish(flat - 1);
      before.emplace(std::move(now));
    }
    finish(whole_.size() - 1);
    keep_own();
  }
  unsettled_ = false;
  settled_ = true;
}

void SummedSet::complete() { group_.gather_all(own_.flats(), whole_); }

void SummedSet::keep_own() {
  for (size_t flat = 0; flat < whole_.size(); ++flat) {
    for (int p = 0; p < group_.map().shards(); ++p) {
      if (p == group_.shard()) continue;
      ParameterSet other = only(group_.piece(whole_[flat], flat, p));
      group_.inner().zero(other);
    }
  }
}

}  // namespace gyre
