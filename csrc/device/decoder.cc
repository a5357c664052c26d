#include "device/decoder.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/autograd.h>

namespace gyre {
namespace {

// A leaf of the next graph with the same values.
at::Tensor cut(const at::Tensor& x) { return x.detach().requires_grad_(true); }

}  // namespace

DeviceDecoder::DeviceDecoder(const ModelConfig& config, const ParameterSet& parameters)
    : config_(config),
      parameters_(parameters),
      placement_(placement_of(config)),
      rope_(inverse_frequencies(rope_parameters(config)), placement_.device) {}

at::Tensor DeviceDecoder::ids_tensor(std::span<const int32_t> ids) const {
  return to_device(ids.data(), {static_cast<int64_t>(ids.size())}, placement_.device).to(at::kLong);
}

RowAngles DeviceDecoder::angles(const Pass& pass) { return rope_.rows(ids_tensor(pass.positions), pass.end); }

at::Tensor DeviceDecoder::embed(const at::Tensor& ids_N) const {
  return parameters_.root.embed_VH.index_select(0, ids_N);
}

at::Tensor DeviceDecoder::final_norm(const at::Tensor& x_NH) const {
  return normalize(x_NH, weights_.final_norm_H, config_);
}

at::Tensor DeviceDecoder::run(const at::Tensor& ids_N, const DevicePass& pass, KvPages* kv) {
  at::NoGradGuard no_grad;
  at::Tensor x_NH = embed(ids_N);
  for (size_t i = 0; i < weights_.blocks.size(); ++i) {
    std::optional<LayerPages> pages;
    if (kv != nullptr) pages = kv->layer(static_cast<int64_t>(i));
    x_NH = block_forward(config_, weights_.blocks[i], x_NH, pass, pages);
  }
  return final_norm(x_NH);
}

at::Tensor DeviceDecoder::run_kept(DeviceActivations& keep, bool recompute) {
  at::AutoGradMode grad(true);
  at::Tensor x_NH = embed(keep.ids_N);
  for (const BlockTensors& block : weights_.blocks) {
    keep.inputs_NH.push_back(cut(x_NH));
    at::AutoGradMode record(!recompute);
    x_NH = block_forward(config_, block, keep.inputs_NH.back(), keep.pass, std::nullopt);
    if (!recompute) keep.outputs_NH.push_back(x_NH);
  }
  keep.last_NH = cut(x_NH);
  keep.hidden_NH = final_norm(keep.last_NH);
  return keep.hidden_NH.detach();
}

at::Tensor DeviceDecoder::forward(std::span<const int32_t> ids, const Pass& pass, KvPages& kv, uint64_t version) {
  weights_.refresh(parameters_, version, placement_.compute);
  return run(ids_tensor(ids), {plan_paged(pass, placement_.device), angles(pass)}, &kv);
}

at::Tensor DeviceDecoder::forward(std::span<const int32_t> ids, const Pass& pass, DeviceActivations* keep,
                                  bool recompute, uint64_t version) {
  weights_.refresh(parameters_, version, placement_.compute);
  DevicePass on_device{plan_rows(pass, placement_.device), angles(pass)};
  if (keep == nullptr) return run(ids_tensor(ids), on_device, nullptr);
  keep->ids_N = ids_tensor(ids);
  keep->pass = std::move(on_device);
  return run_kept(*keep, recompute);
}

void DeviceDecoder::backward(const at::Tensor& d_hidden_NH, const DeviceActivations& kept, ParameterSet& gradients) {
  const auto differentiate = [](const at::Tensor& output, const at::Tensor& input, std::vector<at::Tensor> weights,
                                const at::Tensor& d_output, std::vector<at::Tensor> into) {
    weights.insert(weights.begin(), input);
    const auto d = torch::autograd::grad({output}, weights, {d_output}, /*retain_graph=*/true);
    for (size_t i = 0; i < into.size(); ++i) into[i].add_(d[i + 1]);
    return d[0];
  };
  at::Tensor d_NH =
      differentiate(kept.hidden_NH, kept.last_NH, {weights_.final_norm_H}, d_hidden_NH, {gradients.root.final_norm_H});
  for (size_t i = weights_.blocks.size(); i-- > 0;) {
    at::Tensor output_NH;
    if (kept.outputs_NH.empty()) {
      at::AutoGradMode grad(true);
      output_NH = block_forward(config_, weights_.blocks[i], kept.inputs_NH[i], kept.pass, std::nullopt);
    } else {
      output_NH = kept.outputs_NH[i];
    }
    d_NH = differentiate(output_NH, kept.inputs_NH[i], tensors_of(weights_.blocks[i]), d_NH,
                         tensors_of(gradients.blocks[i]));
  }
  gradients.root.embed_VH.add_(at::embedding_dense_backward(d_NH, kept.ids_N, config_.vocab_size,
                                                            /*padding_idx=*/-1, /*scale_grad_by_freq=*/false));
}

void DeviceDecoder::logits(const at::Tensor& hidden_RH, at::Tensor& logits_RV) const {
  const RootTensors& root = parameters_.root;
  const bool value = config_.head == HeadKind::kValue;
  at::mm_out(logits_RV, hidden_RH, (value ? root.score_1H : root.head_VH).t());
  if (value) logits_RV.add_(root.score_bias_1);
}

}  // namespace gyre
