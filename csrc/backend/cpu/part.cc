#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <utility>

#include "backend/cpu/network.h"
#include "kernels/rowwise.h"

namespace gyre {

CpuPart::CpuPart(const ModelConfig& config, const ParameterSet& parameters, const ParameterSet* adapter,
                 std::shared_ptr<Peers> peers)
    : parameters_(parameters),
      adapter_(adapter),
      parallel_(config, std::move(peers)),
      config_(parallel_.slicing().config(parallel_.part())),
      ropes_(config) {}

// With an adapter its own parameters alone change.
void CpuPart::touch() {
  lora_.clear();
  lora_root_.reset();
  if (adapter_ == nullptr) release();
}

void CpuPart::release() {
  blocks_.clear();
  lora_.clear();
  lora_root_.reset();
  embedding_ = PackedMatrix();
  head_ = PackedMatrix();
}

void CpuPart::prepare_adapter() {
  if (adapter_ == nullptr || lora_root_) return;
  const Slicing& slicing = parallel_.slicing();
  const int part = parallel_.part();
  const LoraParts modules = slicing.modules(part);
  adapter_->enter(kRoot);
  const RootTensors& root = adapter_->root;
  lora_root_ = std::make_unique<PackedLoraRoot>(root, slicing.head_lora(root.head_lora, part), modules, config_,
                                                !adapter_->always_here());
  adapter_->for_blocks(
      [&](size_t i) { lora_.emplace_back(slicing.lora(adapter_->blocks[i], part), modules, config_); });
}

void CpuPart::prepare() {
  prepare_adapter();
  if (!blocks_.empty()) return;
  const RootTensors& root = parameters_.root;
  const Precision precision = config_.precision();
  const Range rows = parallel_.mine().vocab;
  parameters_.enter(kRoot);
  pack(head_, root.head_VH.narrow(0, rows.first, rows.count), precision);
  if (!root.head_VH.is_same(root.embed_VH))
    pack(embedding_, root.embed_VH.narrow(0, rows.first, rows.count), precision);
  final_norm_H_ = root.final_norm_H.clone();
  parameters_.let_go();
  std::vector<PartBlock> blocks(parameters_.blocks.size());
  parameters_.for_blocks([&](size_t i) {
    const BlockTensors own = parallel_.slicing().block(parameters_.blocks[i], parallel_.part());
    pack(blocks[i].packed, own, precision);
    blocks[i].beside = beside_packed(own);
  });
  blocks_ = std::move(blocks);
  release_idle_memory();  // of slices
}

at::Tensor CpuPart::embed(std::span<const int32_t> ids) const {
  const PackedMatrix& table = embedding_.empty() ? head_ : embedding_;
  return parallel_.embedded(ids, config_.hidden_size, [&](std::span<const int32_t> rows) {
    at::Tensor own = at::empty({static_cast<int64_t>(rows.size()), config_.hidden_size}, at::kFloat);
    gather_columns(table.panels(), rows.data(), static_cast<int64_t>(rows.size()), floats(own));
    return own;
  });
}

at::Tensor CpuPart::infer(std::span<const int32_t> ids, const Pass& pass, KvPages& kv) {
  require_gathered(parameters_, !blocks_.empty());
  if (adapter_ != nullptr) require_gathered(*adapter_, lora_root_ != nullptr);
  prepare();
  auto& pages = dynamic_cast<CpuPages&>(kv);
  at::Tensor x_NH = embed(ids);
  if (lora_root_) lora_root_->add_embedding(ids.data(), pass.rows, config_.hidden_size, floats(x_NH));
  scale_embedding(config_, x_NH);
  ropes_.reserve(pass.end);
  ForwardWorkspace work(config_, pass.rows);
  Buffer memory;
  memory.reserve(BlockActivations::size(config_, pass.rows));
  BlockActivations scratch;
  scratch.place(config_, pass.rows, memory.data());
  scratch.read_again = false;
  scratch.experts.router_NE = at::empty({pass.rows, config_.shape.experts}, at::kFloat);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    scratch.input_NH = x_NH;
    std::vector<LoraRows> lora;
    if (lora_root_) lora.push_back({&lora_[i], 0, pass.rows});
    Block{config_, blocks_[i].beside, ropes_, static_cast<int64_t>(i), &parallel_, lora}.forward(
        blocks_[i].packed, pass, pages.layer(static_cast<int64_t>(i)), scratch, work, x_NH);
  }
  at::Tensor hidden_NH = at::empty_like(x_NH);
  rms_norm(floats(x_NH), pass.rows, config_.hidden_size, floats(norm_scale(config_, final_norm_H_)),
           static_cast<float>(config_.rms_norm_eps), Precision::kFloat32, floats(hidden_NH), nullptr);
  return hidden_NH;
}

void CpuPart::logits(const at::Tensor& hidden_RH, std::span<const AdapterRows>, at::Tensor& logits_RV) {
  at::Tensor own_RV = at::empty({hidden_RH.size(0), head_.out()}, at::kFloat);
  head_.multiply(floats(hidden_RH), hidden_RH.stride(0), hidden_RH.size(0), nullptr, floats(own_RV), head_.out());
  if (lora_root_) {
    lora_root_->add_logits(floats(hidden_RH), hidden_RH.stride(0), hidden_RH.size(0), floats(own_RV), head_.out());
  }
  if (const LogitShape bent(config_); bent.any) bent.apply(floats(own_RV), own_RV.size(0), head_.out(), head_.out());
  if (const at::Tensor all = parallel_.logits(own_RV); all.defined()) logits_RV.copy_(all);
}

}  // namespace gyre
