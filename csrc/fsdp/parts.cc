#include "fsdp/parts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <string>
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

ParameterSet set_of(std::vector<at::Tensor> flats) {
  ParameterSet set;
  set.root.flat_P = std::move(flats[0]);
  for (size_t k = 1; k < flats.size(); ++k) set.blocks.emplace_back().flat_P = std::move(flats[k]);
  return set;
}

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

ParameterSet only(at::Tensor flat) { return set_of({std::move(flat)}); }

// ---- what all sets share ----

Ranks::Ranks(const Backend& inner, const ModelConfig& config, const Sharding& sharding)
    : inner_(inner),
      sharding_(sharding),
      map_(lay_out(config, [&](int64_t count) { return hollow(inner, count); }),
           (sharding.group == nullptr ? 1 : sharding.group->size()) / sharding.replicas, inner.dot_block()) {
  const int rank = sharding.group == nullptr ? 0 : sharding.group->rank();
  part_ = rank % map_.parts();
  replica_ = rank / map_.parts();
}

at::Tensor Ranks::hollow(const Backend& inner, int64_t count) {
  const at::TensorOptions options = inner.make_flat(0).options();
  c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(count) * sizeof(float),
                       c10::DataPtr(nullptr, options.device()), nullptr, false);
  return at::empty({0}, options).set_(storage, 0, {count}, {1});
}

at::Tensor Ranks::take(int64_t count) {
  const auto found = std::ranges::find_if(spare_, [&](const at::Tensor& t) { return t.numel() == count; });
  if (found == spare_.end()) return at::empty({count}, inner_.make_flat(0).options());
  at::Tensor buffer = std::move(*found);
  spare_.erase(found);
  return buffer;
}

void Ranks::give(at::Tensor buffer) {
  if (buffer.defined()) spare_.push_back(std::move(buffer));
}

Group::Exchange Ranks::exchange(const char* what, Cargo cargo, const std::vector<at::Tensor>& to,
                                const std::vector<at::Tensor>& from, bool between_replicas) const {
  if (sharding_.group == nullptr) return {};
  const auto n = static_cast<size_t>(size());
  std::vector<at::Tensor> to_all(n), from_all(n);
  for (size_t i = 0; i < to.size(); ++i) {
    const int k = static_cast<int>(i), rank = between_replicas ? k * map_.parts() + part_ : replica_ * map_.parts() + k;
    if (rank == sharding_.group->rank()) continue;  // what stays here needs no copy
    to_all[static_cast<size_t>(rank)] = to[i];
    from_all[static_cast<size_t>(rank)] = from[i];
  }
  return sharding_.group->exchange(what, cargo, to_all, from_all);
}

Ranks::Gather::Gather(Ranks& ranks, size_t flat, const at::Tensor& own, at::Tensor whole) : whole_(std::move(whole)) {
  const int parts = ranks.map().parts();
  at::Tensor mine = ranks.piece(whole_, flat, ranks.part());
  if (!mine.is_alias_of(own)) mine.copy_(own);
  at::Tensor out = mine, into = whole_;
  if (ranks.sharding().narrow) {
    out = mine.to(at::kBFloat16);
    into = narrow_ = at::empty(whole_.sizes(), whole_.options().dtype(at::kBFloat16));
    ranks.piece(narrow_, flat, ranks.part()).copy_(out);  // what the others read of it
  }
  std::vector<at::Tensor> from;
  for (int p = 0; p < parts; ++p) from.push_back(ranks.piece(into, flat, p));
  exchange_ = ranks.exchange("gathering weights", Cargo::kWeights,
                             std::vector<at::Tensor>(static_cast<size_t>(parts), out), from);
}

at::Tensor Ranks::Gather::wait() {
  exchange_.wait();
  if (narrow_.defined()) whole_.copy_(std::exchange(narrow_, {}));
  return whole_;
}

void Ranks::gather_all(const std::vector<at::Tensor>& own, const std::vector<at::Tensor>& whole) {
  std::optional<Gather> before;
  for (size_t flat = 0; flat < whole.size(); ++flat) {
    Gather now(*this, flat, own[flat], whole[flat]);
    if (before.has_value()) before->wait();
    before.emplace(std::move(now));
  }
  before->wait();
}

Ranks::Reduce::Reduce(Ranks& ranks, size_t flat, const at::Tensor& whole) : ranks_(&ranks) {
  const bool narrow = ranks.sharding().narrow;
  std::vector<at::Tensor> to;
  for (int p = 0; p < ranks.map().parts(); ++p) {
    const at::Tensor piece = ranks.piece(whole, flat, p);
    if (p == ranks.part()) {
      rows_.push_back(piece);
    } else {
      rows_.push_back(narrow ? at::empty({ranks.count(flat)}, whole.options().dtype(at::kBFloat16))
                             : ranks.take(ranks.count(flat)));
      if (!narrow) borrowed_.push_back(rows_.back());
    }
    to.push_back(narrow ? piece.to(at::kBFloat16) : piece);
  }
  exchange_ = ranks.exchange("reducing gradients", Cargo::kGradients, to, rows_);
}

