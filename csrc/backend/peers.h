// Tensor parallelism: the processes that sample from one model together, each with a slice of it (model/slice.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/slice.h"

namespace gyre {

// The group of these processes. All of them make the same calls in the same order.
class Peers {
 public:
  virtual ~Peers() = default;
  virtual int part() const = 0;  // of this process, from 0
  virtual int parts() const = 0;
  // Joins the columns of all parts: from [N, widths[part]] of each to [N, the sum of widths], on all of them or on the
  // first alone (undefined on the others).
  virtual at::Tensor join(const at::Tensor& mine_NW, std::span<const int64_t> widths, bool first_alone = false) = 0;
  // The bytes of the first process, on all of them.
  virtual std::string broadcast(std::string_view bytes) = 0;
};

// Joins one model's products, of which each process computes some columns.
class TensorParallel {
 public:
  TensorParallel(const ModelConfig& config, std::shared_ptr<Peers> peers)
      : slicing_(config, peers->parts()),
        peers_(std::move(peers)),
        query_(slicing_.widths(&Slice::heads, config.head_dim)),
        hidden_(slicing_.widths(&Slice::hidden)),
        vocab_(slicing_.widths(&Slice::vocab)) {}

  const Slicing& slicing() const { return slicing_; }
  int part() const { return peers_->part(); }
  const Slice& mine() const { return slicing_[part()]; }

  at::Tensor query(const at::Tensor& mine) const { return peers_->join(mine, query_); }
  // Of all key/value heads, also where several processes have the same one.
  at::Tensor keys(const at::Tensor& mine, int64_t head_dim) const {
    const at::Tensor all = peers_->join(mine, slicing_.widths(&Slice::kv_heads, head_dim));
    std::vector<int64_t> columns;
    for (int64_t seen = 0, at = 0, p = 0; p < peers_->parts(); ++p) {
      const Range own = slicing_[static_cast<int>(p)].kv_heads;
      for (int64_t c = std::max(seen - own.first, int64_t{0}) * head_dim; c < own.count * head_dim; ++c) {
        columns.push_back(at + c);
      }
      seen = std::max(seen, own.first + own.count), at += own.count * head_dim;
    }
    const auto count = static_cast<int64_t>(columns.size());
    if (count == all.size(1)) return all;
    return all.index_select(1, at::from_blob(columns.data(), {count}, at::kLong).to(all.device()));
  }
  at::Tensor hidden(const at::Tensor& mine) const { return peers_->join(mine, hidden_); }
  // Of gates and values: which of a slice says what they are of.
  at::Tensor intermediate(const at::Tensor& mine, Range Slice::* of = &Slice::intermediate) const {
    return peers_->join(mine, slicing_.widths(of));
  }
  // Defined on the first process only.
  at::Tensor logits(const at::Tensor& mine) const { return peers_->join(mine, vocab_, true); }
  // The embeddings of some tokens, of which each process looks up those whose rows it has: look_up(rows of the part)
  // gives [n, width].
  template <typename LookUp>
  at::Tensor embedded(std::span<const int32_t> ids, int64_t width, LookUp&& look_up) const;

 private:
  const Slicing slicing_;
  const std::shared_ptr<Peers> peers_;
  const std::vector<int64_t> query_, hidden_, vocab_;
};

// Where each of some tokens' embeddings is: of the tokens in order, whose part it is.
struct TokenOwners {
  TokenOwners(const Slicing& slicing, int part, std::span<const int32_t> ids);
  std::vector<int64_t> counts;  // by part
  std::vector<int32_t> own;     // rows of this part's table
  std::vector<int64_t> places;  // of each token among the parts' rows, one part's after another's
};

template <typename LookUp>
at::Tensor TensorParallel::embedded(std::span<const int32_t> ids, int64_t width, LookUp&& look_up) const {
  TokenOwners owners(slicing_, part(), ids);
  const at::Tensor own = look_up(owners.own);
  for (int64_t& count : owners.counts) count *= width;
  const at::Tensor all = peers_->join(own.view({1, -1}), owners.counts).view({-1, width});
  const at::Tensor places_N =
      at::from_blob(owners.places.data(), {static_cast<int64_t>(ids.size())}, at::kLong).to(all.device());
  return all.index_select(0, places_N);
}

}  // namespace gyre
