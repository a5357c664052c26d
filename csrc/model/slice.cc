#include "model/slice.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace gyre {
namespace {

// Heads that share a key/value head stay together, or are divided evenly where that head is kept more than once.
bool divides(const ModelConfig& c, int64_t parts) {
  const int64_t group = c.num_heads / c.num_kv_heads;
  return parts <= c.num_kv_heads || (parts % c.num_kv_heads == 0 && group % (parts / c.num_kv_heads) == 0);
}

[[noreturn]] void refuse(const ModelConfig& c, int parts) {
  std::string fitting;
  for (int64_t n = 1; n <= c.num_heads; ++n) {
    if (divides(c, n)) fitting += (fitting.empty() ? "" : ", ") + std::to_string(n);
  }
  throw std::invalid_argument("sampling over " + std::to_string(parts) + " ranks together: the model's " +
                              std::to_string(c.num_heads) + " heads and " + std::to_string(c.num_kv_heads) +
                              " key/value heads can be divided over " + fitting + " of them");
}

// Part `part` of so many equal ones, which begin at whole vectors where there are enough.
Range share(int64_t total, int part, int parts) {
  constexpr int64_t kVector = 16;
  const int64_t unit = total >= kVector * parts ? kVector : 1;
  const auto cut = [&](int64_t p) { return p == parts ? total : total * p / parts / unit * unit; };
  return {cut(part), cut(part + 1) - cut(part)};
}

Slice slice_of(const ModelConfig& c, int part, int parts) {
  Slice s{.heads = {},
          .kv_heads = {},
          .hidden = share(c.hidden_size, part, parts),
          .intermediate = share(c.intermediate_size, part, parts),
          .expert = share(c.shape.expert_size, part, parts),
          .shared = share(c.shape.shared_size, part, parts),
          .vocab = share(c.vocab_size, part, parts)};
  const int64_t group = c.num_heads / c.num_kv_heads;
  if (parts <= c.num_kv_heads) {
    const int64_t first = c.num_kv_heads * part / parts, end = c.num_kv_heads * (part + 1) / parts;
    s.kv_heads = {first, end - first};
    s.heads = {first * group, (end - first) * group};
  } else {
    const int64_t each = group / (parts / c.num_kv_heads);
    s.heads = {part * each, each};
    s.kv_heads = {s.heads.first / group, 1};
  }
  return s;
}

at::Tensor rows(const at::Tensor& t, const Range& range) { return t.narrow(0, range.first, range.count); }

}  // namespace

Slicing::Slicing(const ModelConfig& config, int parts) : config_(config) {
  if (parts < 1 || !divides(config, parts)) refuse(config, parts);
  for (int part = 0; part < parts; ++part) slices_.push_back(slice_of(config, part, parts));
}

std::vector<int64_t> Slicing::widths(Range Slice::* of, int64_t each) const {
  std::vector<int64_t> all;
  for (const Slice& s : slices_) all.push_back(each * (s.*of).count);
  return all;
}

ModelConfig Slicing::config(int part) const {
  ModelConfig c = config_;
  const Slice& s = (*this)[part];
  c.num_heads = s.heads.count, c.num_kv_heads = s.kv_heads.count, c.intermediate_size = s.intermediate.count;
  c.shape.expert_size = s.expert.count, c.shape.shared_size = s.shared.count;
  return c;
}

ModelConfig Slicing::largest() const {
  const auto fewer = [](const Slice& a, const Slice& b) { return a.kv_heads.count < b.kv_heads.count; };
  return config(static_cast<int>(std::ranges::max_element(slices_, fewer) - slices_.begin()));
}

