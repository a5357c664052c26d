#include "backend/aten/network.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace gyre {
namespace {

at::Tensor leaf(const at::Tensor& parameter, at::ScalarType compute) {
  if (!parameter.defined()) return {};
  return parameter.detach().to(compute).requires_grad_(true);
}

// A leaf of the next graph with the same values.
at::Tensor cut(const at::Tensor& x) { return x.detach().requires_grad_(true); }

// The gradient of <output, d_output> with respect to the input; those with respect to the weights are added to `into`.
at::Tensor differentiate(const at::Tensor& output, const at::Tensor& input, std::vector<at::Tensor> weights,
                         const at::Tensor& d_output, std::vector<at::Tensor> into) {
  weights.insert(weights.begin(), input);
  const auto d = torch::autograd::grad({output}, weights, {d_output},
                                       /*retain_graph=*/true);
  for (size_t i = 0; i < into.size(); ++i) into[i].add_(d[i + 1]);
  return d[0];
}

}  // namespace

at::Tensor scaled_embedding(const ModelConfig& config, const at::Tensor& x_NH) {
  const double by = config.shape.embedding_scale;
  return by != 0 ? x_NH * by : x_NH;
}

void shape_logits(const ModelConfig& config, at::Tensor& logits_RV) {
  if (config.head != GYRE_HEAD_LM) return;
  const gyre_shape& s = config.shape;
  if (s.logit_scale != 0) logits_RV.mul_(s.logit_scale);
  if (s.logit_cap != 0) logits_RV.div_(s.logit_cap).tanh_().mul_(s.logit_cap);
}

at::Tensor upload_ids(std::span<const int32_t> ids, at::Device device) {
  const std::vector<int64_t> wide(ids.begin(), ids.end());
  return to_device(wide.data(), {static_cast<int64_t>(wide.size())}, device);
}

void AngleTable::reserve(int64_t end) {
  if (end <= uploaded_) return;
  uploaded_ = std::max<int64_t>({end, 2 * uploaded_, 256});
  ropes_.reserve(uploaded_);
  const auto upload = [&](int kind) {
    const RopeTable& table = *ropes_.of(kind);
    return Angles{to_device(table.cosines(0), {uploaded_, table.half()}, device_),
                  to_device(table.sines(0), {uploaded_, table.half()}, device_)};
  };
  all_ = {upload(0), upload(GYRE_LAYER_LOCAL)};
}

RowAngles AngleTable::of(const Pass& pass) {
  reserve(pass.end);
  return at(upload_ids(pass.positions, device_));
}

RowAngles AngleTable::at(const at::Tensor& positions_N) const {
  const auto rows = [&](const Angles& of) {
    return Angles{of.cosines.index_select(0, positions_N).unsqueeze(1),
                  of.sines.index_select(0, positions_N).unsqueeze(1)};
  };
  return {rows(all_.main), rows(all_.local)};
}

void AtenAdapter::touch() {
  blocks_.assign(blocks_.size(), {});
  made_ = 0;
  root_.reset();
}

const BlockTensors& AtenAdapter::block(size_t i) {
  BlockTensors& block = blocks_[i];
  if (tensors_of(block, true).empty()) {
    const bool here = parameters_.always_here();
    for (const auto of : kLoras) {
      const LoraTensors& lora = parameters_.blocks[i].*of;
      if (!lora.a_SI.defined()) continue;
      (block.*of).a_SI = leaf(here ? lora.a_SI : lora.a_SI.clone(), compute_);
      (block.*of).b_OR = leaf(here ? lora.b_OR : lora.b_OR.clone(), compute_);
    }
    ++made_;
  }
  return block;
}

const RootTensors& AtenAdapter::root() {
  if (!root_) {
    const auto copy = [&](const LoraTensors& from) {
      if (parameters_.always_here() || !from.a_SI.defined()) return from;
      return LoraTensors{from.a_SI.clone(), from.b_OR.clone()};
    };
    root_ = std::make_unique<RootTensors>();
    root_->embed_lora = copy(parameters_.root.embed_lora);
    root_->head_lora = copy(parameters_.root.head_lora);
  }
  return *root_;
}

