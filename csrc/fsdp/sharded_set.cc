#include "fsdp/sharded_set.h"

#include <stdexcept>
#include <utility>

namespace gyre {
namespace {

// Gives a set's storage memory, and takes it away: all views of it see that.
void lend(const at::Tensor& hollow, const at::Tensor& memory) {
  auto* keep = new at::Tensor(memory);
  hollow.storage().set_data_ptr_noswap(c10::DataPtr(
      memory.mutable_data_ptr(), keep, [](void* tensor) { delete static_cast<at::Tensor*>(tensor); }, memory.device()));
}

void take_back(const at::Tensor& hollow) {
  hollow.storage().set_data_ptr_noswap(c10::DataPtr(nullptr, hollow.device()));
}

size_t flat_of(int64_t unit) { return static_cast<size_t>(unit + 1); }  // as in ParameterSet::flats()

}  // namespace

void ShardedSet::view(const std::vector<at::Tensor>& whole) {
  whole_ = whole;
  std::vector<at::Tensor> own;
  for (size_t k = 0; k < whole.size(); ++k) own.push_back(group_.piece(whole[k], k, group_.shard()));
  own_ = set_of(std::move(own));
  name_runs();
}

void ShardedSet::allocate() {
  std::vector<at::Tensor> own;
  for (size_t k = 0; k < group_.map().flats(); ++k) own.push_back(group_.inner().make_flat(group_.count(k)));
  own_ = set_of(std::move(own));
  name_runs();
}

void ShardedSet::name_runs() {
  const std::vector<at::Tensor> own = own_.flats();
  for (size_t k = 0; k < own.size(); ++k) {
    for (const ShardRun& run : group_.map().runs(k)) {
      if (run.shard == group_.shard())
        own_.named.push_back({"", own[k].narrow(0, run.at - group_.begin(k), run.count)});
    }
  }
}

void ShardedSet::begin_lane(int) {
  throw std::invalid_argument("gradients: lanes need a model that was made for deterministic sums");
}

HeldShard ShardedSet::held(size_t parameter, const at::Tensor& value) const {
  const ShardMap::Range range = group_.map().held(parameter, group_.shard());
  const int64_t writes = group_.replica() == 0 ? range.count : 0;
  if (!whole_.empty()) return {value.view({-1}), {0, range.first, writes}};
  const at::Tensor own = own_.flats()[range.flat];
  const int64_t at = range.count == 0 ? 0 : range.at - group_.begin(range.flat);
  return {own.narrow(0, at, range.count), {range.first, range.first, writes}};
}

void ShardedSet::zero() {
  ParameterSet all = whole_.empty() ? own_ : set_of(whole_);
  group_.inner().zero(all);
}

GatheredSet::GatheredSet(ShardGroup& ranks, const std::vector<at::Tensor>& hollow) : ShardedSet(ranks) {
  for (const at::Tensor& flat : hollow) all_.push_back({flat, {}, {}});
  allocate();
}

void GatheredSet::begin(size_t flat) {
  Flat& f = all_[flat];
  if (f.here.defined() || f.coming.has_value()) return;
  f.coming.emplace(group_, flat, own_.flats()[flat], group_.take(f.hollow.numel()));
}

void GatheredSet::drop(size_t flat) {
  Flat& f = all_[flat];
  if (!f.here.defined()) return;
  take_back(f.hollow);
  group_.give(std::exchange(f.here, {}));
}

void GatheredSet::enter(int64_t unit) {
  const auto blocks = static_cast<int64_t>(all_.size()) - 1;
  if (unit != kRoot) {
    if (kept_ == unit) {
      direction_ = -1;
    } else if (unit == 0 && !(direction_ < 0 && last_ == 1)) {
      direction_ = 1;
    }
    if (kept_ >= 0 && kept_ != unit) drop(flat_of(kept_));
    kept_ = -1;
    last_ = unit;
  }
  Flat& f = all_[flat_of(unit)];
  if (!f.here.defined()) {
    begin(flat_of(unit));
    f.here = f.coming->wait();
    f.coming.reset();
    lend(f.hollow, f.here);
  }
  if (unit == kRoot) return;
  for (int k = 1; k <= group_.sharding().prefetch; ++k) {
    const int64_t next = unit + k * direction_;
    if (next >= 0 && next < blocks) begin(flat_of(next));
  }
}

void GatheredSet::leave(int64_t unit) {
  if (unit != kRoot && direction_ > 0 && flat_of(unit) + 1 == all_.size()) {
    kept_ = unit;  // the backward pass begins with it
  } else {
    drop(flat_of(unit));
  }
}

void GatheredSet::rest() {
  for (size_t k = 0; k < all_.size(); ++k) {
    if (all_[k].coming.has_value()) {
      const at::Tensor unused = all_[k].coming->wait();
      all_[k].coming.reset();
      group_.give(unused);
    }
    drop(k);
  }
  kept_ = last_ = -1;
  direction_ = 1;
}

void GatheredSet::let_go() {
  rest();
  group_.free_buffers();
}

ReducedSet::ReducedSet(ShardGroup& ranks, std::vector<at::Tensor> hollow)
    : ShardedSet(ranks), hollow_(std::move(hollow)), here_(hollow_.size()) {
  allocate();
}

void ReducedSet::enter(int64_t unit) {
  const size_t flat = flat_of(unit);
  if (here_[flat].defined()) return;
  here_[flat] = group_.take(hollow_[flat].numel());
  ParameterSet buffer = only(here_[flat]);
  group_.inner().zero(buffer);
  lend(hollow_[flat], here_[flat]);
}

void ReducedSet::leave(int64_t unit) {
  const size_t flat = flat_of(unit);
  at::Tensor buffer = std::exchange(here_[flat], {});
  take_back(hollow_[flat]);
  finish();
  leaving_.emplace(Leaving{flat, buffer, ShardGroup::Reduce(group_, flat, buffer)});
  if (unit == kRoot || group_.sharding().prefetch == 0) finish();
}

void ReducedSet::finish() {
  if (!leaving_.has_value()) return;
  ParameterSet own = only(own_.flats()[leaving_->flat]);
  group_.inner().add(own, only(leaving_->reduce.wait()), 1);
  group_.give(std::move(leaving_->buffer));
  leaving_.reset();
}

void ReducedSet::rest() {
  finish();
  for (size_t k = 0; k < hollow_.size(); ++k) {
    if (!here_[k].defined()) continue;
    take_back(hollow_[k]);
    group_.give(std::exchange(here_[k], {}));
  }
}

}  // namespace gyre