Ranks::Reduce::~Reduce() {
  for (at::Tensor& buffer : borrowed_) ranks_->give(std::move(buffer));
}

at::Tensor Ranks::Reduce::wait() {
  exchange_.wait();
  for (at::Tensor& row : rows_) row = row.to(at::kFloat);
  ranks_->add_rows(rows_);
  const int replicas = ranks_->sharding().replicas;
  if (replicas == 1) return rows_[0];
  std::vector<at::Tensor> sums;
  for (int r = 0; r < replicas; ++r) sums.push_back(r == ranks_->replica_ ? rows_[0] : at::empty_like(rows_[0]));
  ranks_
      ->exchange("adding gradients of replicas", Cargo::kGradients, std::vector<at::Tensor>(sums.size(), rows_[0]),
                 sums, true)
      .wait();
  ranks_->add_rows(sums);
  return sums[0];
}

void Ranks::add_rows(std::span<const at::Tensor> rows) const {
  combine_tree(rows.size(), [&](size_t a, size_t b) {
    ParameterSet sum = only(rows[a]);
    inner_.add(sum, only(rows[b]), 1);
  });
}

std::vector<bool> Ranks::any(const std::vector<bool>& mine) const {
  if (sharding_.group == nullptr) return mine;
  std::vector<double> values(mine.begin(), mine.end());
  sharding_.group->all_reduce(values, Reduction::kMax);
  return {values.begin(), values.end()};
}

