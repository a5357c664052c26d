#include "model/packed_weights.h"

namespace gyre {
namespace {

void pack(PackedMatrix& to, const at::Tensor& weight) { to.pack(floats(weight), weight.size(0), weight.size(1)); }

void pack(PackedBlock& to, const BlockTensors& from) {
  pack(to.qkv, from.qkv_RH);
  pack(to.out, from.out_HQ);
  pack(to.gate_up, from.gate_up_2FH);
  pack(to.down, from.down_HF);
}

}  // namespace

void PackedWeights::keep_blocks() {
  if (blocks_version_ == version_) return;
  one_ = PackedBlock();
  blocks_.resize(parameters_.blocks.size());
  for (size_t i = 0; i < blocks_.size(); ++i) pack(blocks_[i], parameters_.blocks[i]);
  blocks_version_ = version_;
}

void PackedWeights::release_blocks() {
  blocks_.clear();
  head_ = PackedMatrix();
  blocks_version_ = head_version_ = 0;
}

const PackedBlock& PackedWeights::block(size_t i) {
  if (blocks_version_ == version_) return blocks_[i];
  pack(one_, parameters_.blocks[i]);
  return one_;
}

const PackedMatrix& PackedWeights::head() {
  if (head_version_ != version_) {
    pack(head_, head_weight());
    head_version_ = version_;
  }
  return head_;
}

PackedWeights::HeadColumns PackedWeights::head_columns(int64_t first, int64_t count) {
  if (blocks_version_ == version_) return {head(), first};
  const at::Tensor& weight = head_weight();
  head_part_.pack(floats(weight) + first * weight.size(1), count, weight.size(1));
  return {head_part_, 0};
}

const at::Tensor& PackedWeights::head_weight() const {
  const RootTensors& root = parameters_.root;
  return root.score_1H.defined() ? root.score_1H : root.head_VH;
}

}  // namespace gyre
