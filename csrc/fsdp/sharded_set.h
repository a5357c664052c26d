// Sets of parameters of which this rank holds a shard, and how the rest comes and goes.
#pragma once

#include <optional>
#include <vector>

#include "fsdp/shard_group.h"

namespace gyre {

class ShardedSet : public Residence {
 public:
  explicit ShardedSet(ShardGroup& ranks) : group_(ranks) {}
  void enter(int64_t) override {}
  void leave(int64_t) override {}
  // What was added here becomes the sum over all ranks in every rank's own shard.
  virtual void settle() {}
  virtual bool unsettled() const { return false; }
  // Whether every rank's own shard is of the sum already, or of what all ranks have alike.
  virtual bool settled() const { return true; }
  virtual void begin_lane(int lane);
  HeldShard held(size_t parameter, const at::Tensor& value) const;
  virtual void zero();

  // This rank's shard of every flat, with the runs that it holds as named tensors.
  const ParameterSet& own() const { return own_; }
  ParameterSet& own() { return own_; }
  // All flats whole, where they are here all the time.
  const std::vector<at::Tensor>& whole() const { return whole_; }

 protected:
  // Own shards: views of whole storages, or storage of their own.
  void view(const std::vector<at::Tensor>& whole);
  void allocate();
  void name_runs();

  ShardGroup& group_;
  ParameterSet own_;
  std::vector<at::Tensor> whole_;
};

// Whole parameters, or moments (whole or a shard).
class ResidentSet : public ShardedSet {
 public:
  ResidentSet(ShardGroup& ranks, const std::vector<at::Tensor>& whole) : ShardedSet(ranks) { view(whole); }
  explicit ResidentSet(ShardGroup& ranks) : ShardedSet(ranks) { allocate(); }
  bool always_here() const override { return true; }
};

// Weights of which only a shard is here until a pass wants them.
class GatheredSet : public ShardedSet {
 public:
  GatheredSet(ShardGroup& ranks, const std::vector<at::Tensor>& hollow);
  void enter(int64_t unit) override;
  void leave(int64_t unit) override;
  void rest() override;
  void let_go() override;

 private:
  void begin(size_t flat);
  void drop(size_t flat);

  struct Flat {
    at::Tensor hollow;  // the set's storage, without memory of its own
    std::optional<ShardGroup::Gather> coming;
    at::Tensor here;  // the memory, when it is here
  };
  std::vector<Flat> all_;
  int64_t last_ = -1, direction_ = 1, kept_ = -1;
};

// Gradients of which a shard is here: a block's whole gradient is there while a pass adds to it, then it goes to its
// owners.
class ReducedSet : public ShardedSet {
 public:
  ReducedSet(ShardGroup& ranks, std::vector<at::Tensor> hollow);
  void enter(int64_t unit) override;
  void leave(int64_t unit) override;
  void rest() override;

 private:
  void finish();

  struct Leaving {
    size_t flat;
    at::Tensor buffer;
    ShardGroup::Reduce reduce;
  };
  std::vector<at::Tensor> hollow_, here_;
  std::optional<Leaving> leaving_;
};

// Whole gradients of this rank's passes, which become sums over all ranks when they are looked at. With lanes, finished
// ones wait beside, those of neighbours added up.
class SummedSet : public ShardedSet {
 public:
  SummedSet(ShardGroup& ranks, const std::vector<at::Tensor>& whole);
  void enter(int64_t) override {
    reopen();
    unsettled_ = true;
  }
  void begin_lane(int lane) override;
  // Sums stay sums; with anything else it is one rank's share of a sum to be.
  void add(const ShardedSet& from, float scale);
  // This rank's share of a sum to be.
  void add_own(const ParameterSet& from, float scale);
  void settle() override;
  bool unsettled() const override { return unsettled_ || !nodes_.empty(); }
  bool settled() const override { return settled_; }
  void zero() override;
  // All flats become sums over all ranks; undone by keep_own().
  void complete();
  void keep_own();

 private:
  struct Node {
    int first, lanes;
    ParameterSet sum;
  };
  // What was a sum is added to again: it counts once, not once per replica.
  void reopen();
  void end_lane();
  void settle_lanes();

  bool unsettled_ = false, settled_ = false;
  int lane_;
  std::vector<Node> nodes_;
};

}  // namespace gyre