BlockTensors Slicing::block(const BlockTensors& whole, int part) const {
  const Slice& s = (*this)[part];
  const int64_t d = config_.head_dim, q = config_.query_width(), k = config_.kv_width();
  const auto heads = [&](const at::Tensor& fused) {
    if (!fused.defined()) return fused;
    const Range own{s.kv_heads.first * d, s.kv_heads.count * d};
    return at::cat({rows(fused, {s.heads.first * d, s.heads.count * d}), rows(fused, {q + own.first, own.count}),
                    rows(fused, {q + k + own.first, own.count})});
  };
  // The rows `own` of every `each` rows.
  const auto of_each = [](const at::Tensor& fused, int64_t each, const Range& own) {
    if (!fused.defined()) return fused;
    return fused.view({fused.size(0) / each, each, -1}).narrow(1, own.first, own.count).reshape({-1, fused.size(1)});
  };
  const bool mixes = whole.router_EH.defined();
  const auto gates = [&](const at::Tensor& fused) {
    if (!fused.defined()) return fused;
    const Range& own = mixes ? s.shared : s.intermediate;
    return at::cat({rows(fused, own), rows(fused, {fused.size(0) / 2 + own.first, own.count})});
  };
  const auto outputs = [&](const at::Tensor& t) { return t.defined() ? rows(t, s.hidden) : t; };
  BlockTensors own = whole;
  own.flat_P = at::Tensor();
  own.qkv_RH = heads(whole.qkv_RH), own.qkv_bias_R = heads(whole.qkv_bias_R);
  own.out_HQ = outputs(whole.out_HQ), own.out_bias_H = outputs(whole.out_bias_H);
  own.gate_up_2FH = gates(whole.gate_up_2FH), own.gate_up_bias_2F = gates(whole.gate_up_bias_2F);
  own.down_HF = outputs(whole.down_HF), own.down_bias_H = outputs(whole.down_bias_H);
  own.expert_gate_up_XH = of_each(whole.expert_gate_up_XH, config_.shape.expert_size, s.expert);
  own.expert_down_YF = of_each(whole.expert_down_YF, config_.hidden_size, s.hidden);
  return own;
}

// The part's outputs of an adapted module.
Range Slicing::outputs(uint32_t target, int part) const {
  const Slice& s = (*this)[part];
  const int64_t d = config_.head_dim;
  switch (target) {
    case GYRE_LORA_Q:
      return {s.heads.first * d, s.heads.count * d};
    case GYRE_LORA_K:
    case GYRE_LORA_V:
      return {s.kv_heads.first * d, s.kv_heads.count * d};
    case GYRE_LORA_GATE:
    case GYRE_LORA_UP:
      return s.intermediate;
    case GYRE_LORA_HEAD:
      return s.vocab;
    default:
      return s.hidden;
  }
}

LoraParts Slicing::modules(int part) const {
  LoraParts own(config(part));
  for (auto* of : {&own.out, &own.down, &own.head}) {  // of which a part's configuration says nothing
    for (LoraPart& module : *of) module.count = outputs(module.target, part).count;
  }
  return own;
}

LoraTensors Slicing::lora(const LoraTensors& whole, const std::vector<LoraPart>& modules, int part) const {
  if (modules.empty()) return whole;
  std::vector<at::Tensor> own;
  int64_t first = 0;
  for (const LoraPart& module : modules) {
    const Range range = outputs(module.target, part);
    own.push_back(rows(whole.b_OR, {first + range.first, range.count}));
    first += module.count;
  }
  return {whole.a_SI, at::cat(own)};
}

LoraTensors Slicing::head_lora(const LoraTensors& whole, int part) const {
  return lora(whole, LoraParts(config_).head, part);
}

BlockTensors Slicing::lora(const BlockTensors& whole, int part) const {
  const LoraParts all(config_);
  const Slice& s = (*this)[part];
  BlockTensors own;
  own.qkv_lora = lora(whole.qkv_lora, all.qkv, part), own.out_lora = lora(whole.out_lora, all.out, part);
  own.gate_up_lora = lora(whole.gate_up_lora, all.gate_up, part);
  own.down_lora = lora(whole.down_lora, all.down, part);
  own.expert_gate_up_lora = whole.expert_gate_up_lora, own.expert_down_lora = whole.expert_down_lora;
  if (at::Tensor& b = own.expert_gate_up_lora.b_OR; b.defined()) {
    b = at::cat({rows(b, s.expert), rows(b, {b.size(0) / 2 + s.expert.first, s.expert.count})});
  }
  if (at::Tensor& b = own.expert_down_lora.b_OR; b.defined()) b = rows(b, s.hidden).contiguous();
  return own;
}

}  // namespace gyre
