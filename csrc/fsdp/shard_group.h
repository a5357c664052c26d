// What all sharded sets of a model share: who holds what, memory for what is under way, and the exchanges between
// ranks.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "fsdp/shard_map.h"
#include "fsdp/sharding.h"

namespace gyre {

class ShardGroup {
 public:
  ShardGroup(const Backend& inner, const ModelConfig& config, const Sharding& sharding);

  const Backend& inner() const { return inner_; }
  const Sharding& sharding() const { return sharding_; }
  const ShardMap& map() const { return map_; }
  int shard() const { return shard_; }  // this rank's
  int replica() const { return replica_; }
  int64_t begin(size_t flat) const { return map_.begin(flat, shard_); }
  int64_t count(size_t flat) const { return map_.count(flat, shard_); }

  // A flat storage that has no memory until some is lent to it.
  static at::Tensor hollow(const Backend& inner, int64_t count);
  // A shard of a whole flat storage.
  at::Tensor piece(const at::Tensor& whole, size_t flat, int shard) const {
    return whole.narrow(0, map_.begin(flat, shard), map_.count(flat, shard));
  }
  // Storage for a flat that is wanted for a moment, of any contents; goes back with give().
  at::Tensor take(int64_t count);
  void give(at::Tensor buffer);
  void free_buffers() { spare_.clear(); }

  // Sends own shards of one flat to the ranks of this replica, and theirs into the whole.
  class Gather {
   public:
    Gather() = default;
    Gather(ShardGroup& ranks, size_t flat, const at::Tensor& own, at::Tensor whole);
    // The whole, when all of it has come.
    at::Tensor wait();

   private:
    at::Tensor whole_, narrow_;
    Group::Exchange exchange_;
  };

  // Sends the other ranks' shards of a flat's gradient to them, and adds what they send.
  class Reduce {
   public:
    Reduce(ShardGroup& ranks, size_t flat, const at::Tensor& whole);
    // The sum over all ranks of this rank's shard; may be a view of the whole, whose other shards may now be
    // overwritten.
    at::Tensor wait();
    Reduce(Reduce&&) = default;
    ~Reduce();

   private:
    ShardGroup* group_;
    std::vector<at::Tensor> rows_, borrowed_;
    Group::Exchange exchange_;
  };

  // Own shards of all flats to every rank of this replica.
  void gather_all(const std::vector<at::Tensor>& own, const std::vector<at::Tensor>& whole);
  // Adds rows in the tree; the sum is in the first.
  void add_rows(std::span<const at::Tensor> rows) const;
  // Collects every run's number from the ranks that hold them, and adds them by parameter: numbers[row * runs of this
  // rank + run] to sums[row * parameters + parameter].
  void sum_runs(std::span<const double> numbers, size_t rows, std::span<double> sums) const;
  // Adds what the ranks of a replica have sketched of their shards.
  void sum_sketches(std::span<float> sketch) const;
  Group& ranks() const { return ranks_; }

  // Starts an exchange with the ranks of this replica (shards) or those that hold the same shard in the others.
  Group::Exchange exchange(const char* what, gyre_cargo cargo, const std::vector<at::Tensor>& to,
                           const std::vector<at::Tensor>& from, bool between_replicas = false) const;

 private:
  // What the ranks of the first replica bring.
  template <typename T>
  std::vector<std::vector<T>> all_gather(std::span<const T> mine) const;

  const Backend& inner_;
  const Sharding sharding_;
  Group alone_{GroupOptions()};  // where there is no other
  Group& ranks_;
  const ShardMap map_;
  const int shard_, replica_;
  std::vector<at::Tensor> spare_;
};

// A set of these flat storages, for arithmetic on them.
ParameterSet set_of(std::vector<at::Tensor> flats);
inline ParameterSet only(at::Tensor flat) { return set_of({std::move(flat)}); }

}  // namespace gyre