void AtenAdapter::prepare() {
  if (parameters_.always_here() || made_ == blocks_.size()) return;
  parameters_.enter(kRoot);
  root();
  parameters_.for_blocks([&](size_t i) { block(i); });
}

AtenNetwork::AtenNetwork(const ModelConfig& config, const ParameterSet& parameters, const Placement& placement)
    : config_(config),
      parameters_(parameters),
      read_{parameters},
      placement_(placement),
      base_(this),
      angles_(config, placement) {
  touch();
}

AtenNetwork::AtenNetwork(const ModelConfig& config, const ParameterSet& adapter, AtenNetwork& base)
    : config_(config),
      parameters_(base.parameters_),
      read_{base.parameters_, &adapter},
      placement_(base.placement_),
      base_(&base),
      adapter_(std::make_unique<AtenAdapter>(config, adapter, placement_.compute)),
      angles_(config, placement_) {}

void AtenNetwork::touch() {
  if (adapter_) return adapter_->touch();
  blocks_.assign(parameters_.blocks.size(), {});
  release();
}

std::vector<AtenLoraRows> AtenNetwork::lora_rows(std::span<const AdapterRows> adapters, size_t block) {
  std::vector<AtenLoraRows> all;
  for (const AdapterRows& r : adapters) {
    all.push_back(dynamic_cast<AtenAdapter&>(*r.adapter).rows(block, r.first, r.count));
  }
  return all;
}

std::vector<at::Tensor> AtenNetwork::leaves(size_t block) {
  return tensors_of(adapter_ ? adapter_->block(block) : blocks_[block], adapter_ != nullptr);
}

// No two networks ever have the same number: a pool of pages may serve one after the other.
void AtenNetwork::release() {
  if (adapter_) return base_->release();
  static std::atomic<uint64_t> last{0};
  sampled_.reset();
  weights_ = ++last;
}

// Of a block that is here. Of shards, leaves in float32 follow the storage's memory as it comes and goes, and
// autograd's graphs with them.
const BlockTensors& AtenNetwork::block(size_t i) {
  if (adapter_) return base_->block(i);
  BlockTensors& block = blocks_[i];
  if (!block.qkv_RH.defined()) {
    for (const auto field : kNorms) block.*field = leaf(parameters_.blocks[i].*field, at::kFloat);
    for (const auto field : kProjections) block.*field = leaf(parameters_.blocks[i].*field, placement_.compute);
  }
  return block;
}

void AtenNetwork::prepare() {
  if (adapter_) {
    base_->prepare();
    return adapter_->prepare();
  }
  if (parameters_.always_here() || sampled_ != nullptr) return;
  auto copies = std::make_unique<ParameterSet>();
  parameters_.enter(kRoot);
  const RootTensors& root = parameters_.root;
  copies->root.embed_VH = root.embed_VH.clone();
  copies->root.final_norm_H = root.final_norm_H.clone();
  if (root.head_VH.defined())
    copies->root.head_VH = config_.tie_embeddings ? copies->root.embed_VH : root.head_VH.clone();
  if (root.score_1H.defined())
    copies->root.score_1H = root.score_1H.clone(), copies->root.score_bias_1 = root.score_bias_1.clone();
  parameters_.for_blocks(
      [&](size_t i) { copies->blocks.push_back(block_copy(parameters_.blocks[i], placement_.compute)); });
  sampled_ = std::move(copies);
}

namespace {

// The rows of tokens as the first block takes them, from a base's embedding.
at::Tensor embed(const ModelConfig& config, const at::Tensor& embed_VH, const at::Tensor& ids_N,
                 std::span<const AdapterRows> adapters) {
  at::Tensor x_NH = embed_VH.index_select(0, ids_N);
  for (const AdapterRows& rows : adapters) {
    auto& adapter = dynamic_cast<AtenAdapter&>(*rows.adapter);
    const LoraTensors& lora = adapter.root().embed_lora;
    if (!lora.a_SI.defined()) continue;
    const at::Tensor u_NR = lora.a_SI.index_select(1, ids_N.narrow(0, rows.first, rows.count)).t();
    x_NH.narrow(0, rows.first, rows.count).add_(at::mm(u_NR, lora.b_OR.t()), adapter.config().lora.scale);
  }
  return scaled_embedding(config, x_NH);
}

}  // namespace

