#include "fsdp/sharding.h"

#include <algorithm>
#include <string>
#include <utility>

#include "fsdp/sharded_set.h"

namespace gyre {
namespace {

bool is_own(const ParameterSet& set) { return set.residence == nullptr; }  // see Backend::make_own_gradients

ShardedSet& sharded(const ParameterSet& set) {
  require(!is_own(set), "sharding: a buffer of one rank's own is not a sum over ranks: add it to one");
  return static_cast<ShardedSet&>(*set.residence);
}

class ShardedBackend : public Backend {
 public:
  ShardedBackend(std::unique_ptr<Backend> inner, const ModelConfig& config, const Sharding& sharding)
      : inner_(std::move(inner)), config_(config), group_(*inner_, config_, sharding) {}

  std::string describe() const override {
    static constexpr const char* kNames[] = {"whole", "optimizer state in shards", "in shards"};
    return inner_->describe() + ", " + kNames[static_cast<size_t>(sharding().shard)] + " on " +
           std::to_string(group_.ranks().size()) + " ranks";
  }
  std::unique_ptr<Network> make_network(const ModelConfig& config, const ParameterSet& parameters) const override {
    return inner_->make_network(config, parameters);
  }
  std::unique_ptr<Inference> make_part(const ModelConfig& config, const ParameterSet& parameters,
                                       const ParameterSet* adapter, std::shared_ptr<Peers> peers) const override {
    return inner_->make_part(config, parameters, adapter, std::move(peers));
  }
  std::unique_ptr<KvPages> make_pages(int64_t num_pages) const override { return inner_->make_pages(num_pages); }
  int64_t bytes_per_page() const override { return inner_->bytes_per_page(); }
  at::Tensor make_flat(int64_t count) const override { return inner_->make_flat(count); }
  int64_t product_block() const override { return inner_->product_block(); }

  ParameterSet make_set() const override {
    ParameterSet set = full() ? hollow() : inner_->make_set();
    set.residence = full() ? std::shared_ptr<ShardedSet>(new GatheredSet(group_, set.flats()))
                           : std::make_shared<ResidentSet>(group_, set.flats());
    return set;
  }
  ParameterSet make_gradients() const override {
    ParameterSet set = eager() ? hollow() : inner_->make_set();
    set.residence = eager() ? std::shared_ptr<ShardedSet>(new ReducedSet(group_, set.flats()))
                            : std::make_shared<SummedSet>(group_, set.flats());
    return set;
  }
  ParameterSet make_own_gradients() const override {
    require(!eager(),
            "sharding: one rank's own gradients are kept whole: shard = full needs deterministic sums for it");
    return inner_->make_set();
  }
  ParameterSet make_moments() const override {
    const bool whole = sharding().shard == GYRE_SHARD_NONE;
    ParameterSet set = whole ? inner_->make_set() : hollow();
    set.residence = whole ? std::make_shared<ResidentSet>(group_, set.flats()) : std::make_shared<ResidentSet>(group_);
    return set;
  }

  bool in_step() const override { return full(); }
  int64_t passes(int64_t own) const override {
    double most = static_cast<double>(own);
    if (full()) group_.ranks().all_reduce_max({&most, 1});
    return static_cast<int64_t>(most);
  }

  void zero(ParameterSet& set) const override {
    if (is_own(set)) {
      inner_->zero(set);
    } else {
      sharded(set).zero();
    }
  }

  void add(ParameterSet& to, const ParameterSet& from, float scale) const override {
    ShardedSet& into = sharded(to);
    if (is_own(from)) {
      static_cast<SummedSet&>(into).add_own(from, scale);
      return;
    }
    if (sharding().deterministic) settle({&to, &from});
    if (into.whole().empty() || sharding().deterministic) {
      inner_->add(into.own(), sharded(from).own(), scale);
    } else {
      static_cast<SummedSet&>(into).add(sharded(from), scale);
    }
  }

  void products(std::span<const ParameterSet* const> sets, std::span<double> out) const override {
    settle({sets.begin(), sets.end()});
    std::vector<const ParameterSet*> own;
    for (const ParameterSet* set : sets) own.push_back(&sharded(*set).own());
    const size_t pairs = sets.size() * (sets.size() + 1) / 2;
    std::vector<double> sums(pairs * own[0]->named.size());
    inner_->products(own, sums);
    group_.sum_runs(sums, pairs, out);
  }

