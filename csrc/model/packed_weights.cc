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
  blocks_version_ = 0;
}

const PackedBlock& PackedWeights::block(size_t i) {
  if (blocks_version_ == version_) return blocks_[i];
  pack(one_, parameters_.blocks[i]);
  return one_;
}

const PackedMatrix& PackedWeights::head() {
  if (head_version_ != version_) {
    const RootTensors& root = parameters_.root;
    pack(head_, root.score_1H.defined() ? root.score_1H : root.head_VH);
    head_version_ = version_;
  }
  return head_;
}

}  // namespace gyre
