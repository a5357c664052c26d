#include "backend/cpu/lora.h"

#include <memory>

#include "kernels/buffer.h"
#include "kernels/parallel.h"
#include "kernels/product.h"

namespace gyre {

PackedLora::PackedLora(const LoraTensors& from, const std::vector<LoraPart>& modules, const ModelConfig& config,
                       bool with_a)
    : rank(config.lora.rank), scale(static_cast<float>(config.lora.scale)) {
  if (modules.empty()) return;
  const Precision p = config.precision();
  if (with_a) {
    a.pack(from.a_SI.const_data_ptr<float>(), from.a_SI.size(0), from.a_SI.size(1), p, /*narrow=*/true);
  }
  const float* b = from.b_OR.const_data_ptr<float>();
  for (const LoraPart& module : modules) {
    parts.emplace_back(Part{module.first, {}}).b.pack(b, module.count, rank, p);
    b += module.count * rank;
  }
}

void PackedLora::reduce(const float* x, int64_t ldx, int64_t rows, float* u) const {
  if (ldx == 0) {
    a.multiply_operands(x, rows, nullptr, u, width());
  } else {
    a.multiply(x, ldx, rows, nullptr, u, width());
  }
  for (int64_t i = 0; i < rows * width(); ++i) u[i] *= scale;
}

void PackedLora::expand(const float* u, int64_t rows, float* y, int64_t ldy) const {
  for (const Part& part : parts) {
    part.b.add(u, width(), rows, y + part.first, ldy);
    u += rank;
  }
}

void PackedLora::add(const float* x, int64_t ldx, int64_t first, int64_t rows, float* y, int64_t ldy) const {
  thread_local Buffer buffer;
  buffer.reserve(rows * width());
  const Panels& panels = a.panels();
  reduce(x + first * (ldx == 0 ? operand_width(panels.precision, panels.in) : ldx), ldx, rows, buffer.data());
  expand(buffer.data(), rows, y + first * ldy, ldy);
}

ExpertLora::ExpertLora(const LoraTensors& all, int64_t experts) {
  if (!all.a_SI.defined()) return;
  const int64_t rank = all.a_SI.size(0) / experts;
  b_EOR = all.b_OR.view({-1, rank, experts}).permute({2, 0, 1}).contiguous();
  for (int64_t e = 0; e < experts; ++e) each.push_back({all.a_SI.narrow(0, e * rank, rank), b_EOR.select(0, e)});
}

void ExpertLora::store(LoraTensors& all) const {
  if (b_EOR.defined()) all.b_OR.view({-1, b_EOR.size(2), b_EOR.size(0)}).copy_(b_EOR.permute({1, 2, 0}));
}

std::vector<PackedLora> ExpertLora::pack(const ModelConfig& config) const {
  std::vector<PackedLora> packed(each.size());
  parallel_for(std::ssize(each), 1, [&](int64_t e) {
    const LoraTensors& from = each[static_cast<size_t>(e)];
    packed[static_cast<size_t>(e)] = PackedLora(from, {{"", 0, from.b_OR.size(0)}}, config);
  });
  return packed;
}

void add_lora(std::span<const LoraRows> all, const PackedLora PackedLoraBlock::*of, const float* x, int64_t ldx,
              float* y, int64_t ldy) {
  // Each on one thread where there are several: their products are small.
  parallel_for(std::ssize(all), 1, [&](int64_t i) {
    const LoraRows& rows = all[static_cast<size_t>(i)];
    const PackedLora& lora = rows.packed->*of;
    if (!lora.empty()) lora.add(x, ldx, rows.first, rows.count, y, ldy);
  });
}

void lora_backward(const ModelConfig& config, const PackedLora& packed, const LoraTensors& weights, int64_t rows,
                   int64_t in, int64_t out, const float* dy, const float* x, LoraTensors& gradients, float* dx) {
  if (packed.empty()) return;
  thread_local Buffer buffer;
  const int64_t rank = packed.rank, all = packed.width();
  buffer.reserve(2 * rows * all);
  float *const u = buffer.data(), *const du = u + rows * all;
  packed.reduce(x, in, rows, u);
  const Precision p = config.precision();
  const float* b = weights.b_OR.const_data_ptr<float>();
  float* db = gradients.b_OR.mutable_data_ptr<float>();
  int64_t at = 0;
  for (const PackedLora::Part& part : packed.parts) {
    const int64_t count = part.b.out();
    multiply(p, count, rank, rows, {dy + part.first, 1, out}, u + at, all, true, db, rank);
    multiply(p, rows, rank, count, {dy + part.first, out, 1}, b, rank, false, du + at, all);
    b += count * rank, db += count * rank, at += rank;
  }
  for (int64_t i = 0; i < rows * all; ++i) du[i] *= packed.scale;
  multiply(p, all, in, rows, {du, 1, all}, x, in, true, gradients.a_SI.mutable_data_ptr<float>(), in);
  multiply(p, rows, in, all, {du, all, 1}, weights.a_SI.const_data_ptr<float>(), in, true, dx, in);
}

void PackedLoraRoot::embed_tokens(const int32_t* ids, int64_t rows, float* u) const {
  const int64_t rank = embed.rank, vocab = embed_a_RV.size(1);
  const float* a = embed_a_RV.const_data_ptr<float>();
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t r = 0; r < rank; ++r) u[n * rank + r] = embed.scale * a[r * vocab + ids[n]];
  }
}

