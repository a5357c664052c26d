#include <ATen/ops/mm.h>

#include <utility>

#include "backend/aten/network.h"

namespace gyre {

AtenPart::AtenPart(const ModelConfig& config, const ParameterSet& parameters, const ParameterSet* adapter,
                   const Placement& placement, std::shared_ptr<Peers> peers)
    : parameters_(parameters),
      adapter_(adapter),
      parallel_(config, std::move(peers)),
      config_(parallel_.slicing().config(parallel_.part())),
      modules_(parallel_.slicing().modules(parallel_.part())),
      placement_(placement),
      angles_(config, placement) {}

// With an adapter its own parameters alone change.
void AtenPart::touch() {
  lora_.clear();
  if (adapter_ == nullptr) release();
}

void AtenPart::release() {
  blocks_.clear();
  lora_.clear();
  root_ = {};
}

void AtenPart::prepare_adapter() {
  if (adapter_ == nullptr || !lora_.empty()) return;
  const auto copy = [](const LoraTensors& of, at::ScalarType type) {
    if (!of.a_SI.defined()) return of;
    return LoraTensors{of.a_SI.to(type, /*non_blocking=*/false, /*copy=*/true), of.b_OR.to(type, false, true)};
  };
  const Slicing& slicing = parallel_.slicing();
  adapter_->enter(kRoot);
  lora_root_.embed_lora = copy(adapter_->root.embed_lora, at::kFloat);
  lora_root_.head_lora = copy(slicing.head_lora(adapter_->root.head_lora, parallel_.part()), at::kFloat);
  adapter_->for_blocks([&](size_t i) {
    BlockTensors own = slicing.lora(adapter_->blocks[i], parallel_.part());
    for (const auto of : kLoras) own.*of = copy(own.*of, placement_.compute);
    lora_.push_back(std::move(own));
  });
}

void AtenPart::prepare() {
  prepare_adapter();
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
  parameters_.for_blocks([&](size_t i) {
    const BlockTensors own = parallel_.slicing().block(parameters_.blocks[i], parallel_.part());
    blocks.push_back(block_copy(own, placement_.compute));
  });
  blocks_ = std::move(blocks);
}

at::Tensor AtenPart::infer(std::span<const int32_t> ids, const Pass& pass, KvPages& kv) {
  require_gathered(parameters_, !blocks_.empty());
  if (adapter_ != nullptr) require_gathered(*adapter_, !lora_.empty());
  prepare();
  const auto& pages = dynamic_cast<AtenPages&>(kv);
  const AtenPass shared{plan_paged(pass, config_.shape.window, placement_.options()), angles_.of(pass)};
  at::Tensor x_NH = parallel_.embedded(ids, config_.hidden_size, [&](std::span<const int32_t> rows) {
    return root_.embed_VH.index_select(0, upload_ids(rows, placement_.device));
  });
  if (const LoraTensors& lora = lora_root_.embed_lora; lora.a_SI.defined()) {
    const at::Tensor u_NR = lora.a_SI.index_select(1, upload_ids(ids, placement_.device)).t();
    x_NH.add_(at::mm(u_NR, lora.b_OR.t()), config_.lora.scale);
  }
  x_NH = scaled_embedding(config_, x_NH);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    std::vector<AtenLoraRows> lora;
    if (!lora_.empty()) lora.push_back({&lora_[i], &modules_, config_.lora.scale, 0, pass.rows});
    x_NH = block_forward(config_, static_cast<int64_t>(i), blocks_[i], x_NH, shared,
                         pages.layer(static_cast<int64_t>(i)), &parallel_, lora);
  }
  return normalize(x_NH, root_.final_norm_H, config_);
}

void AtenPart::logits(const at::Tensor& hidden_RH, std::span<const AdapterRows>, at::Tensor& logits_RV) {
  at::Tensor own_RV = at::mm(hidden_RH, root_.head_VH.t());
  if (const LoraTensors& lora = lora_root_.head_lora; lora.a_SI.defined()) {
    own_RV.add_(at::mm(at::mm(hidden_RH, lora.a_SI.t()), lora.b_OR.t()), config_.lora.scale);
  }
  shape_logits(config_, own_RV);
  const at::Tensor all = parallel_.logits(own_RV);
  if (all.defined()) logits_RV.copy_(all);
}

}  // namespace gyre
