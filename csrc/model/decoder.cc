#include "model/decoder.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros_like.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "device/decoder.h"
#include "kernels/norm.h"
#include "kernels/rows.h"
#include "model/block.h"

namespace gyre {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("decoder forward: " + what); }

}  // namespace

Decoder::Decoder(const ModelConfig& config)
    : config_(config),
      parameters_(make_parameters(config)),
      packed_(parameters_),
      rope_(inverse_frequencies(rope_parameters(config))) {
  if (on_tensors(config)) device_ = std::make_unique<DeviceDecoder>(config_, parameters_);
}

Decoder::~Decoder() = default;

void Decoder::check(std::span<const int32_t> ids) const {
  for (int32_t id : ids) {
    if (id < 0 || id >= config_.vocab_size) {
      refuse("token id " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(config_.vocab_size));
    }
  }
}

void Decoder::embed(std::span<const int32_t> ids, at::Tensor& x_NH) const {
  gather_rows(floats(parameters_.root.embed_VH), config_.hidden_size, ids.data(), static_cast<int64_t>(ids.size()),
              floats(x_NH));
}

// Makes the tensors that a training pass keeps.
void Decoder::place(Activations& keep) {
  const int64_t rows = keep.rows(), h = config_.hidden_size, layers = config_.num_layers;
  const int64_t each = recompute_ ? rows * h : BlockActivations::size(config_, rows);
  if (!activations_ || activations_.use_count() > 1) activations_ = std::make_shared<Buffer>();
  activations_->reserve(layers * each);
  keep.memory_ = activations_;
  float* memory = keep.memory_->data();
  keep.blocks_.resize(static_cast<size_t>(layers));
  for (BlockActivations& block : keep.blocks_) {
    if (recompute_) {
      block.input_NH = at::from_blob(memory, {rows, h});
    } else {
      block.place(config_, rows, memory);
    }
    memory += each;
  }
  keep.last_NH_ = at::empty({rows, h}, at::kFloat);
}

// `share_pages`: kv has one layer, which every block overwrites in turn (nothing reads it after the pass).
at::Tensor Decoder::run(std::span<const int32_t> ids, const Pass& pass, KvPages& kv, bool share_pages,
                        Activations* keep) {
  const bool keep_all = keep && !recompute_;
  if (keep) place(*keep);
  at::Tensor x_NH = keep ? keep->blocks_[0].input_NH : at::empty({pass.rows, config_.hidden_size}, at::kFloat);
  embed(ids, x_NH);
  rope_.reserve(pass.end);
  ForwardWorkspace work(config_, pass.rows);
  Buffer memory;
  BlockActivations scratch;
  if (!keep_all) {
    memory.reserve(BlockActivations::size(config_, pass.rows));
    scratch.place(config_, pass.rows, memory.data());
  }
  const auto layers = static_cast<size_t>(config_.num_layers);
  for (size_t i = 0; i < layers; ++i) {
    const int64_t layer = share_pages ? 0 : static_cast<int64_t>(i);
    BlockActivations& kept = keep_all ? keep->blocks_[i] : scratch;
    kept.input_NH = x_NH;
    if (keep) x_NH = i + 1 < layers ? keep->blocks_[i + 1].input_NH : keep->last_NH_;
    const Block block{config_, parameters_.blocks[i], rope_};
    block.forward(packed_.block(i), pass, kv.keys(layer), kv.values(layer), kept, work, x_NH);
  }
  at::Tensor hidden_NH = at::empty_like(x_NH), rstd_N = at::empty({pass.rows}, at::kFloat);
  rms_norm(floats(x_NH), pass.rows, config_.hidden_size, floats(parameters_.root.final_norm_H),
           static_cast<float>(config_.rms_norm_eps), floats(hidden_NH), floats(rstd_N));
  if (keep) keep->rstd_N_ = std::move(rstd_N);
  return hidden_NH;
}

KvPages Decoder::one_layer_pages(const Pass& pass) const {
  ModelConfig one_layer = config_;
  one_layer.num_layers = 1;
  return KvPages(one_layer, pass.num_pages);
}

at::Tensor Decoder::forward(std::span<const int32_t> ids, std::span<const RowSpan> spans, KvPages& kv) {
  const Pass pass = inference_pass(config_, static_cast<int64_t>(ids.size()), spans, kv.num_pages());
  check(ids);
  count(forward_work(config_, pass));
  if (device_) return device_->forward(ids, pass, kv, version());
  activations_.reset();
  packed_.keep_blocks();
  return run(ids, pass, kv, false, nullptr);
}