  void sketch(const ParameterSet& set, std::span<float> out) const override {
    if (is_own(set)) {
      inner_->sketch(set, out);
      return;
    }
    settle({&set});
    if (sharding().deterministic) {  // entry by entry, as in one process
      SummedSet& local = static_cast<SummedSet&>(sharded(set));
      local.complete();
      inner_->sketch(set, out);
      local.keep_own();
      return;
    }
    const std::vector<SketchRun> whole = sketch_runs(set);
    std::vector<SketchRun> runs;
    size_t next = 0;
    for (size_t flat = 0; flat < group_.map().flats(); ++flat) {
      for (const ShardRun& run : group_.map().runs(flat)) {
        if (run.shard != group_.shard()) continue;
        const SketchRun& of = whole[run.parameter];
        runs.push_back({sharded(set).own().named[next++].value, of.entry + run.first,
                        of.counter + static_cast<uint64_t>(run.first / 64)});
      }
    }
    inner_->sketch_runs_into(runs, out);
    group_.sum_sketches(out);
  }
  void sketch_runs_into(std::span<const SketchRun> runs, std::span<float> out) const override {
    inner_->sketch_runs_into(runs, out);
  }

  void adamw(ParameterSet& parameters, ParameterSet& first, ParameterSet& second, const ParameterSet& gradients,
             const AdamWCoefficients& c) const override {
    settle({&gradients});
    if (sharding().shard == GYRE_SHARD_NONE) {
      SummedSet& local = static_cast<SummedSet&>(sharded(gradients));
      local.complete();
      inner_->adamw(parameters, first, second, gradients, c);
      local.keep_own();
      return;
    }
    ShardedSet& weights = sharded(parameters);
    inner_->adamw(weights.own(), sharded(first).own(), sharded(second).own(), sharded(gradients).own(), c);
    if (!weights.whole().empty()) group_.gather_all(weights.own().flats(), weights.whole());
  }

 private:
  const Sharding& sharding() const { return group_.sharding(); }
  bool full() const { return sharding().shard == GYRE_SHARD_FULL; }
  // Whether gradients go to their owners in the course of a pass.
  bool eager() const { return full() && !sharding().deterministic; }
  ParameterSet hollow() const {
    return lay_out(config_, [&](int64_t count) { return ShardGroup::hollow(*inner_, count); });
  }
  // All ranks settle the same sets.
  void settle(const std::vector<const ParameterSet*>& sets) const {
    if (eager()) return;
    std::vector<double> wanted;
    for (const ParameterSet* set : sets) wanted.push_back(sharded(*set).unsettled() ? 1 : 0);
    group_.ranks().all_reduce_max(wanted);
    for (size_t i = 0; i < sets.size(); ++i) {
      const auto before = sets.begin() + static_cast<ptrdiff_t>(i);
      if (wanted[i] > 0 && std::find(sets.begin(), before, sets[i]) == before) sharded(*sets[i]).settle();
    }
  }

  const std::unique_ptr<Backend> inner_;
  const ModelConfig config_;
  mutable ShardGroup group_;  // keeps memory for what is under way
};

// Refuses settings that do not fit each other or the number of ranks.
void check(const Sharding& s) {
  const int size = s.group == nullptr ? 1 : s.group->size();
  require(s.replicas >= 1 && size % s.replicas == 0, "sharding: replicas is ", s.replicas,
          ", expected a divisor of the ", size, " ranks");
  require(s.prefetch >= 0, "sharding: prefetch is ", s.prefetch, ", expected at least 0");
  if (!s.deterministic) return;
  require(s.lanes >= 1 && s.lanes % size == 0, "sharding: lanes is ", s.lanes, ", expected a multiple of the ", size,
          " ranks (deterministic sums)");
  require(s.replicas == 1, "sharding: deterministic sums need replicas = 1, got ", s.replicas);
  require(!s.bfloat16, "sharding: deterministic sums need float32 between ranks, got bfloat16");
}

}  // namespace

std::shared_ptr<const Backend> open_backend(const ModelConfig& config, const Sharding* sharding) {
  if (sharding == nullptr) return open_backend(config);
  check(*sharding);
  return std::make_shared<ShardedBackend>(open_backend(config), config, *sharding);
}

Lanes lanes_of(const Sharding& s) {
  if (!s.deterministic) return {};
  if (s.group == nullptr) return {.first = 0, .count = s.lanes};
  const int count = s.lanes / s.group->size();
  return {.first = s.group->rank() * count, .count = count};
}

HeldShard held_shard(const ParameterSet& set, int32_t parameter) {
  const at::Tensor& value = set.named[static_cast<size_t>(parameter)].value;
  if (set.residence == nullptr) return {value.view({-1}), {.first = 0, .own_first = 0, .own_count = value.numel()}};
  return sharded(set).held(static_cast<size_t>(parameter), value);
}

void begin_lane(ParameterSet& gradients, int lane) {
  require(gradients.residence != nullptr, "sharding: lanes need a sharded model");
  sharded(gradients).begin_lane(lane);
}

}  // namespace gyre
