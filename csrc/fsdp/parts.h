// Sets of parameters of which this rank holds a part, and how the rest comes and goes.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fsdp/shard_map.h"
#include "fsdp/sharding.h"

namespace gyre {

// What all sets of a model share: who holds what, and memory for what is under way.
class Ranks {
 public:
  Ranks(const Backend& inner, const ModelConfig& config, const Sharding& sharding);

  const Backend& inner() const { return inner_; }
  const Sharding& sharding() const { return sharding_; }
  const ShardMap& map() const { return map_; }
  int part() const { return part_; }  // this rank's
  int replica() const { return replica_; }
  int64_t begin(size_t flat) const { return map_.begin(flat, part_); }
  int64_t count(size_t flat) const { return map_.count(flat, part_); }

  // A flat storage that has no memory until some is lent to it.
  static at::Tensor hollow(const Backend& inner, int64_t count);
  // A part of a whole flat storage.
  at::Tensor piece(const at::Tensor& whole, size_t flat, int part) const {
    return whole.narrow(0, map_.begin(flat, part), map_.count(flat, part));
  }
  // Storage for a flat that is wanted for a moment, of any contents; goes back with give().
  at::Tensor take(int64_t count);
  void give(at::Tensor buffer);
  void free_buffers() { spare_.clear(); }

  // Sends own parts of one flat to the ranks of this replica, and theirs into the whole.
  class Gather {
   public:
    Gather() = default;
    Gather(Ranks& ranks, size_t flat, const at::Tensor& own, at::Tensor whole);
    // The whole, when all of it has come.
    at::Tensor wait();

   private:
    at::Tensor whole_, narrow_;
    Group::Exchange exchange_;
  };

  // Sends the other ranks' parts of a flat's gradient to them, and adds what they send.
  class Reduce {
   public:
    Reduce(Ranks& ranks, size_t flat, const at::Tensor& whole);
    // The sum over all ranks of this rank's part; may be a view of the whole, whose other parts may now be overwritten.
    at::Tensor wait();
    Reduce(Reduce&&) = default;
    ~Reduce();

   private:
    Ranks* ranks_;
    std::vector<at::Tensor> rows_, borrowed_;
    Group::Exchange exchange_;
  };

  // Own parts of all flats to every rank of this replica.
  void gather_all(const std::vector<at::Tensor>& own, const std::vector<at::Tensor>& whole);
  // Adds rows in the tree; the sum is in the first.
  void add_rows(std::span<const at::Tensor> rows) const;
  // Collects every run's number from the ranks that hold them, and adds them by parameter: numbers[row * runs of this
  // rank + run] to sums[row * parameters + parameter].
  void sum_runs(std::span<const double> numbers, size_t rows, std::span<double> sums) const;
  // Which of these any rank says.
  std::vector<bool> any(const std::vector<bool>& mine) const;

  // Starts an exchange with the ranks of this replica (parts) or those that hold the same part in the others.
  Group::Exchange exchange(const char* what, Cargo cargo, const std::vector<at::Tensor>& to,
                           const std::vector<at::Tensor>& from, bool between_replicas = false) const;

 private:
  int size() const { return sharding_.group == nullptr ? 1 : sharding_.group->size(); }
  const Backend& inner_;
  Sharding sharding_;
  ShardMap map_;
  int part_, replica_;
  std::vector<at::Tensor> spare_;
};

// A set with one flat storage, for arithmetic on it.
ParameterSet only(at::Tensor flat);

class Part : public Residence {
 public:
  explicit Part(Ranks& ranks) : ranks_(ranks) {}
  void enter(int64_t) override {}
  void leave(int64_t) override {}
  // What was added here becomes the sum over all ranks in every rank's own part.
  virtual void settle() {}
  virtual bool unsettled() const { return false; }
  // Whether it is never summed over ranks.
  virtual bool alone() const { return false; }
  virtual void begin_lane(int lane);
  HeldPart held(size_t parameter, const at::Tensor& value) const;
  // Back to zeros, or whatever it is now in the own part alone.
  virtual void zero() = 0;

  // This rank's part of every flat, with the runs that it holds as named tensors.
  const ParameterSet& own() const { return own_; }
  ParameterSet& own() { return own_; }
  // All flats whole, where they are here all the time.
  const std::vector<at::Tensor>& whole() const { return whole_; }

 protected:
  // Own parts: views of whole storages, or storage of their own.
  void view(const std::vector<at::Tensor>& whole);
  void allocate();
  void name_runs();

  Ranks& ranks_;
  ParameterSet own_;
  std::vector<at::Tensor> whole_;
};

// Whole parameters, or moments (whole or a part).
class StillPart : public Part {
 public:
  StillPart(Ranks& ranks, const std::vector<at::Tensor>& whole) : Part(ranks) { view(whole); }
  explicit StillPart(Ranks& ranks) : Part(ranks) { allocate(); }
  bool always_here() const override { return true; }
  void zero() override;
};

// Weights of which only a part is here until a pass wants them.
class GatheredPart : public Part {
 public:
  GatheredPart(Ranks& ranks, const std::vector<at::Tensor>& hollow);
  void enter(int64_t unit) override;
  void leave(int64_t unit) override;
  void rest() override;
  void let_go() override;
  void zero() override;

 private:
  void begin(size_t flat);
  void drop(size_t flat);

  struct Flat {
    at::Tensor hollow;  // the set's storage, without memory of its own
    std::optional<Ranks::Gather> coming;
    at::Tensor here;  // the memory, when it is here
  };
  std::vector<Flat> all_;
  int64_t last_ = -1, direction_ = 1, kept_ = -1;
};

// Gradients of which a part is here: a block's whole gradient is there while a pass adds to it, then it goes to its
// owners.
class EagerPart : public Part {
 public:
  EagerPart(Ranks& ranks, std::vector<at::Tensor> hollow);
  void enter(int64_t unit) override;
  void leave(int64_t unit) override;
  void rest() override;
  void zero() override;

 private:
  void finish();

  struct Leaving {
    size_t flat;
    at::Tensor buffer;
    Ranks::Reduce reduce;
  };
  std::vector<at::Tensor> hollow_, here_;
  std::optional<Leaving> leaving_;
};

// Whole gradients of this rank's passes that stay its own.
class OwnPart : public Part {
 public:
  OwnPart(Ranks& ranks, const std::vector<at::Tensor>& whole) : Part(ranks) { view(whole); }
  bool alone() const override { return true; }
  void zero() override;
};

// Whole gradients of this rank's passes, which become sums over all ranks when they are looked at. With lanes, finished
// ones wait beside, those of neighbours added up.
class LocalPart : public Part {
 public:
  LocalPart(Ranks& ranks, const std::vector<at::Tensor>& whole);
  void enter(int64_t) override {
    reopen();
    unsettled_ = true;
  }
  void begin_lane(int lane) override;
  // Sums stay sums; with anything else it is one rank's share of a sum to be.
  void add(const LocalPart& from, float scale);
  void add(const OwnPart& from, float scale);
  void settle() override;
  bool unsettled() const override { return unsettled_ || !nodes_.empty(); }
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
