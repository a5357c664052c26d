#include "backend/aten/network.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/gelu.h>
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

constexpr at::Tensor BlockTensors::*kNorms[] = {&BlockTensors::attn_norm_H,     &BlockTensors::q_norm_D,
                                                &BlockTensors::k_norm_D,        &BlockTensors::mlp_norm_H,
                                                &BlockTensors::attn_out_norm_H, &BlockTensors::mlp_out_norm_H};
constexpr at::Tensor BlockTensors::*kProjections[] = {
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

// The tensors of an adapter's block that are there, in a fixed order.
std::vector<at::Tensor> lora_tensors_of(const BlockTensors& block) {
  std::vector<at::Tensor> all;
  for (const LoraTensors* lora : {&block.qkv_lora, &block.out_lora, &block.gate_up_lora, &block.down_lora}) {
    if (lora->a_SI.defined()) all.insert(all.end(), {lora->a_SI, lora->b_OR});
  }
  return all;
}

// Adds the adapters' part of a projection of x to y.
void add_lora(std::span<const AtenLoraRows> all, LoraTensors BlockTensors::*of, std::vector<LoraPart> LoraParts::*parts,
              const at::Tensor& x, at::Tensor& y) {
  for (const AtenLoraRows& rows : all) {
    const LoraTensors& lora = rows.tensors->*of;
    if (!lora.a_SI.defined()) continue;
    const int64_t rank = lora.b_OR.size(1);
    const at::Tensor u =
        at::linear(x.narrow(0, rows.first, rows.count).to(lora.a_SI.scalar_type()), lora.a_SI) * rows.scale;
    int64_t at = 0, out = 0;
    for (const LoraPart& part : rows.parts->*parts) {
      y.narrow(0, rows.first, rows.count)
          .narrow(1, part.first, part.count)
          .add_(at::linear(u.narrow(1, at, rank), lora.b_OR.narrow(0, out, part.count)));
      at += rank, out += part.count;
    }
  }
}

// A leaf of the next graph with the same values.
at::Tensor cut(const at::Tensor& x) { return x.detach().requires_grad_(true); }

// In the weight's type.
at::Tensor project(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(x.to(weight.scalar_type()), weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

// x: f32 [N, heads, head_dim], of which as many components rotate as there are angles.
at::Tensor rotate(const at::Tensor& x, const Angles& angles, bool interleaved) {
  const int64_t half = angles.cosines.size(-1), rest = x.size(-1) - 2 * half;
  const at::Tensor pairs = interleaved ? x.narrow(-1, 0, 2 * half).unflatten(-1, {half, 2}) : at::Tensor();
  const at::Tensor first = interleaved ? pairs.select(-1, 0) : x.narrow(-1, 0, half),
                   second = interleaved ? pairs.select(-1, 1) : x.narrow(-1, half, half);
  const at::Tensor one = first * angles.cosines - second * angles.sines,
                   other = second * angles.cosines + first * angles.sines;
  const at::Tensor turned =
      interleaved ? at::cat({one.unsqueeze(-1), other.unsqueeze(-1)}, -1).flatten(-2) : at::cat({one, other}, -1);
  return rest == 0 ? turned : at::cat({turned, x.narrow(-1, 2 * half, rest)}, -1);
}

// The norm over all heads of each row. Of a part `join` gives those of all parts, and `first` is where its own begin.
template <class Join>
at::Tensor normalize_wide(const at::Tensor& x, const at::Tensor& weight, const ModelConfig& c, int64_t first,
                          Join&& join) {
  const at::Tensor rows = join(x.flatten(1));
  return normalize(rows, weight, c).narrow(1, first * c.head_dim, x.size(1) * c.head_dim).view(x.sizes());
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
  if (!weight.defined()) return x;
  return at::rms_norm(x, {x.size(-1)}, config.shape.unit_norms ? weight + 1 : weight, config.rms_norm_eps);
}

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
  return to_device(ids.data(), {static_cast<int64_t>(ids.size())}, device).to(at::kLong);
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

at::Tensor block_forward(const ModelConfig& c, int64_t layer, const BlockTensors& w, const at::Tensor& x_NH,
                         const AtenPass& pass, const std::optional<LayerPages>& pages, const TensorParallel* parallel,
                         std::span<const AtenLoraRows> lora) {
  using B = BlockTensors;
  using P = LoraParts;
  const at::Tensor normed_NH = normalize(x_NH, w.attn_norm_H, c);
  at::Tensor qkv_NR = project(normed_NH, w.qkv_RH, w.qkv_bias_R);
  add_lora(lora, &B::qkv_lora, &P::qkv, normed_NH, qkv_NR);
  const at::Tensor qkv = qkv_NR.view({x_NH.size(0), c.num_heads + 2 * c.num_kv_heads, c.head_dim});
  at::Tensor q = qkv.narrow(1, 0, c.num_heads).to(at::kFloat);
  at::Tensor k = qkv.narrow(1, c.num_heads, c.num_kv_heads).to(at::kFloat);
  const at::Tensor v = qkv.narrow(1, c.num_heads + c.num_kv_heads, c.num_kv_heads);
  const gyre_shape& shape = c.shape;
  if (c.qk_norm && shape.wide_qk_norm) {
    q = normalize_wide(q, w.q_norm_D, c, parallel ? parallel->mine().heads.first : 0,
                       [&](const at::Tensor& own) { return parallel ? parallel->query(own.contiguous()) : own; });
    k = normalize_wide(k, w.k_norm_D, c, parallel ? parallel->mine().kv_heads.first : 0, [&](const at::Tensor& own) {
      return parallel ? parallel->keys(own.contiguous(), c.head_dim) : own;
    });
  } else if (c.qk_norm) {
    q = normalize(q, w.q_norm_D, c);
    k = normalize(k, w.k_norm_D, c);
  }
  const int kind = c.layer_kind(layer);
  if ((kind & GYRE_LAYER_NOPE) == 0) {
    const Angles& angles = (kind & GYRE_LAYER_LOCAL) != 0 ? pass.angles.local : pass.angles.main;
    q = rotate(q, angles, shape.rope_interleaved);
    k = rotate(k, angles, shape.rope_interleaved);
  }
  const auto type = v.scalar_type();
  const AttentionShape attention{c.num_heads,
                                 c.num_kv_heads,
                                 c.head_dim,
                                 c.window_of(layer),
                                 static_cast<float>(shape.query_scale),
                                 static_cast<float>(shape.score_cap)};
  at::Tensor o = attend_tensors(attention, q.to(type), k.to(type), v, pass.attention, pages);
  if (parallel) o = parallel->query(o);
  const auto added = [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& to,
                         const at::Tensor& out_norm, LoraTensors B::*of, std::vector<LoraPart> P::*parts) {
    at::Tensor own = project(x, weight, bias);
    add_lora(lora, of, parts, x, own);
    if (parallel) own = parallel->hidden(own);
    if (out_norm.defined()) own = normalize(own.to(at::kFloat), out_norm, c);
    return to + (shape.residual_scale != 0 ? own * shape.residual_scale : own);
  };
  const at::Tensor middle_NH = added(o, w.out_HQ, w.out_bias_H, x_NH, w.attn_out_norm_H, &B::out_lora, &P::out);

  const at::Tensor mlp_normed_NH = normalize(middle_NH, w.mlp_norm_H, c);
  at::Tensor gate_up = project(mlp_normed_NH, w.gate_up_2FH, w.gate_up_bias_2F);
  add_lora(lora, &B::gate_up_lora, &P::gate_up, mlp_normed_NH, gate_up);
  const int64_t f = c.intermediate_size;
  const at::Tensor gate = gate_up.narrow(1, 0, f);
  at::Tensor act = (shape.activation == GYRE_SILU ? at::silu(gate) : at::gelu(gate, "tanh")) * gate_up.narrow(1, f, f);
  if (parallel) act = parallel->intermediate(act);
  return added(act, w.down_HF, w.down_bias_H, middle_NH, w.mlp_out_norm_H, &B::down_lora, &P::down);
}

AtenPages::AtenPages(const ModelConfig& config, const Placement& placement, int64_t num_pages)
    : num_pages_(num_pages), window_(config.shape.window) {
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
  steps_ = std::make_unique<DecodeSteps>(device, num_pages_, window_, std::move(recorders));
}

void AtenAdapter::touch() {
  blocks_.assign(blocks_.size(), {});
  made_ = 0;
  root_.reset();
}

const BlockTensors& AtenAdapter::block(size_t i) {
  BlockTensors& block = blocks_[i];
  if (lora_tensors_of(block).empty()) {
    const BlockTensors& from = parameters_.blocks[i];
    const auto take = [&](LoraTensors BlockTensors::*of) {
      const LoraTensors& lora = from.*of;
      if (!lora.a_SI.defined()) return;
      const bool own = !parameters_.always_here();
      (block.*of).a_SI = leaf(own ? lora.a_SI.clone() : lora.a_SI, compute_);
      (block.*of).b_OR = leaf(own ? lora.b_OR.clone() : lora.b_OR, compute_);
    };
    for (const auto of :
         {&BlockTensors::qkv_lora, &BlockTensors::out_lora, &BlockTensors::gate_up_lora, &BlockTensors::down_lora}) {
      take(of);
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
  for (size_t i = 0; i < blocks_.size(); ++i) {
    parameters_.enter(static_cast<int64_t>(i));
    block(i);
    parameters_.leave(static_cast<int64_t>(i));
  }
}

AtenNetwork::AtenNetwork(const ModelConfig& config, const ParameterSet& parameters, const Placement& placement)
    : config_(config), parameters_(parameters), placement_(placement), base_(this), angles_(config, placement) {
  touch();
}

AtenNetwork::AtenNetwork(const ModelConfig& config, const ParameterSet& adapter, AtenNetwork& base)
    : config_(config),
      parameters_(base.parameters_),
      placement_(base.placement_),
      base_(&base),
      adapter_(std::make_unique<AtenAdapter>(config, adapter, placement_.compute)),
      angles_(config, placement_) {}

void AtenNetwork::touch() {
  if (adapter_) return adapter_->touch();
  blocks_.assign(parameters_.blocks.size(), {});
  release();
}

void AtenNetwork::enter(int64_t unit) const {
  parameters_.enter(unit);
  if (adapter_) adapter_->parameters().enter(unit);
}

void AtenNetwork::leave(int64_t unit) const {
  parameters_.leave(unit);
  if (adapter_) adapter_->parameters().leave(unit);
}

std::vector<AdapterRows> AtenNetwork::own_rows(int64_t rows) const {
  if (!adapter_) return {};
  return {{adapter_.get(), 0, rows}};
}

std::vector<AtenLoraRows> AtenNetwork::lora_rows(std::span<const AdapterRows> adapters, size_t block) {
  std::vector<AtenLoraRows> all;
  for (const AdapterRows& r : adapters) {
    all.push_back(dynamic_cast<AtenAdapter&>(*r.adapter).rows(block, r.first, r.count));
  }
  return all;
}

std::vector<at::Tensor> AtenNetwork::leaves(size_t block) {
  return adapter_ ? lora_tensors_of(adapter_->block(block)) : tensors_of(blocks_[block]);
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
  for (size_t i = 0; i < parameters_.blocks.size(); ++i) {
    parameters_.enter(static_cast<int64_t>(i));
    copies->blocks.push_back(block_copy(parameters_.blocks[i], placement_.compute));
    parameters_.leave(static_cast<int64_t>(i));
  }
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
    enter(kRoot);
  } else {
    from.enter(kRoot);
  }
  at::Tensor x_NH = embed(config_, from.root.embed_VH, ids_N, adapters);
  for (size_t i = 0; i < parameters_.blocks.size(); ++i) {
    std::optional<LayerPages> pages;
    if (kv != nullptr) pages = kv->layer(static_cast<int64_t>(i));
    if (kv == nullptr) enter(static_cast<int64_t>(i));
    x_NH = block_forward(config_, static_cast<int64_t>(i), copies ? from.blocks[i] : block(i), x_NH, pass, pages,
                         nullptr, lora_rows(adapters, i));
    if (kv == nullptr) leave(static_cast<int64_t>(i));
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
             {plan_paged(pass, config_.shape.window, placement_.device), angles_.of(pass)}, pass.adapters, &pages);
}

at::Tensor AtenNetwork::forward(std::span<const int32_t> ids, Pass pass, bool recompute,
                                std::unique_ptr<Activations>* keep) {
  if (pass.dropout.on()) {
    throw std::invalid_argument("dropout: the backend of device \"" + std::string(config_.device()) + "\" has none");
  }
  AtenPass shared{plan_rows(pass, config_.shape.window, placement_.device), angles_.of(pass)};
  pass.adapters = own_rows(pass.rows);
  if (keep == nullptr) return run(upload_ids(ids, placement_.device), shared, pass.adapters, nullptr);
  auto kept = std::make_unique<AtenActivations>();
  kept->pass = std::move(pass);
  kept->recompute = recompute;
  kept->shared = std::move(shared);
  kept->ids_N = upload_ids(ids, placement_.device);
  at::AutoGradMode grad(true);
  enter(kRoot);
  at::Tensor x_NH = embed(config_, parameters_.root.embed_VH, kept->ids_N, kept->pass.adapters);
  for (size_t i = 0; i < parameters_.blocks.size(); ++i) {
    kept->inputs_NH.push_back(cut(x_NH));
    at::AutoGradMode record(!recompute);
    enter(static_cast<int64_t>(i));
    x_NH = block_forward(config_, static_cast<int64_t>(i), block(i), kept->inputs_NH.back(), kept->shared, std::nullopt,
                         nullptr, lora_rows(kept->pass.adapters, i));
    leave(static_cast<int64_t>(i));
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
  enter(kRoot);
  for (const auto& [d_hidden_NH, gradients, d_routers_NE] : all) {
    gradients->enter(kRoot);
    std::vector<at::Tensor> weights, into;
    if (!adapter_) weights = {kept.final_norm_H}, into = {gradients->root.final_norm_H};
    d_NH.push_back(differentiate(kept.hidden_NH, kept.last_NH, weights, d_hidden_NH, into));
  }
  for (size_t i = parameters_.blocks.size(); i-- > 0;) {
    enter(static_cast<int64_t>(i));
    at::Tensor output_NH;
    if (kept.recompute) {
      at::AutoGradMode grad(true);
      output_NH = block_forward(config_, static_cast<int64_t>(i), block(i), kept.inputs_NH[i], kept.shared,
                                std::nullopt, nullptr, lora_rows(kept.pass.adapters, i));
    } else {
      output_NH = kept.outputs_NH[i];
    }
    for (size_t g = 0; g < all.size(); ++g) {
      all[g].gradients->enter(static_cast<int64_t>(i));
      const BlockTensors& into = all[g].gradients->blocks[i];
      d_NH[g] = differentiate(output_NH, kept.inputs_NH[i], leaves(i), d_NH[g],
                              adapter_ ? lora_tensors_of(into) : tensors_of(into));
      all[g].gradients->leave(static_cast<int64_t>(i));
    }
    leave(static_cast<int64_t>(i));
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