at::Tensor Decoder::forward(const Packing& packing, std::unique_ptr<Activations>* keep) {
  auto kept = std::make_unique<Activations>();
  kept->pass_ = training_pass(config_, packing);
  check(packing.ids);
  count(forward_work(config_, kept->pass_));
  if (device_) {
    if (keep) kept->device_ = std::make_shared<DeviceActivations>();
    at::Tensor hidden_NH = device_->forward(packing.ids, kept->pass_, kept->device_.get(), recompute_, version());
    if (keep) *keep = std::move(kept);
    return hidden_NH;
  }
  KvPages kv = one_layer_pages(kept->pass_);
  at::Tensor hidden_NH = run(packing.ids, kept->pass_, kv, true, keep ? kept.get() : nullptr);
  if (keep) {
    kept->ids_ = packing.ids;
    *keep = std::move(kept);
  }
  return hidden_NH;
}

void Decoder::backward(const std::vector<HiddenGradient>& all, const Activations& kept) {
  if (all.empty()) return;
  const int64_t rows = kept.rows(), h = config_.hidden_size;
  for (const auto& [d_hidden_NH, gradients] : all) {
    if (d_hidden_NH.dim() != 2 || d_hidden_NH.size(0) != rows || d_hidden_NH.size(1) != h ||
        !d_hidden_NH.is_contiguous()) {
      throw std::invalid_argument("decoder backward: the gradient of the hidden states must be contiguous [" +
                                  std::to_string(rows) + ", " + std::to_string(h) + "]");
    }
  }
  count(backward_work(config_, kept.pass_) * static_cast<double>(all.size()));
  if (device_) {
    for (const auto& [d_hidden_NH, gradients] : all) {
      if (kept.device_->outputs_NH.empty()) count(forward_work(config_, kept.pass_));
      device_->backward(d_hidden_NH, *kept.device_, *gradients);
    }
    return;
  }
  std::vector<at::Tensor> d_NH;
  for (const auto& [d_hidden_NH, gradients] : all) {
    d_NH.push_back(at::zeros_like(d_hidden_NH));
    rms_norm_backward(floats(kept.last_NH_), floats(kept.rstd_N_), floats(parameters_.root.final_norm_H),
                      floats(d_hidden_NH), rows, h, floats(d_NH.back()), floats(gradients->root.final_norm_H));
  }
  BackwardWorkspace work(config_, rows);
  std::unique_ptr<ForwardWorkspace> again;
  std::unique_ptr<KvPages> kv;
  Buffer memory;
  BlockActivations scratch;
  at::Tensor unused_NH;
  for (int64_t i = config_.num_layers - 1; i >= 0; --i) {
    const auto at = static_cast<size_t>(i);
    const Block block{config_, parameters_.blocks[at], rope_};
    const BlockActivations* activations = &kept.blocks_[at];
    if (!activations->qkv_NR.defined()) {
      if (!again) {
        again = std::make_unique<ForwardWorkspace>(config_, rows);
        kv = std::make_unique<KvPages>(one_layer_pages(kept.pass_));
        unused_NH = at::empty({rows, h}, at::kFloat);
        memory.reserve(BlockActivations::size(config_, rows));
        scratch.place(config_, rows, memory.data());
      }
      scratch.input_NH = activations->input_NH;
      block.forward(packed_.block(at), kept.pass_, kv->keys(0), kv->values(0), scratch, *again, unused_NH);
      activations = &scratch;
    }
    block.recompute(*activations, kept.pass_, work);
    for (size_t g = 0; g < all.size(); ++g) {
      block.backward(*activations, kept.pass_, work, d_NH[g], all[g].gradients->blocks[at]);
    }
  }
  for (size_t g = 0; g < all.size(); ++g) {
    scatter_add_rows(floats(d_NH[g]), h, kept.ids_.data(), rows, floats(all[g].gradients->root.embed_VH));
  }
  if (again) count(forward_work(config_, kept.pass_));
}

at::Tensor Decoder::row_logits(const at::Tensor& hidden_NH, std::span<const int64_t> rows) {
  const auto n = static_cast<int64_t>(rows.size());
  const at::Tensor hidden_RH = hidden_NH.index_select(0, to_device(rows.data(), {n}, hidden_NH.device()));
  at::Tensor logits_RV = at::empty({n, head_width()}, hidden_RH.options());
  logits(hidden_RH, logits_RV);
  return logits_RV.to(at::kCPU);
}

void Decoder::logits(const at::Tensor& hidden_RH, at::Tensor& logits_RV) {
  const int64_t rows = hidden_RH.size(0);
  if (hidden_RH.size(1) != config_.hidden_size || logits_RV.size(0) != rows || logits_RV.size(1) != head_width()) {
    throw std::invalid_argument("logits: expected [R, " + std::to_string(config_.hidden_size) +
                                "] hidden states and [R, " + std::to_string(head_width()) + "] logits");
  }
  if (device_) {
    device_->logits(hidden_RH, logits_RV);
  } else {
    packed_.head().multiply(floats(hidden_RH), hidden_RH.stride(0), rows, floats(parameters_.root.score_bias_1),
                            floats(logits_RV), logits_RV.stride(0));
  }
  count(head_work(config_, rows));
}

}  // namespace gyre