at::Tensor AtenNetwork::run(const at::Tensor& ids_N, const AtenPass& pass, std::span<const AdapterRows> adapters,
                            AtenPages* kv) {
  at::NoGradGuard no_grad;
  const bool copies = kv != nullptr && base_->sampled_;
  const ParameterSet& from = copies ? *base_->sampled_ : parameters_;
  if (kv == nullptr) {
    read_.enter(kRoot);
  } else {
    from.enter(kRoot);
  }
  at::Tensor x_NH = embed(config_, from.root.embed_VH, ids_N, adapters);
  for (size_t i = 0; i < parameters_.blocks.size(); ++i) {
    std::optional<LayerPages> pages;
    if (kv != nullptr) pages = kv->layer(static_cast<int64_t>(i));
    if (kv == nullptr) read_.enter(static_cast<int64_t>(i));
    x_NH = block_forward(config_, static_cast<int64_t>(i), copies ? from.blocks[i] : block(i), x_NH, pass, pages,
                         nullptr, lora_rows(adapters, i));
    if (kv == nullptr) read_.leave(static_cast<int64_t>(i));
  }
  return normalize(x_NH, from.root.final_norm_H, config_);
}

at::Tensor AtenNetwork::infer(std::span<const int32_t> ids, const Pass& pass, KvPages& kv) {
  require_gathered(parameters_, base_->sampled_ != nullptr);
  for (const AdapterRows& rows : pass.adapters) dynamic_cast<const AtenAdapter&>(*rows.adapter).require_here();
  auto& pages = dynamic_cast<AtenPages&>(kv);
  const bool plain = pages.steps() && pass.adapters.empty();
  if (const auto shape = plain ? decode_shape(pass) : std::nullopt) {
    return pages.steps()->infer(
        ids, pass, *shape, angles_, base_->weights_,
        [&](const at::Tensor& ids_R, const AtenPass& fixed) { return run(ids_R, fixed, {}, &pages); });
  }
  return run(upload_ids(ids, placement_.device),
             {plan_paged(pass, config_.shape.window, placement_.options()), angles_.of(pass)}, pass.adapters, &pages);
}

// A block's output from its kept input; record: with its graph.
at::Tensor AtenNetwork::forward_block(size_t i, const AtenActivations& kept, bool record) {
  at::AutoGradMode grad(record);
  return block_forward(config_, static_cast<int64_t>(i), block(i), kept.inputs_NH[i], kept.shared, std::nullopt,
                       nullptr, lora_rows(kept.pass.adapters, i));
}

at::Tensor AtenNetwork::forward(std::span<const int32_t> ids, Pass pass, bool recompute,
                                std::unique_ptr<Activations>* keep) {
  require(!pass.dropout.on(), "dropout: the backend of device \"", config_.device(), "\" has none");
  AtenPass shared{plan_rows(pass, config_.shape.window, placement_.options()), angles_.of(pass)};
  pass.adapters = own_rows(pass.rows);
  if (keep == nullptr) return run(upload_ids(ids, placement_.device), shared, pass.adapters, nullptr);
  auto kept = std::make_unique<AtenActivations>();
  kept->pass = std::move(pass);
  kept->recompute = recompute;
  kept->shared = std::move(shared);
  kept->ids_N = upload_ids(ids, placement_.device);
  at::AutoGradMode grad(true);
  read_.enter(kRoot);
  at::Tensor x_NH = embed(config_, parameters_.root.embed_VH, kept->ids_N, kept->pass.adapters);
  for (size_t i = 0; i < parameters_.blocks.size(); ++i) {
    kept->inputs_NH.push_back(cut(x_NH));
    read_.enter(static_cast<int64_t>(i));
    x_NH = forward_block(i, *kept, !recompute);
    read_.leave(static_cast<int64_t>(i));
    if (!recompute) kept->outputs_NH.push_back(x_NH);
  }
  kept->last_NH = cut(x_NH);
  kept->final_norm_H = leaf(parameters_.root.final_norm_H, at::kFloat);
  kept->hidden_NH = normalize(kept->last_NH, kept->final_norm_H, config_);
  at::Tensor hidden_NH = kept->hidden_NH.detach();
  *keep = std::move(kept);
  return hidden_NH;
}