void Ranks::sum_runs(std::span<const double> numbers, size_t rows, std::span<double> sums) const {
  std::vector<std::string> all;  // of every rank
  const std::string_view mine(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
  if (sharding_.group == nullptr) {
    all.emplace_back(mine);
  } else {
    all = sharding_.group->all_gather(mine);
  }
  const auto parts = static_cast<size_t>(map_.parts());  // the first replica's: the others' are the same
  std::vector<std::vector<double>> of_part(parts);
  std::vector<size_t> next(parts);
  for (size_t p = 0; p < parts; ++p) {
    of_part[p].resize(all[p].size() / sizeof(double));
    std::memcpy(of_part[p].data(), all[p].data(), all[p].size());
  }
  std::ranges::fill(sums, 0.0);
  const size_t parameters = sums.size() / rows;
  for (size_t flat = 0; flat < map_.flats(); ++flat) {
    for (const ShardRun& run : map_.runs(flat)) {
      const auto p = static_cast<size_t>(run.part);
      const size_t runs = of_part[p].size() / rows, at = next[p]++;
      for (size_t row = 0; row < rows; ++row) sums[row * parameters + run.parameter] += of_part[p][row * runs + at];
    }
  }
}

// ---- parts ----

void Part::view(const std::vector<at::Tensor>& whole) {
  whole_ = whole;
  std::vector<at::Tensor> own;
  for (size_t k = 0; k < whole.size(); ++k) own.push_back(ranks_.piece(whole[k], k, ranks_.part()));
  own_ = set_of(std::move(own));
  name_runs();
}

void Part::allocate() {
  std::vector<at::Tensor> own;
  for (size_t k = 0; k < ranks_.map().flats(); ++k) own.push_back(ranks_.inner().make_flat(ranks_.count(k)));
  own_ = set_of(std::move(own));
  name_runs();
}

void Part::name_runs() {
  const std::vector<at::Tensor> own = own_.flats();
  for (size_t k = 0; k < own.size(); ++k) {
    for (const ShardRun& run : ranks_.map().runs(k)) {
      if (run.part == ranks_.part()) own_.named.push_back({"", own[k].narrow(0, run.at - ranks_.begin(k), run.count)});
    }
  }
}

void Part::begin_lane(int) {
  throw std::invalid_argument("gradients: lanes need a model that was made for deterministic sums");
}

HeldPart Part::held(size_t parameter, const at::Tensor& value) const {
  const ShardMap::Range range = ranks_.map().held(parameter, ranks_.part());
  const int64_t writes = ranks_.replica() == 0 ? range.count : 0;
  if (!whole_.empty()) return {value.view({-1}), 0, range.first, writes};
  const at::Tensor own = own_.flats()[range.flat];
  const int64_t at = range.count == 0 ? 0 : range.at - ranks_.begin(range.flat);
  return {own.narrow(0, at, range.count), range.first, range.first, writes};
}

void StillPart::zero() {
  ParameterSet all = whole_.empty() ? own_ : set_of(whole_);
  ranks_.inner().zero(all);
}

GatheredPart::GatheredPart(Ranks& ranks, const std::vector<at::Tensor>& hollow) : Part(ranks) {
  for (const at::Tensor& flat : hollow) all_.push_back({flat, {}, {}});
  allocate();
}

void GatheredPart::begin(size_t flat) {
  Flat& f = all_[flat];
  if (f.here.defined() || f.coming.has_value()) return;
  f.coming.emplace(ranks_, flat, own_.flats()[flat], ranks_.take(f.hollow.numel()));
}

void GatheredPart::drop(size_t flat) {
  Flat& f = all_[flat];
  if (!f.here.defined()) return;
  take_back(f.hollow);
  ranks_.give(std::exchange(f.here, {}));
}

void GatheredPart::enter(int64_t unit) {
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
  for (int k = 1; k <= ranks_.sharding().prefetch; ++k) {
    const int64_t next = unit + k * direction_;
    if (next >= 0 && next < blocks) begin(flat_of(next));
  }
}

void GatheredPart::leave(int64_t unit) {
  if (unit != kRoot && direction_ > 0 && flat_of(unit) + 1 == all_.size()) {
    kept_ = unit;  // the backward pass begins with it
  } else {
    drop(flat_of(unit));
  }
}

void GatheredPart::rest() {
  for (size_t k = 0; k < all_.size(); ++k) {
    if (all_[k].coming.has_value()) {
      const at::Tensor unused = all_[k].coming->wait();
      all_[k].coming.reset();
      ranks_.give(unused);
    }
    drop(k);
  }
  kept_ = last_ = -1;
  direction_ = 1;
}

void GatheredPart::let_go() {
  rest();
  ranks_.free_buffers();
}

void GatheredPart::zero() { ranks_.inner().zero(own_); }

void OwnPart::zero() {
  ParameterSet all = set_of(whole_);
  ranks_.inner().zero(all);
}

EagerPart::EagerPart(Ranks& ranks, std::vector<at::Tensor> hollow)
    : Part(ranks), hollow_(std::move(hollow)), here_(hollow_.size()) {
  allocate();
}

void EagerPart::enter(int64_t unit) {
  const size_t flat = flat_of(unit);
  if (here_[flat].defined()) return;
  here_[flat] = ranks_.take(hollow_[flat].numel());
  ParameterSet buffer = only(here_[flat]);
  ranks_.inner().zero(buffer);
  lend(hollow_[flat], here_[flat]);
}

void EagerPart::leave(int64_t unit) {
  const size_t flat = flat_of(unit);
  at::Tensor buffer = std::exchange(here_[flat], {});
  take_back(hollow_[flat]);
  finish();
  leaving_.emplace(Leaving{flat, buffer, Ranks::Reduce(ranks_, flat, buffer)});
  if (unit == kRoot || ranks_.sharding().prefetch == 0) finish();
}

void EagerPart::finish() {
  if (!leaving_.has_value()) return;
  ParameterSet own = only(own_.flats()[leaving_->flat]);
  ranks_.inner().add(own, only(leaving_->reduce.wait()), 1);
  ranks_.give(std::move(leaving_->buffer));
  leaving_.reset();
}

void EagerPart::rest() {
  finish();
  for (size_t k = 0; k < hollow_.size(); ++k) {
    if (!here_[k].defined()) continue;
    take_back(hollow_[k]);
    ranks_.give(std::exchange(here_[k], {}));
  }
}

void EagerPart::zero() { ranks_.inner().zero(own_); }

LocalPart::LocalPart(Ranks& ranks, const std::vector<at::Tensor>& whole)
    : Part(ranks), lane_(lanes_of(ranks.sharding()).first) {
  view(whole);
}

void LocalPart::zero() {
  ParameterSet all = set_of(whole_);
  ranks_.inner().zero(all);
  nodes_.clear();
  lane_ = lanes_of(ranks_.sharding()).first;
  unsettled_ = settled_ = false;
}

void LocalPart::reopen() {
  if (std::exchange(settled_, false) && ranks_.replica() > 0) ranks_.inner().zero(own_);
}

void LocalPart::begin_lane(int lane) {
  const Lanes mine = lanes_of(ranks_.sharding());
  if (lane < lane_ || lane >= mine.first + mine.count) {
    throw std::invalid_argument("gradients: lane " + std::to_string(lane) + ", expected " + std::to_string(lane_) +
                                " to " + std::to_string(mine.first + mine.count - 1) +
                                ": those of this rank, in rising order");
  }
  while (lane_ < lane) end_lane();
}

// The lane's gradient joins those before it. A sum that is not defined is zero.
void LocalPart::end_lane() {
  Node node{lane_++, 1, {}};
  if (unsettled_) {
    ParameterSet now = set_of(whole_);
    std::vector<at::Tensor> flats;
    for (const at::Tensor& flat : whole_) flats.push_back(ranks_.inner().make_flat(flat.numel()));
    node.sum = set_of(std::move(flats));
    ranks_.inner().add(node.sum, now, 1);
    ranks_.inner().zero(now);
    unsettled_ = false;
  }
  while (!nodes_.empty() && nodes_.back().lanes == node.lanes && nodes_.back().first % (2 * node.lanes) == 0) {
    Node before = std::move(nodes_.back());
    nodes_.pop_back();
    before.lanes *= 2;
    if (!before.sum.root.flat_P.defined()) {
      before.sum = std::move(node.sum);
    } else if (node.sum.root.flat_P.defined()) {
      ranks_.inner().add(before.sum, node.sum, 1);
    }
    node = std::move(before);
  }
  nodes_.push_back(std::move(node));
}

void LocalPart::settle_lanes() {
  const Sharding& sharding = ranks_.sharding();
  const Lanes mine = lanes_of(sharding);
  while (lane_ < mine.first + mine.count) end_lane();
  lane_ = mine.first;
  const int parts = ranks_.map().parts();
  for (size_t flat = 0; flat < whole_.size(); ++flat) {
    std::vector<at::Tensor> to, from;
    std::vector<std::pair<int, at::Tensor>> rows;  // by first lane
    for (int p = 0; p < parts; ++p) {
      const auto theirs = lane_nodes(p * mine.count, mine.count);
      at::Tensor out =
          at::zeros({static_cast<int64_t>(nodes_.size()), ranks_.map().count(flat, p)}, whole_[flat].options());
      for (size_t k = 0; k < nodes_.size(); ++k) {
        const ParameterSet& sum = nodes_[k].sum;
        if (sum.root.flat_P.defined()) out[static_cast<int64_t>(k)].copy_(ranks_.piece(sum.flats()[flat], flat, p));
      }
      at::Tensor in = p == ranks_.part()
                          ? out
                          : at::empty({static_cast<int64_t>(theirs.size()), ranks_.count(flat)}, out.options());
      for (size_t k = 0; k < theirs.size(); ++k) rows.emplace_back(theirs[k].first, in[static_cast<int64_t>(k)]);
      to.push_back(out);
      from.push_back(in);
    }
    ranks_.exchange("adding gradients of lanes", Cargo::kGradients, to, from).wait();
    std::vector<at::Tensor> lanes(static_cast<size_t>(sharding.lanes));
    for (const auto& [first, row] : rows) lanes[static_cast<size_t>(first)] = row;
    combine_tree(lanes.size(), [&](size_t a, size_t b) {
      if (!lanes[b].defined()) return;  // in the sum that begins at a already
      ParameterSet sum = only(lanes[a]);
      ranks_.inner().add(sum, only(lanes[b]), 1);
    });
    ParameterSet own = only(own_.flats()[flat]);
    ranks_.inner().add(own, only(lanes[0]), 1);
  }
  nodes_.clear();
}

void LocalPart::add(const LocalPart& from, float scale) {
  if (from.settled_ && !unsettled_) {
    ranks_.inner().add(own_, from.own_, scale);
    settled_ = true;
    return;
  }
  enter(kRoot);
  if (from.settled_ && ranks_.replica() > 0) return;  // the first replica's counts
  ParameterSet all = set_of(whole_);
  ranks_.inner().add(all, set_of(from.whole_), scale);
}

void LocalPart::add(const OwnPart& from, float scale) {
  enter(kRoot);
  ParameterSet all = set_of(whole_);
  ranks_.inner().add(all, set_of(from.whole()), scale);
}

void LocalPart::settle() {
  reopen();
  if (ranks_.sharding().deterministic) {
    settle_lanes();
  } else {
    const std::vector<at::Tensor> own = own_.flats();
    std::optional<Ranks::Reduce> before;
    const auto finish = [&](size_t flat) {
      at::Tensor into = own[flat];
      const at::Tensor sum = before->wait();
      if (sum.const_data_ptr() != into.const_data_ptr()) into.copy_(sum);
    };
    for (size_t flat = 0; flat < whole_.size(); ++flat) {
      Ranks::Reduce now(ranks_, flat, whole_[flat]);
      if (before.has_value()) finish(flat - 1);
      before.emplace(std::move(now));
    }
    finish(whole_.size() - 1);
    keep_own();
  }
  unsettled_ = false;
  settled_ = true;
}

void LocalPart::complete() { ranks_.gather_all(own_.flats(), whole_); }

void LocalPart::keep_own() {
  for (size_t flat = 0; flat < whole_.size(); ++flat) {
    for (int p = 0; p < ranks_.map().parts(); ++p) {
      if (p == ranks_.part()) continue;
      ParameterSet other = only(ranks_.piece(whole_[flat], flat, p));
      ranks_.inner().zero(other);
    }
  }
}

}  // namespace gyre