void embed_lora_backward(const ModelConfig& config, const PackedLoraRoot& packed, const LoraTensors& weights,
                         std::span<const int32_t> ids, const float* dx, LoraTensors& gradients) {
  if (packed.embed.empty()) return;
  const auto rows = std::ssize(ids);
  const int64_t rank = packed.embed.rank, hidden = config.hidden_size, vocab = config.vocab_size;
  std::vector<float> u(static_cast<size_t>(rows * rank)), du(u.size());
  packed.embed_tokens(ids.data(), rows, u.data());
  const Precision p = config.precision();
  multiply(p, hidden, rank, rows, {dx, 1, hidden}, u.data(), rank, true, gradients.b_OR.mutable_data_ptr<float>(),
           rank);
  multiply(p, rows, rank, hidden, {dx, hidden, 1}, weights.b_OR.const_data_ptr<float>(), rank, false, du.data(), rank);
  float* da = gradients.a_SI.mutable_data_ptr<float>();
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t r = 0; r < rank; ++r) {
      da[r * vocab + ids[static_cast<size_t>(n)]] += packed.embed.scale * du[static_cast<size_t>(n * rank + r)];
    }
  }
}

CpuAdapter::CpuAdapter(const ModelConfig& config, const ParameterSet& parameters)
    : config_(config), parameters_(parameters), parts_(config), blocks_(parameters.blocks.size()) {}

void CpuAdapter::touch() {
  for (auto& block : blocks_) block.reset();
  packed_ = 0;
  root_.reset();
}

void CpuAdapter::prepare() {
  if (!root_) {
    parameters_.enter(kRoot);
    root();
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i]) continue;
    parameters_.enter(static_cast<int64_t>(i));
    block(i);
    parameters_.leave(static_cast<int64_t>(i));
  }
}

void CpuAdapter::release(size_t i) {
  if (blocks_[i]) --packed_;
  blocks_[i].reset();
}

const PackedLoraRoot& CpuAdapter::root() {
  if (!root_) {
    const RootTensors& from = parameters_.root;
    root_ = std::make_unique<PackedLoraRoot>(PackedLoraRoot{PackedLora(from.embed_lora, parts_.embed, config_, false),
                                                            PackedLora(from.head_lora, parts_.head, config_),
                                                            {}});
    if (!parts_.embed.empty()) {
      const at::Tensor& a = from.embed_lora.a_SI;
      root_->embed_a_RV = parameters_.always_here() ? a : a.clone();
    }
  }
  return *root_;
}

const PackedLoraBlock& CpuAdapter::block(size_t i) {
  if (!blocks_[i]) {
    const BlockTensors& from = parameters_.blocks[i];
    blocks_[i] = std::make_unique<PackedLoraBlock>(PackedLoraBlock{
        PackedLora(from.qkv_lora, parts_.qkv, config_), PackedLora(from.out_lora, parts_.out, config_),
        PackedLora(from.gate_up_lora, parts_.gate_up, config_), PackedLora(from.down_lora, parts_.down, config_),
        ExpertLora(from.expert_gate_up_lora, config_.shape.experts).pack(config_),
        ExpertLora(from.expert_down_lora, config_.shape.experts).pack(config_)});
    ++packed_;
  }
  return *blocks_[i];
}

}  // namespace gyre
