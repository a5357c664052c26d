#include "model/decoder.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/norm.h"
#include "kernels/rows.h"
#include "model/block.h"

namespace gyre {
namespace {

RopeParameters rope_parameters(const ModelConfig& c) {
  RopeParameters p;
  p.scaling = c.rope_scaling == RopeScaling::kLlama3   ? RopeParameters::kLlama3
              : c.rope_scaling == RopeScaling::kLinear ? RopeParameters::kLinear
                                                       : RopeParameters::kPlain;
  p.head_dim = c.head_dim;
  p.theta = c.rope_theta;
  p.factor = c.rope_factor;
  p.low_freq_factor = c.rope_low_freq_factor;
  p.high_freq_factor = c.rope_high_freq_factor;
  p.original_max_positions = c.rope_original_max_positions;
  return p;
}

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("decoder forward: " + what); }

}  // namespace

Decoder::Decoder(const ModelConfig& config)
    : config_(config),
      parameters_(make_parameters(config)),
      packed_(parameters_),
      rope_(inverse_frequencies(rope_parameters(config))) {}

at::Tensor Decoder::embed(std::span<const int32_t> ids) const {
  for (int32_t id : ids) {
    if (id < 0 || id >= config_.vocab_size) {
      refuse("token id " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(config_.vocab_size));
    }
  }
  const auto rows = static_cast<int64_t>(ids.size());
  at::Tensor x_NH = at::empty({rows, config_.hidden_size}, at::kFloat);
  gather_rows(floats(parameters_.root.embed_VH), config_.hidden_size, ids.data(), rows, floats(x_NH));
  return x_NH;
}

// `share_pages`: kv has one layer, which every block overwrites in turn (nothing reads it after the pass).
at::Tensor Decoder::run(std::span<const int32_t> ids, const Pass& pass, KvPages& kv, bool share_pages,
                        Activations* keep) {
  at::Tensor x_NH = embed(ids);
  rope_.reserve(pass.end);
  ForwardWorkspace work(config_, pass.rows);
  BlockActivations scratch;
  if (keep) keep->blocks_.resize(static_cast<size_t>(config_.num_layers));
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t layer = share_pages ? 0 : i;
    BlockActivations& kept = keep && !recompute_ ? keep->blocks_[at] : scratch;
    kept.input_NH = x_NH;
    if (keep) {
      keep->blocks_[at].input_NH = x_NH;
      x_NH = at::empty_like(x_NH);
    }
    const Block block{config_, parameters_.blocks[at], rope_};
    block.forward(packed_.block(at), pass, kv.keys(layer), kv.values(layer), kept, work, x_NH);
  }
  at::Tensor hidden_NH = at::empty_like(x_NH), rstd_N = at::empty({pass.rows}, at::kFloat);
  rms_norm(floats(x_NH), pass.rows, config_.hidden_size, floats(parameters_.root.final_norm_H),
           static_cast<float>(config_.rms_norm_eps), floats(hidden_NH), floats(rstd_N));
  count(forward_work(config_, pass));
  if (keep) {
    keep->last_NH_ = std::move(x_NH);
    keep->rstd_N_ = std::move(rstd_N);
  }
  return hidden_NH;
}

KvPages Decoder::one_layer_pages(const Pass& pass) const {
  ModelConfig one_layer = config_;
  one_layer.num_layers = 1;
  return KvPages(one_layer, pass.num_pages);
}

at::Tensor Decoder::forward(std::span<const int32_t> ids, std::span<const RowSpan> spans, KvPages& kv) {
  packed_.keep_blocks();
  const Pass pass = inference_pass(config_, static_cast<int64_t>(ids.size()), spans, kv.num_pages());
  return run(ids, pass, kv, false, nullptr);
}

at::Tensor Decoder::forward(const Packing& packing, std::unique_ptr<Activations>* keep) {
  auto kept = std::make_unique<Activations>();
  kept->pass_ = training_pass(config_, packing);
  KvPages kv = one_layer_pages(kept->pass_);
  at::Tensor hidden_NH = run(packing.ids, kept->pass_, kv, true, keep ? kept.get() : nullptr);
  if (keep) {
    kept->ids_ = packing.ids;
    *keep = std::move(kept);
  }
  return hidden_NH;
}

void Decoder::backward(const at::Tensor& d_hidden_NH, const Activations& kept, ParameterSet& gradients) {
  const int64_t rows = kept.rows(), h = config_.hidden_size;
  if (d_hidden_NH.dim() != 2 || d_hidden_NH.size(0) != rows || d_hidden_NH.size(1) != h ||
      !d_hidden_NH.is_contiguous()) {
    throw std::invalid_argument("decoder backward: the gradient of the hidden states must be contiguous [" +
                                std::to_string(rows) + ", " + std::to_string(h) + "]");
  }
  at::Tensor d_NH = at::zeros_like(d_hidden_NH);
  rms_norm_backward(floats(kept.last_NH_), floats(kept.rstd_N_), floats(parameters_.root.final_norm_H),
                    floats(d_hidden_NH), rows, h, floats(d_NH), floats(gradients.root.final_norm_H));
  BackwardWorkspace work(config_, rows);
  std::unique_ptr<ForwardWorkspace> again;
  std::unique_ptr<KvPages> kv;
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
        unused_NH = at::empty_like(d_NH);
      }
      scratch.input_NH = activations->input_NH;
      block.forward(packed_.block(at), kept.pass_, kv->keys(0), kv->values(0), scratch, *again, unused_NH);
      activations = &scratch;
    }
    block.backward(*activations, kept.pass_, work, d_NH, gradients.blocks[at]);
  }
  scatter_add_rows(floats(d_NH), h, kept.ids_.data(), rows, floats(gradients.root.embed_VH));
  if (again) count(forward_work(config_, kept.pass_));
  count(backward_work(config_, kept.pass_));
}

void Decoder::logits(const at::Tensor& hidden_RH, at::Tensor& logits_RV) {
  const PackedMatrix& head = packed_.head();
  const int64_t rows = hidden_RH.size(0);
  if (hidden_RH.size(1) != head.in() || logits_RV.size(0) != rows || logits_RV.size(1) != head.out()) {
    throw std::invalid_argument("logits: expected [R, " + std::to_string(head.in()) + "] hidden states and [R, " +
                                std::to_string(head.out()) + "] logits");
  }
  head.multiply(floats(hidden_RH), hidden_RH.stride(0), rows, floats(parameters_.root.score_bias_1), floats(logits_RV),
                logits_RV.stride(0));
  count(head_work(config_, rows));
}

}  // namespace gyre