void AtenNetwork::backward(const std::vector<HiddenGradient>& all, const Activations& activations) {
  const auto& kept = dynamic_cast<const AtenActivations&>(activations);
  std::vector<at::Tensor> d_NH;
  read_.enter(kRoot);
  for (const auto& [d_hidden_NH, gradients, d_routers_NE] : all) {
    gradients->enter(kRoot);
    std::vector<at::Tensor> weights, into;
    if (!adapter_) weights = {kept.final_norm_H}, into = {gradients->root.final_norm_H};
    d_NH.push_back(differentiate(kept.hidden_NH, kept.last_NH, weights, d_hidden_NH, into));
  }
  for (size_t i = parameters_.blocks.size(); i-- > 0;) {
    read_.enter(static_cast<int64_t>(i));
    const at::Tensor output_NH = kept.recompute ? forward_block(i, kept, true) : kept.outputs_NH[i];
    for (size_t g = 0; g < all.size(); ++g) {
      all[g].gradients->enter(static_cast<int64_t>(i));
      const BlockTensors& into = all[g].gradients->blocks[i];
      d_NH[g] = differentiate(output_NH, kept.inputs_NH[i], leaves(i), d_NH[g], tensors_of(into, adapter_ != nullptr));
      all[g].gradients->leave(static_cast<int64_t>(i));
    }
    read_.leave(static_cast<int64_t>(i));
  }
  for (size_t g = 0; g < all.size(); ++g) {
    d_NH[g] = scaled_embedding(config_, d_NH[g]);
    if (adapter_) {
      LoraTensors& into = all[g].gradients->root.embed_lora;
      if (into.a_SI.defined()) {
        const LoraTensors& lora = adapter_->root().embed_lora;
        const at::Tensor u_NR = lora.a_SI.index_select(1, kept.ids_N).t();
        into.b_OR.add_(at::mm(d_NH[g].t(), u_NR), config_.lora.scale);
        into.a_SI.index_add_(1, kept.ids_N, (at::mm(d_NH[g], lora.b_OR) * config_.lora.scale).t());
      }
      all[g].gradients->leave(kRoot);
      continue;
    }
    all[g].gradients->root.embed_VH.add_(at::embedding_dense_backward(d_NH[g], kept.ids_N, config_.vocab_size,
                                                                      /*padding_idx=*/-1,
                                                                      /*scale_grad_by_freq=*/false));
    all[g].gradients->leave(kRoot);
  }
}

void AtenNetwork::logits(const at::Tensor& hidden_RH, std::span<const AdapterRows> adapters, at::Tensor& logits_RV) {
  if (!base_->sampled_) parameters_.enter(kRoot);
  if (adapter_) adapter_->parameters().enter(kRoot);
  const bool value = config_.head == GYRE_HEAD_VALUE;
  const RootTensors& root = adapter_ && value ? value_root()
                            : base_->sampled_ ? base_->sampled_->root
                                              : parameters_.root;
  at::mm_out(logits_RV, hidden_RH, (value ? root.score_1H : root.head_VH).t());
  if (value) logits_RV.add_(root.score_bias_1);
  for (const AdapterRows& rows : adapters) {
    auto& adapter = dynamic_cast<AtenAdapter&>(*rows.adapter);
    const LoraTensors& lora = adapter.root().head_lora;
    if (!lora.a_SI.defined()) continue;
    const at::Tensor u = at::mm(hidden_RH.narrow(0, rows.first, rows.count), lora.a_SI.t());
    logits_RV.narrow(0, rows.first, rows.count).add_(at::mm(u, lora.b_OR.t()), adapter.config().lora.scale);
  }
  shape_logits(config_, logits_RV);
}

}  // namespace gyre
