#include "fsdp/shard_group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

namespace gyre {

ParameterSet set_of(std::vector<at::Tensor> flats) {
  ParameterSet set;
  set.root.flat_P = std::move(flats[0]);
  for (size_t k = 1; k < flats.size(); ++k) set.blocks.emplace_back().flat_P = std::move(flats[k]);
  return set;
}

ShardGroup::ShardGroup(const Backend& inner, const ModelConfig& config, const Sharding& sharding)
    : inner_(inner),
      sharding_(sharding),
      map_(lay_out(config, [&](int64_t count) { return hollow(inner, count); }),
           (sharding.group == nullptr ? 1 : sharding.group->size()) / sharding.replicas, inner.dot_block()) {
  const int rank = sharding.group == nullptr ? 0 : sharding.group->rank();
  shard_ = rank % map_.shards();
  replica_ = rank / map_.shards();
}

at::Tensor ShardGroup::hollow(const Backend& inner, int64_t count) {
  const at::TensorOptions options = inner.make_flat(0).options();
  c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(count) * sizeof(float),
                       c10::DataPtr(nullptr, options.device()), nullptr, false);
  return at::empty({0}, options).set_(storage, 0, {count}, {1});
}

at::Tensor ShardGroup::take(int64_t count) {
  const auto found = std::ranges::find_if(spare_, [&](const at::Tensor& t) { return t.numel() == count; });
  if (found == spare_.end()) return at::empty({count}, inner_.make_flat(0).options());
  at::Tensor buffer = std::move(*found);
  spare_.erase(found);
  return buffer;
}

void ShardGroup::give(at::Tensor buffer) {
  if (buffer.defined()) spare_.push_back(std::move(buffer));
}

Group::Exchange ShardGroup::exchange(const char* what, Cargo cargo, const std::vector<at::Tensor>& to,
                                     const std::vector<at::Tensor>& from, bool between_replicas) const {
  if (sharding_.group == nullptr) return {};
  const auto n = static_cast<size_t>(size());
  std::vector<at::Tensor> to_all(n), from_all(n);
  for (size_t i = 0; i < to.size(); ++i) {
    const int k = static_cast<int>(i),
              rank = between_replicas ? k * map_.shards() + shard_ : replica_ * map_.shards() + k;
    if (rank == sharding_.group->rank()) continue;  // what stays here needs no copy
    to_all[static_cast<size_t>(rank)] = to[i];
    from_all[static_cast<size_t>(rank)] = from[i];
  }
  return sharding_.group->exchange(what, cargo, to_all, from_all);
}

ShardGroup::Gather::Gather(ShardGroup& group, size_t flat, const at::Tensor& own, at::Tensor whole)
    : whole_(std::move(whole)) {
  const int shards = group.map().shards();
  at::Tensor mine = group.piece(whole_, flat, group.shard());
  if (!mine.is_alias_of(own)) mine.copy_(own);
  at::Tensor out = mine, into = whole_;
  if (group.sharding().narrow) {
    out = mine.to(at::kBFloat16);
    into = narrow_ = at::empty(whole_.sizes(), whole_.options().dtype(at::kBFloat16));
    group.piece(narrow_, flat, group.shard()).copy_(out);  // what the others read of it
  }
  std::vector<at::Tensor> from;
  for (int p = 0; p < shards; ++p) from.push_back(group.piece(into, flat, p));
  exchange_ = group.exchange("gathering weights", Cargo::kWeights,
                             std::vector<at::Tensor>(static_cast<size_t>(shards), out), from);
}

at::Tensor ShardGroup::Gather::wait() {
  exchange_.wait();
  if (narrow_.defined()) whole_.copy_(std::exchange(narrow_, {}));
  return whole_;
}

void ShardGroup::gather_all(const std::vector<at::Tensor>& own, const std::vector<at::Tensor>& whole) {
  std::optional<Gather> before;
  for (size_t flat = 0; flat < whole.size(); ++flat) {
    Gather now(*this, flat, own[flat], whole[flat]);
    if (before.has_value()) before->wait();
    before.emplace(std::move(now));
  }
  before->wait();
}

ShardGroup::Reduce::Reduce(ShardGroup& group, size_t flat, const at::Tensor& whole) : group_(&group) {
  const bool narrow = group.sharding().narrow;
  std::vector<at::Tensor> to;
  for (int p = 0; p < group.map().shards(); ++p) {
    const at::Tensor piece = group.piece(whole, flat, p);
    if (p == group.shard()) {
      rows_.push_back(piece);
    } else {
      rows_.push_back(narrow ? at::empty({group.count(flat)}, whole.options().dtype(at::kBFloat16))
                             : group.take(group.count(flat)));
      if (!narrow) borrowed_.push_back(rows_.back());
    }
    to.push_back(narrow ? piece.to(at::kBFloat16) : piece);
  }
  exchange_ = group.exchange("reducing gradients", Cargo::kGradients, to, rows_);
}

ShardGroup::Reduce::~Reduce() {
  for (at::Tensor& buffer : borrowed_) group_->give(std::move(buffer));
}

at::Tensor ShardGroup::Reduce::wait() {
  exchange_.wait();
  for (at::Tensor& row : rows_) row = row.to(at::kFloat);
  group_->add_rows(rows_);
  const int replicas = group_->sharding().replicas;
  if (replicas == 1) return rows_[0];
  std::vector<at::Tensor> sums;
  for (int r = 0; r < replicas; ++r) sums.push_back(r == group_->replica_ ? rows_[0] : at::empty_like(rows_[0]));
  group_
      ->exchange("adding gradients of replicas", Cargo::kGradients, std::vector<at::Tensor>(sums.size(), rows_[0]),
                 sums, true)
      .wait();
  group_->add_rows(sums);
  return sums[0];
}

void ShardGroup::add_rows(std::span<const at::Tensor> rows) const {
  combine_tree(rows.size(), [&](size_t a, size_t b) {
    ParameterSet sum = only(rows[a]);
    inner_.add(sum, only(rows[b]), 1);
  });
}

std::vector<bool> ShardGroup::any(const std::vector<bool>& mine) const {
  if (sharding_.group == nullptr) return mine;
  std::vector<double> values(mine.begin(), mine.end());
  sharding_.group->all_reduce(values, Reduction::kMax);
  return {values.begin(), values.end()};
}

void ShardGroup::sum_runs(std::span<const double> numbers, size_t rows, std::span<double> sums) const {
  std::vector<std::string> all;  // of every rank
  const std::string_view mine(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
  if (sharding_.group == nullptr) {
    all.emplace_back(mine);
  } else {
    all = sharding_.group->all_gather(mine);
  }
  const auto shards = static_cast<size_t>(map_.shards());  // the first replica's: the others' are the same
  std::vector<std::vector<double>> of_shard(shards);
  std::vector<size_t> next(shards);
  for (size_t p = 0; p < shards; ++p) {
    of_shard[p].resize(all[p].size() / sizeof(double));
    std::memcpy(of_shard[p].data(), all[p].data(), all[p].size());
  }
  std::ranges::fill(sums, 0.0);
  const size_t parameters = sums.size() / rows;
  for (size_t flat = 0; flat < map_.flats(); ++flat) {
    for (const ShardRun& run : map_.runs(flat)) {
      const auto p = static_cast<size_t>(run.shard);
      const size_t runs = of_shard[p].size() / rows, at = next[p]++;
      for (size_t row = 0; row < rows; ++row) sums[row * parameters + run.parameter] += of_shard[p][row * runs + at];
    }
  }
}

}  // namespace gyre
