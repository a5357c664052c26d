#include <ATen/ops/mm.h>

#include <utility>

#include "backend/aten/network.h"

namespace gyre {

AtenPart::AtenPart(const ModelConfig& config, const ParameterSet& parameters, const Placement& placement,
                   std::shared_ptr<Peers> peers)
    : parameters_(parameters),
      parallel_(config, std::move(peers)),
      config_(parallel_.slicing().config(parallel_.part())),
      placement_(placement),
      angles_(config, placement) {}

void AtenPart::release() {
  blocks_.clear();
  root_ = {};
}

void AtenPart::prepare() {
  if (!blocks_.empty()) return;
  const RootTensors& root = parameters_.root;
  const Range rows = parallel_.mine().vocab;
  parameters_.enter(kRoot);
  root_.embed_VH = root.embed_VH.narrow(0, rows.first, rows.count).clone();
  root_.head_VH =
      root.head_VH.is_same(root.embed_VH) ? root_.embed_VH : root.head_VH.narrow(0, rows.first, rows.count).clone();
  root_.final_norm_H = root.final_norm_H.clone();
  parameters_.let_go();
  std::vector<BlockTensors> blocks;
  for (size_t i = 0; i < parameters_.blocks.size(); ++i) {
    parameters_.enter(static_cast<int64_t>(i));
    const BlockTensors own = parallel_.slicing().block(parameters_.blocks[i], parallel_.part());
    blocks.push_back(block_copy(own, placement_.compute));
    parameters_.leave(static_cast<int64_t>(i));
  }
  blocks_ = std::move(blocks);
}

at::Tensor AtenPart::infer(std::span<const int32_t> ids, const Pass& pass, KvPages& kv) {
  require_gathered(parameters_, !blocks_.empty());
  prepare();
  const auto& pages = dynamic_cast<AtenPages&>(kv);
  const AtenPass shared{plan_paged(pass, config_.shape.window, placement_.device), angles_.of(pass)};
  at::Tensor x_NH = parallel_.embedded(ids, config_.hidden_size, [&](std::span<const int32_t> rows) {
    return root_.embed_VH.index_select(0, upload_ids(rows, placement_.device));
  });
  x_NH = scaled_embedding(config_, x_NH);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    x_NH = block_forward(config_, static_cast<int64_t>(i), blocks_[i], x_NH, shared,
                         pages.layer(static_cast<int64_t>(i)), &parallel_);
  }
  return normalize(x_NH, root_.final_norm_H, config_);
}

void AtenPart::logits(const at::Tensor& hidden_RH, std::span<const AdapterRows>, at::Tensor& logits_RV) {
  at::Tensor own_RV = at::mm(hidden_RH, root_.head_VH.t());
  shape_logits(config_, own_RV);
  const at::Tensor all = parallel_.logits(own_RV);
  if (all.defined()) logits_RV.copy_(all);
}

}  // namespace gyre
