#include "backend/cpu/network.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "kernels/rowwise.h"
#include "kernels/tile.h"

namespace gyre {

void scale_embedding(const ModelConfig& config, at::Tensor& x_NH) {
  const double by = config.shape.embedding_scale;
  if (by != 0) scale(floats(x_NH), x_NH.numel(), static_cast<float>(by));
}

LogitShape::LogitShape(const ModelConfig& config) {
  const gyre_shape& s = config.shape;
  any = config.head == GYRE_HEAD_LM && (s.logit_scale != 0 || s.logit_cap != 0);
  by = s.logit_scale != 0 ? static_cast<float>(s.logit_scale) : 1;
  cap = static_cast<float>(s.logit_cap);
}

CpuPages::CpuPages(const ModelConfig& config, int64_t layers, int64_t num_pages)
    : num_pages_(num_pages),
      page_bytes_(config.kv_width() * kPageTokens * bytes_of(config.precision())),
      layers_(layers),
      precision_(config.precision()) {
  const int64_t count = layers_ * num_pages_ * page_bytes_ + kPageMargin * bytes_of(precision_);
  keys_ = at::empty({count}, at::kByte);
  values_ = at::empty({count}, at::kByte);
}

PageMemory CpuPages::layer(int64_t layer) {
  const int64_t at = layer * num_pages_ * page_bytes_;
  return {keys_.data_ptr<uint8_t>() + at, values_.data_ptr<uint8_t>() + at, precision_};
}

void CpuPages::copy_page(int64_t from, int64_t to) {
  for (int64_t i = 0; i < layers_; ++i) {
    const PageMemory pages = layer(i);
    for (void* memory : {pages.keys, pages.values}) {
      auto* bytes = static_cast<uint8_t*>(memory);
      std::copy_n(bytes + from * page_bytes_, page_bytes_, bytes + to * page_bytes_);
    }
  }
}

void PackedWeights::keep_blocks(const std::function<void(size_t)>& also) {
  if (blocks_version_ == version_) return;
  one_ = PackedBlock();
  release_idle_memory();  // of training
  blocks_.resize(parameters_.blocks.size());
  parameters_.for_blocks([&](size_t i) {
    pack(blocks_[i], parameters_.blocks[i], precision_);
    also(i);
  });
  blocks_version_ = version_;
}

void PackedWeights::freeze(size_t blocks, bool all) {
  const RootTensors& root = parameters_.root;
  const auto let_go = [](const at::Tensor& t) { discard_pages(floats(t), t.numel()); };
  const bool tied = root.head_VH.defined() && root.head_VH.is_same(root.embed_VH);
  PackedMatrix& embedding = tied ? head_ : embedding_;
  if (embedding.empty()) {
    pack(embedding, root.embed_VH, precision_);
    let_go(root.embed_VH);
  }
  blocks_.resize(parameters_.blocks.size());
  for (; frozen_blocks_ < blocks; ++frozen_blocks_) {
    const BlockTensors& from = parameters_.blocks[frozen_blocks_];
    pack(blocks_[frozen_blocks_], from, precision_, int8_);
    for (const at::Tensor* matrix : {&from.qkv_RH, &from.out_HQ, &from.gate_up_2FH, &from.down_HF,
                                     &from.expert_gate_up_XH, &from.expert_down_YF}) {
      if (matrix->defined()) let_go(*matrix);
    }
  }
  if (!all) return;
  if (!tied) {
    pack(head_, head_weight(), head_precision());
    if (root.head_VH.defined()) let_go(root.head_VH);
  }
  blocks_version_ = head_version_ = version_;
  frozen_ = true;
}

const PackedMatrix* PackedWeights::embedding() const {
  return !frozen_ ? nullptr : embedding_.empty() ? &head_ : &embedding_;
}

void PackedWeights::release_blocks() {
  if (frozen_) return;
  blocks_.clear();
  head_ = PackedMatrix();
  blocks_version_ = head_version_ = 0;
}

const PackedBlock& PackedWeights::block(size_t i) {
  if (blocks_version_ == version_) return blocks_[i];
  pack(one_, parameters_.blocks[i], precision_);
  return one_;
}

const PackedMatrix& PackedWeights::head() {
  if (head_version_ != version_) {
    pack(head_, head_weight(), head_precision());
    head_version_ = version_;
  }
  return head_;
}

PackedWeights::HeadColumns PackedWeights::head_columns(int64_t first, int64_t count) {
  if (blocks_version_ == version_) return {head(), first};
  const at::Tensor& weight = head_weight();
  head_part_.pack(floats(weight) + first * weight.size(1), count, weight.size(1), head_precision());
  return {head_part_, 0};
}

// A value head is one row: in f32, as its targets are.
Precision PackedWeights::head_precision() const {
  return parameters_.root.score_1H.defined() ? Precision::kFloat32 : precision_;
}

const at::Tensor& PackedWeights::head_weight() const {
  const RootTensors& root = parameters_.root;
  return root.score_1H.defined() ? root.score_1H : root.head_VH;
}

namespace {

at::Tensor copy(const at::Tensor& t) { return t.defined() ? t.clone() : t; }

}  // namespace

void CpuBase::prepare() {
  if (parameters.always_here() || beside_packed != nullptr) return;
  const RootTensors& root = parameters.root;
  parameters.enter(kRoot);
  auto beside = std::make_unique<ParameterSet>();
  if (!root.head_VH.is_same(root.embed_VH)) beside->root.embed_VH = copy(root.embed_VH);  // else the head's is read
  beside->root.final_norm_H = copy(root.final_norm_H);
  beside->root.score_bias_1 = copy(root.score_bias_1);
  packed.head();
  parameters.let_go();  // embedding and head are the largest storage: not held beside the blocks' copies
  packed.keep_blocks([&](size_t i) { beside->blocks.push_back(gyre::beside_packed(parameters.blocks[i])); });
  beside_packed = std::move(beside);
}

void CpuBase::release() {
  packed.release_blocks();
  beside_packed.reset();
}

CpuNetwork::CpuNetwork(const ModelConfig& config, const ParameterSet& parameters)
    : config_(config),
      base_(std::make_shared<CpuBase>(config, parameters)),
      parameters_(base_->parameters),
      read_{parameters_},
      packed_(base_->packed) {}

CpuNetwork::CpuNetwork(const ModelConfig& config, const ParameterSet& adapter, std::shared_ptr<CpuBase> base)
    : config_(config),
      base_(std::move(base)),
      parameters_(base_->parameters),
      read_{parameters_, &adapter},
      packed_(base_->packed),
      adapter_(std::make_unique<CpuAdapter>(config, adapter)) {}

void CpuNetwork::touch() {
  activations_.reset();
  if (adapter_) return adapter_->touch();
  packed_.touch();
  base_->beside_packed.reset();
}

void CpuNetwork::release() { base_->release(); }

void CpuNetwork::prepare() {
  if (!parameters_.always_here()) activations_.reset();
  base_->prepare();
  if (adapter_) adapter_->prepare();
}

std::vector<LoraRows> CpuNetwork::lora_rows(const Pass& pass, size_t block) {
  std::vector<LoraRows> all;
  for (const AdapterRows& rows : pass.adapters) {
    const bool drops = pass.dropout.on();
    LoraRows& own = all.emplace_back(
        LoraRows{&dynamic_cast<CpuAdapter&>(*rows.adapter).block(block, drops), rows.first, rows.count});
    if (drops) own.dropout = {&pass.dropout, static_cast<int64_t>(block)};
  }
  return all;
}

namespace {

// Undefined where no layer has a router.
at::Tensor router_logits(const ModelConfig& config, int64_t rows) {
  return config.shape.experts > 0 ? at::empty({rows, config.shape.experts}, at::kFloat) : at::Tensor();
}

}  // namespace

// Makes the tensors that a training pass keeps.
void CpuNetwork::place(CpuActivations& keep) {
  const int64_t rows = keep.pass.rows, h = config_.hidden_size, layers = config_.num_layers;
  const int64_t each = keep.recompute ? rows * h : BlockActivations::size(config_, rows);
  if (!activations_ || activations_.use_count() > 1) activations_ = std::make_shared<Buffer>();
  activations_->reserve(layers * each);
  keep.memory = activations_;
  float* memory = keep.memory->data();
  keep.blocks.resize(static_cast<size_t>(layers));
  for (BlockActivations& block : keep.blocks) {
    if (keep.recompute) {
      block.input_NH = at::from_blob(memory, {rows, h});
    } else {
      block.place(config_, rows, memory);
    }
    memory += each;
    block.experts.router_NE = router_logits(config_, rows);
    keep.routers_NE.push_back(block.experts.router_NE);
  }
  keep.last_NH = rows_of(rows, h);
}

void CpuNetwork::embed(const ParameterSet& weights, std::span<const int32_t> ids, const Pass& pass, at::Tensor& x_NH) {
  const auto count = static_cast<int64_t>(ids.size());
  const PackedMatrix* embedding = weights.root.embed_VH.defined() ? packed_.embedding() : &packed_.head();
  if (embedding != nullptr) {
    gather_columns(embedding->panels(), ids.data(), count, floats(x_NH));
  } else {
    gather_rows(floats(weights.root.embed_VH), config_.hidden_size, ids.data(), count, config_.precision(),
                floats(x_NH));
  }
  for (const AdapterRows& rows : pass.adapters) {
    dynamic_cast<CpuAdapter&>(*rows.adapter)
        .root()
        .add_embedding(ids.data() + rows.first, rows.count, config_.hidden_size,
                       floats(x_NH) + rows.first * config_.hidden_size);
  }
  scale_embedding(config_, x_NH);
}

// `share_pages`: kv has one layer, which every block overwrites in turn (nothing reads it after the pass).
at::Tensor CpuNetwork::run(const ParameterSet& weights, std::span<const int32_t> ids, const Pass& pass, CpuPages& kv,
                           bool share_pages, CpuActivations* keep) {
  const bool training = share_pages;
  if (training) read_.enter(kRoot);
  const bool keep_all = keep && !keep->recompute;
  if (keep) place(*keep);
  at::Tensor x_NH = keep ? keep->blocks[0].input_NH : rows_of(pass.rows, config_.hidden_size);
  embed(weights, ids, pass, x_NH);
  base_->ropes.reserve(pass.end);
  ForwardWorkspace work(config_, pass.rows);
  Buffer memory;
  BlockActivations scratch;
  if (!keep_all) {
    memory.reserve(BlockActivations::size(config_, pass.rows));
    scratch.place(config_, pass.rows, memory.data());
    scratch.read_again = false;
    scratch.experts.router_NE = router_logits(config_, pass.rows);
  }
  const auto layers = static_cast<size_t>(config_.num_layers);
  for (size_t i = 0; i < layers; ++i) {
    const int64_t layer = share_pages ? 0 : static_cast<int64_t>(i);
    BlockActivations& kept = keep_all ? keep->blocks[i] : scratch;
    kept.input_NH = x_NH;
    if (keep) kept.experts.router_NE = keep->blocks[i].experts.router_NE;
    if (keep) x_NH = i + 1 < layers ? keep->blocks[i + 1].input_NH : keep->last_NH;
    if (training) read_.enter(static_cast<int64_t>(i));
    const std::vector<LoraRows> lora = lora_rows(pass, i);
    const Block block{.config = config_,
                      .weights = weights.blocks[i],
                      .ropes = base_->ropes,
                      .layer = static_cast<int64_t>(i),
                      .lora = lora};
    block.forward(packed_.block(i), pass, kv.layer(layer), kept, work, x_NH);
    if (training) read_.leave(static_cast<int64_t>(i));
    if (keep && adapter_) adapter_->release(i);
  }
  at::Tensor hidden_NH = rows_of(pass.rows, config_.hidden_size), rstd_N = at::empty({pass.rows}, at::kFloat);
  rms_norm(floats(x_NH), pass.rows, config_.hidden_size, floats(norm_scale(config_, weights.root.final_norm_H)),
           static_cast<float>(config_.rms_norm_eps), Precision::kFloat32, floats(hidden_NH), floats(rstd_N));
  if (keep) keep->rstd_N = std::move(rstd_N);
  return hidden_NH;
}

at::Tensor CpuNetwork::infer(std::span<const int32_t> ids, const Pass& pass, KvPages& kv) {
  activations_.reset();
  require_gathered(parameters_, base_->beside_packed != nullptr);
  for (const AdapterRows& rows : pass.adapters) dynamic_cast<const CpuAdapter&>(*rows.adapter).require_here();
  packed_.keep_blocks();
  return run(base_->sampled(), ids, pass, dynamic_cast<CpuPages&>(kv), false, nullptr);
}

at::Tensor CpuNetwork::forward(std::span<const int32_t> ids, Pass pass, bool recompute,
                               std::unique_ptr<Activations>* keep) {
  CpuPages kv(config_, 1, pass.num_pages);
  pass.adapters = own_rows(pass.rows);
  if (keep == nullptr) return run(parameters_, ids, pass, kv, true, nullptr);
  auto kept = std::make_unique<CpuActivations>();
  kept->pass = std::move(pass);
  kept->recompute = recompute;
  at::Tensor hidden_NH = run(parameters_, ids, kept->pass, kv, true, kept.get());
  kept->ids.assign(ids.begin(), ids.end());
  *keep = std::move(kept);
  return hidden_NH;
}

void CpuNetwork::backward(const std::vector<HiddenGradient>& all, const Activations& activations) {
  const auto& kept = dynamic_cast<const CpuActivations&>(activations);
  const int64_t rows = kept.pass.rows, h = config_.hidden_size;
  std::vector<at::Tensor> d_NH;
  read_.enter(kRoot);
  for (const auto& [d_hidden_NH, gradients, d_routers_NE] : all) {
    gradients->enter(kRoot);
    d_NH.push_back(rows_of(rows, h).zero_());
    rms_norm_backward(floats(kept.last_NH), floats(kept.rstd_N),
                      floats(norm_scale(config_, parameters_.root.final_norm_H)), floats(d_hidden_NH), rows, h,
                      floats(d_NH.back()), floats(gradients->root.final_norm_H));
  }
  BackwardWorkspace work(config_, rows);
  std::unique_ptr<ForwardWorkspace> again;
  std::unique_ptr<CpuPages> kv;
  Buffer memory;
  BlockActivations scratch;
  at::Tensor unused_NH;
  for (int64_t i = config_.num_layers - 1; i >= 0; --i) {
    const auto at = static_cast<size_t>(i);
    read_.enter(i);
    const std::vector<LoraRows> lora = lora_rows(kept.pass, at);
    const Block block{.config = config_,
                      .weights = parameters_.blocks[at],
                      .ropes = base_->ropes,
                      .layer = i,
                      .lora = lora,
                      .adapter = adapter_ ? &adapter_->parameters().blocks[at] : nullptr,
                      .packed = packed_.frozen() ? &packed_.block(at) : nullptr};
    const BlockActivations* activations = &kept.blocks[at];
    if (!activations->qkv_NR.defined()) {
      if (!again) {
        again = std::make_unique<ForwardWorkspace>(config_, rows);
        kv = std::make_unique<CpuPages>(config_, 1, kept.pass.num_pages);
        unused_NH = rows_of(rows, h);
        memory.reserve(BlockActivations::size(config_, rows));
        scratch.place(config_, rows, memory.data());
      }
      scratch.input_NH = activations->input_NH, scratch.experts.router_NE = activations->experts.router_NE;
      block.forward(packed_.block(at), kept.pass, kv->layer(0), scratch, *again, unused_NH);
      activations = &scratch;
    }
    block.recompute(*activations, kept.pass, work);
    for (size_t g = 0; g < all.size(); ++g) {
      all[g].gradients->enter(i);
      const std::vector<at::Tensor>& d_routers = all[g].d_routers_NE;
      block.backward(*activations, d_routers.empty() ? at::Tensor() : d_routers[at], kept.pass, work, d_NH[g],
                     all[g].gradients->blocks[at]);
      all[g].gradients->leave(i);
    }
    read_.leave(i);
    if (adapter_) adapter_->release(at);
  }
  for (size_t g = 0; g < all.size(); ++g) {
    scale_embedding(config_, d_NH[g]);
    const at::Tensor& embed_VH = all[g].gradients->root.embed_VH;
    if (embed_VH.defined()) scatter_add_rows(floats(d_NH[g]), h, kept.ids.data(), rows, floats(embed_VH));
    if (adapter_) {
      embed_lora_backward(config_, adapter_->root(), adapter_->parameters().root.embed_lora, kept.ids, floats(d_NH[g]),
                          all[g].gradients->root.embed_lora);
    }
    all[g].gradients->leave(kRoot);
  }
}

const RootTensors& CpuNetwork::value_root() {
  if (base_->beside_packed && !adapter_) return base_->beside_packed->root;
  read_.enter(kRoot);
  return adapter_ ? adapter_->parameters().root : parameters_.root;
}

void CpuNetwork::logits(const at::Tensor& hidden_RH, std::span<const AdapterRows> adapters, at::Tensor& logits_RV) {
  const bool value = config_.head == GYRE_HEAD_VALUE;
  PackedMatrix own;  // an adapter's
  if (value && adapter_) pack(own, value_root().score_1H, Precision::kFloat32);
  if (!base_->beside_packed) read_.enter(kRoot);
  const PackedMatrix& head = own.empty() ? packed_.head() : own;
  head.multiply(floats(hidden_RH), hidden_RH.stride(0), hidden_RH.size(0),
                value ? floats(value_root().score_bias_1) : nullptr, floats(logits_RV), logits_RV.stride(0));
  for (const AdapterRows& rows : adapters) {
    const int64_t ld = hidden_RH.stride(0), ld_logits = logits_RV.stride(0);
    dynamic_cast<CpuAdapter&>(*rows.adapter)
        .root()
        .add_logits(floats(hidden_RH) + rows.first * ld, ld, rows.count, floats(logits_RV) + rows.first * ld_logits,
                    ld_logits);
  }
  const LogitShape bent(config_);
  if (bent.any) bent.apply(floats(logits_RV), logits_RV.size(0), logits_RV.size(1), logits_RV.stride(0));
}

}  // namespace gyre
