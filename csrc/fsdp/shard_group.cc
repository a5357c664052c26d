#include "fsdp/shard_group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstring>
#include <functional>
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
      ranks_(sharding.group == nullptr ? alone_ : *sharding.group),
      map_(lay_out(config, [&](int64_t count) { return hollow(inner, count); }), ranks_.size() / sharding.replicas,
           inner.product_block()),
      shard_(ranks_.rank() % map_.shards()),
      replica_(ranks_.rank() / map_.shards()) {}

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

Group::Exchange ShardGroup::exchange(const char* what, gyre_cargo cargo, const std::vector<at::Tensor>& to,
                                     const std::vector<at::Tensor>& from, bool between_replicas) const {
  const auto n = static_cast<size_t>(ranks_.size());
  std::vector<at::Tensor> to_all(n), from_all(n);
  for (size_t i = 0; i < to.size(); ++i) {
    const int k = static_cast<int>(i);
    const int rank = between_replicas ? k * map_.shards() + shard_ : replica_ * map_.shards() + k;
    if (rank == ranks_.rank()) continue;  // what stays here needs no copy
    to_all[static_cast<size_t>(rank)] = to[i];
    from_all[static_cast<size_t>(rank)] = from[i];
  }
  return ranks_.exchange(what, cargo, to_all, from_all);
}

ShardGroup::Gather::Gather(ShardGroup& group, size_t flat, const at::Tensor& own, at::Tensor whole)
    : whole_(std::move(whole)) {
  const int shards = group.map().shards();
  at::Tensor mine = group.piece(whole_, flat, group.shard());
  if (!mine.is_alias_of(own)) mine.copy_(own);
  at::Tensor out = mine, into = whole_;
  if (group.sharding().bfloat16) {
    out = mine.to(at::kBFloat16);
    into = narrow_ = at::empty(whole_.sizes(), whole_.options().dtype(at::kBFloat16));
    group.piece(narrow_, flat, group.shard()).copy_(out);  // what the others read of it
  }
  std::vector<at::Tensor> from;
  for (int p = 0; p < shards; ++p) from.push_back(group.piece(into, flat, p));
  exchange_ = group.exchange("gathering weights", GYRE_CARGO_WEIGHTS,
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
  const bool rounded = group.sharding().bfloat16;
  std::vector<at::Tensor> to;
  for (int p = 0; p < group.map().shards(); ++p) {
    const at::Tensor piece = group.piece(whole, flat, p);
    to.push_back(rounded ? piece.to(at::kBFloat16) : piece);
    if (p == group.shard()) {
      rows_.push_back(piece);
    } else if (rounded) {
      rows_.push_back(at::empty({group.count(flat)}, to[0].options()));
    } else {
      rows_.push_back(group.take(group.count(flat)));
      borrowed_.push_back(rows_.back());
    }
  }
  exchange_ = group.exchange("reducing gradients", GYRE_CARGO_GRADIENTS, to, rows_);
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
      ->exchange("adding gradients of replicas", GYRE_CARGO_GRADIENTS, std::vector<at::Tensor>(sums.size(), rows_[0]),
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

template <typename T>
std::vector<std::vector<T>> ShardGroup::all_gather(std::span<const T> mine) const {
  std::vector<std::vector<T>> all;
  for (const std::string& bytes : ranks_.all_gather({reinterpret_cast<const char*>(mine.data()), mine.size_bytes()})) {
    std::memcpy(all.emplace_back(bytes.size() / sizeof(T)).data(), bytes.data(), bytes.size());
  }
  all.resize(static_cast<size_t>(map_.shards()));  // the first replica's: the others' are the same
  return all;
}

void ShardGroup::sum_runs(std::span<const double> numbers, size_t rows, std::span<double> sums) const {
  const std::vector<std::vector<double>> of_shard = all_gather(numbers);
  std::vector<size_t> next(of_shard.size());
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

void ShardGroup::sum_sketches(std::span<float> sketch) const {
  std::vector<std::vector<float>> rows = all_gather<float>(sketch);
  combine_tree(rows.size(),
               [&](size_t a, size_t b) { std::ranges::transform(rows[a], rows[b], rows[a].begin(), std::plus<>()); });
  std::ranges::copy(rows[0], sketch.begin());
}

}  // namespace gyre
