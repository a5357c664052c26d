#include "backend/aten/network.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "backend/aten/cuda.h"

namespace gyre {
namespace {

constexpr at::Tensor BlockTensors::* kNorms[] = {&BlockTensors::attn_norm_H, &BlockTensors::q_norm_D,
                                                 &BlockTensors::k_norm_D, &BlockTensors::mlp_norm_H};
constexpr at::Tensor BlockTensors::* kProjections[] = {
    &BlockTensors::qkv_RH,      &BlockTensors::qkv_bias_R,      &BlockTensors::out_HQ,  &BlockTensors::out_bias_H,
    &BlockTensors::gate_up_2FH, &BlockTensors::gate_up_bias_2F, &BlockTensors::down_HF, &BlockTensors::down_bias_H};

at::Tensor leaf(const at::Tensor& parameter, at::ScalarType compute) {
  if (!parameter.defined()) return {};
  return parameter.detach().to(compute).requires_grad_(true);
}

// The tensors of a block that are there, in a fixed order.
std::vector<at::Tensor> tensors_of(const BlockTensors& block) {
  std::vector<at::Tensor> all;
  const auto add = [&](const auto& fields) {
    for (const auto field : fields) {
      if ((block.*field).defined()) all.push_back(block.*field);
    }
  };
  add(kNorms);
  add(kProjections);
  return all;
}

// A leaf of the next graph with the same values.
at::Tensor cut(const at::Tensor& x) { return x.detach().requires_grad_(true); }

// In the weight's type.
at::Tensor project(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(x.to(weight.scalar_type()), weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

// x: f32 [N, heads, head_dim].
at::Tensor rotate(const at::Tensor& x, const RowAngles& angles) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor first = x.narrow(-1, 0, half), second = x.narrow(-1, half, half);
  return at::cat({first * angles.cosines - second * angles.sines, second * angles.cosines + first * angles.sines}, -1);
}

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

at::Tensor normalize(const at::Tensor& x, const at::Tensor& weight, const ModelConfig& config) {
  return at::rms_norm(x, {x.size(-1)}, weight, config.rms_norm_eps);
}

at::Tensor upload_ids(std::span<const int32_t> ids, at::Device device) {
  return to_device(ids.data(), {static_cast<int64_t>(ids.size())}, device).to(at::kLong);
}

void AngleTable::reserve(int64_t end) {
  if (end <= uploaded_) return;
  uploaded_ = std::max<int64_t>({end, 2 * uploaded_, 256});
  rope_.reserve(uploaded_);
  cosines_ = to_device(rope_.cosines(0), {uploaded_, rope_.half()}, device_);
  sines_ = to_device(rope_.sines(0), {uploaded_, rope_.half()}, device_);
}

RowAngles AngleTable::of(const Pass& pass) {
  reserve(pass.end);
  return at(upload_ids(pass.positions, device_));
}

RowAngles AngleTable::at(const at::Tensor& positions_N) const {
  return {cosines_.index_select(0, positions_N).unsqueeze(1), sines_.index_select(0, positions_N).unsqueeze(1)};
}

BlockTensors block_copy(const BlockTensors& from, at::ScalarType compute) {
  BlockTensors copy;
  const auto add = [&](const auto& fields, at::ScalarType type) {
    for (const auto field : fields) {
      const at::Tensor& t = from.*field;
      if (t.defined()) copy.*field = t.to(type, /*non_blocking=*/false, /*copy=*/true);
    }
  };
  add(kNorms, at::kFloat);
  add(kProjections, compute);
  return copy;
}

at::Tensor block_forward(const ModelConfig& c, const BlockTensors& w, const at::Tensor& x_NH, const AtenPass& pass,
                         const std::optional<LayerPages>& pages, const TensorParallel* parallel) {
  const at::Tensor qkv = project(normalize(x_NH, w.attn_norm_H, c), w.qkv_RH, w.qkv_bias_R)
                             .view({x_NH.size(0), c.num_heads + 2 * c.num_kv_heads, c.head_dim});
  at::Tensor q = qkv.narrow(1, 0, c.num_heads).to(at::kFloat);
  at::Tensor k = qkv.narrow(1, c.num_heads, c.num_kv_heads).to(at::kFloat);
  const at::Tensor v = qkv.narrow(1, c.num_heads + c.num_kv_heads, c.num_kv_heads);
  if (c.qk_norm) {
    q = normalize(q, w.q_norm_D, c);
    k = normalize(k, w.k_norm_D, c);
  }
  const auto type = v.scalar_type();
  at::Tensor o =
      attend_tensors(rotate(q, pass.angles).to(type), rotate(k, pass.angles).to(type), v, pass.attention, pages);
  if (parallel) o = parallel->query(o);
  const auto added = [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& to) {
    const at::Tensor own = project(x, weight, bias);
    return to + (parallel ? parallel->hidden(own) : own);
  };
  const at::Tensor middle_NH = added(o, w.out_HQ, w.out_bias_H, x_NH);

  const at::Tensor gate_up = project(normalize(middle_NH, w.mlp_norm_H, c), w.gate_up_2FH, w.gate_up_bias_2F);
  const int64_t f = c.intermediate_size;
  at::Tensor act = at::silu(gate_up.narrow(1, 0, f)) * gate_up.narrow(1, f, f);
  if (parallel) act = parallel->intermediate(act);
  return added(act, w.down_HF, w.down_bias_H, middle_NH);
}

AtenPages::AtenPages(const ModelConfig& config, const Placement& placement, int64_t num_pages) : num_pages_(num_pages) {
  // Zeros: what a masked-out position holds is multiplied by 0, so it must be finite.
  keys_ = at::zeros({config.num_layers, (num_pages + 1) * kPageTokens, config.num_kv_heads, config.head_dim},
                    at::TensorOptions().dtype(placement.compute).device(placement.device));
  values_ = at::zeros_like(keys_);
}

void AtenPages::copy_page(int64_t from, int64_t to) {
  for (const at::Tensor* pool : {&keys_, &values_}) {
    const at::Tensor pages = pool->view({pool->size(0), num_pages_ + 1, -1});
    pages.select(1, to).copy_(pages.select(1, from));
  }
}

void AtenPages::decode_in_fixed_shapes(bool on) {
  steps_.reset();
  if (!on) return;
  const at::Device device = keys_.device();
  std::function<std::unique_ptr<Recorder>()> recorders;
  if (device.is_cuda()) {  // where nothing can be recorded, the shapes would only cost
    std::string problem;
    auto* const make =
        reinterpret_cast<decltype(&gyre_make_recorder)>(cuda_part("libgyre_graphs.so", "gyre_make_recorder", &problem));
    if (make == nullptr) return;
    recorders = [make, index = device.index()] { return std::unique_ptr<Recorder>(make(index)); };
  }
  steps_ = std::make_unique<DecodeSteps>(device, num_pages_, std::move(recorders));
}

AtenNetwork::AtenNetwork(const ModelConfig& config, const ParameterSet& parameters, const Placement& placement)
    : config_(config), parameters_(parameters), placement_(placement), angles_(config, placement) {
  touch();
}

void AtenNetwork::touch() {
  blocks_.assign(parameters_.blocks.size(), {});
  release();
}

// No two networks ever have the same number: a pool of pages may serve one after the other.
void AtenNetwork::release() {
  static std::atomic<uint64_t> last{0};
  sampled_.reset();
  weights_ = ++last;
}

// Of a block that is here. Of shards, leaves in float32 follow the storage's memory as it comes and goes, and
// autograd's graphs with them.
const BlockTensors& AtenNetwork::block(size_t i) {
  BlockTensors& block = blocks_[i];
  if (!block.attn_norm_H.defined()) {
    for (const auto field : kNorms) block.*field = leaf(parameters_.blocks[i].*field, at::kFloat);
    for (const auto field : kProjections) block.*field = leaf(parameters_.blocks[i].*field, placement_.compute);
  }
  return block;
}

void AtenNetwork::prepare() {
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
  for (size_t i = 0; i < parameters_.blocks.size(); ++i) {
    parameters_.enter(static_cast<int64_t>(i));
    copies->blocks.push_back(block_copy(parameters_.blocks[i], placement_.compute));
    parameters_.leave(static_cast<int64_t>(i));
  }
  sampled_ = std::move(copies);
}

at::Tensor AtenNetwork::run(const at::Tensor& ids_N, const AtenPass& pass, AtenPages* kv) {
  at::NoGradGuard no_grad;
  const ParameterSet& from = kv != nullptr && sampled_ ? *sampled_ : parameters_;
  from.enter(kRoot);
  at::Tensor x_NH = from.root.embed_VH.index_select(0, ids_N);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    std::optional<LayerPages> pages;
    if (kv != nullptr) pages = kv->layer(static_cast<int64_t>(i));
    from.enter(static_cast<int64_t>(i));
    x_NH = block_forward(config_, &from == &parameters_ ? block(i) : from.blocks[i], x_NH, pass, pages);
    from.leave(static_cast<int64_t>(i));
  }
  return normalize(x_NH, from.root.final_norm_H, config_);
}

at::Tensor AtenNetwork::infer(std::span<const int32_t> ids, const Pass& pass, KvPages& kv) {
  require_gathered(parameters_, sampled_ != nullptr);
  auto& pages = dynamic_cast<AtenPages&>(kv);
  if (const auto shape = pages.steps() ? decode_shape(pass) : std::nullopt) {
    return pages.steps()->infer(
        ids, pass, *shape, angles_, weights_,
        [&](const at::Tensor& ids_R, const AtenPass& fixed) { return run(ids_R, fixed, &pages); });
  }
  return run(upload_ids(ids, placement_.device), {plan_paged(pass, placement_.device), angles_.of(pass)}, &pages);
}

at::Tensor AtenNetwork::forward(std::span<const int32_t> ids, Pass pass, bool recompute,
                                std::unique_ptr<Activations>* keep) {
  AtenPass shared{plan_rows(pass, placement_.device), angles_.of(pass)};
  if (keep == nullptr) return run(upload_ids(ids, placement_.device), shared, nullptr);
  auto kept = std::make_unique<AtenActivations>();
  kept->pass = std::move(pass);
  kept->recompute = recompute;
  kept->shared = std::move(shared);
  kept->ids_N = upload_ids(ids, placement_.device);
  at::AutoGradMode grad(true);
  parameters_.enter(kRoot);
  at::Tensor x_NH = parameters_.root.embed_VH.index_select(0, kept->ids_N);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    kept->inputs_NH.push_back(cut(x_NH));
    at::AutoGradMode record(!recompute);
    parameters_.enter(static_cast<int64_t>(i));
    x_NH = block_forward(config_, block(i), kept->inputs_NH.back(), kept->shared, std::nullopt);
    parameters_.leave(static_cast<int64_t>(i));
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
  parameters_.enter(kRoot);
  for (const auto& [d_hidden_NH, gradients] : all) {
    gradients->enter(kRoot);
    d_NH.push_back(
        differentiate(kept.hidden_NH, kept.last_NH, {kept.final_norm_H}, d_hidden_NH, {gradients->root.final_norm_H}));
  }
  for (size_t i = blocks_.size(); i-- > 0;) {
    parameters_.enter(static_cast<int64_t>(i));
    at::Tensor output_NH;
    if (kept.recompute) {
      at::AutoGradMode grad(true);
      output_NH = block_forward(config_, block(i), kept.inputs_NH[i], kept.shared, std::nullopt);
    } else {
      output_NH = kept.outputs_NH[i];
    }
    for (size_t g = 0; g < all.size(); ++g) {
      all[g].gradients->enter(static_cast<int64_t>(i));
      d_NH[g] = differentiate(output_NH, kept.inputs_NH[i], tensors_of(blocks_[i]), d_NH[g],
                              tensors_of(all[g].gradients->blocks[i]));
      all[g].gradients->leave(static_cast<int64_t>(i));
    }
    parameters_.leave(static_cast<int64_t>(i));
  }
  for (size_t g = 0; g < all.size(); ++g) {
    all[g].gradients->root.embed_VH.add_(at::embedding_dense_backward(d_NH[g], kept.ids_N, config_.vocab_size,
                                                                      /*padding_idx=*/-1,
                                                                      /*scale_grad_by_freq=*/false));
    all[g].gradients->leave(kRoot);
  }
}

void AtenNetwork::logits(const at::Tensor& hidden_RH, at::Tensor& logits_RV) {
  if (!sampled_) parameters_.enter(kRoot);
  const RootTensors& root = sampled_ ? sampled_->root : parameters_.root;
  const bool value = config_.head == GYRE_HEAD_VALUE;
  at::mm_out(logits_RV, hidden_RH, (value ? root.score_1H : root.head_VH).t());
  if (value) logits_RV.add_(root.score_bias_1);
}

}  // namespace gyre
