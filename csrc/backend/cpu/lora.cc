#include "backend/cpu/lora.h"

#include <algorithm>
#include <memory>

#include "kernels/buffer.h"
#include "kernels/parallel.h"
#include "kernels/product.h"
#include "kernels/rowwise.h"

namespace gyre {

PackedLora::PackedLora(const LoraTensors& from, const std::vector<LoraPart>& modules, const ModelConfig& config, A of_a)
    : rank(config.lora.rank), scale(static_cast<float>(config.lora.scale)) {
  if (modules.empty()) return;
  const Precision p = config.precision();
  const float *rows = from.a_SI.const_data_ptr<float>(), *b = from.b_OR.const_data_ptr<float>();
  const int64_t in = from.a_SI.size(1);
  if (of_a != A::kNone) a.pack(rows, from.a_SI.size(0), in, p, /*narrow=*/true);
  for (const LoraPart& module : modules) {
    Part& part = parts.emplace_back(Part{module.first, module.target, {}, {}});
    part.b.pack(b, module.count, rank, p);
    b += module.count * rank;
    if (of_a == A::kApart) part.a.pack(rows, rank, in, p, /*narrow=*/true);
    rows += rank * in;
  }
}

void PackedLora::reduce(const float* x, int64_t ldx, int64_t rows, float* u) const {
  a.multiply(x, ldx, rows, nullptr, u, width());
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

void LayerDropout::apply(uint32_t target, Precision p, int64_t first, int64_t rows, int64_t width, const float* x,
                         int64_t ldx, float* y) const {
  const DropKey key = of->module(layer, target);
  const uint64_t* histories = of->histories.data() + first;
  if (ldx == 0) return drop_operands(key, histories, rows, width, p, x, y);
  drop(key, histories, rows, width, x, ldx, y, width);
}

namespace {

// Rows whose inputs are dropped at a time: they stay in the cache.
constexpr int64_t kDropped = 256;

// Calls body(first, count) for consecutive runs of rows.
template <class Body>
void for_dropped(int64_t rows, Body&& body) {
  for (int64_t first = 0; first < rows; first += kDropped) body(first, std::min(kDropped, rows - first));
}

}  // namespace

void PackedLora::add_dropped(const LayerDropout& dropout, const float* x, int64_t ldx, int64_t first, int64_t rows,
                             float* y, int64_t ldy) const {
  thread_local Buffer buffer;
  const auto& [data, in, precision, codes, scales, tail] = a.panels();
  const int64_t width = ldx == 0 ? operand_width(precision, in) : in;
  buffer.reserve(kDropped * (width + rank));
  float *const kept = buffer.data(), *const u = kept + kDropped * width;
  for_dropped(rows, [&](int64_t run, int64_t n) {
    const int64_t at = first + run;
    for (const Part& part : parts) {
      dropout.apply(part.target, precision, at, n, in, x + at * (ldx == 0 ? width : ldx), ldx, kept);
      part.a.multiply(kept, ldx == 0 ? 0 : in, n, nullptr, u, rank);
      gyre::scale(u, n * rank, scale * dropout.of->scale());
      part.b.add(u, rank, n, y + at * ldy + part.first, ldy);
    }
  });
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
    packed[static_cast<size_t>(e)] = PackedLora(from, {{"", 0, from.b_OR.size(0), 0}}, config);
  });
  return packed;
}

void add_lora(std::span<const LoraRows> all, const PackedLora PackedLoraBlock::* of, const float* x, int64_t ldx,
              float* y, int64_t ldy) {
  // Each on one thread where there are several: their products are small.
  parallel_for(std::ssize(all), 1, [&](int64_t i) {
    const LoraRows& rows = all[static_cast<size_t>(i)];
    const PackedLora& lora = rows.packed->*of;
    if (lora.empty()) return;
    if (rows.dropout) return lora.add_dropped(*rows.dropout, x, ldx, rows.first, rows.count, y, ldy);
    lora.add(x, ldx, rows.first, rows.count, y, ldy);
  });
}

namespace {

// Gradients of some of a projection's modules, which have one input x[rows, in]: adds to da and db, and to dx or
// overwrites it. `a` is packed from a_SI, the modules' own as b, da and db are.
void modules_backward(Precision p, std::span<const PackedLora::Part> parts, const PackedMatrix& a, const float* a_SI,
                      const float* b, float scale, int64_t rows, int64_t in, int64_t out, Rows dy, Rows x, float* da,
                      float* db, bool add, float* dx) {
  thread_local Buffer buffer;
  const int64_t all = a.out(), rank = all / std::ssize(parts);
  buffer.reserve(2 * rows * all);
  float *const u = buffer.data(), *const du = u + rows * all;
  a.multiply(x.data, x.operands ? 0 : in, rows, nullptr, u, all);
  gyre::scale(u, rows * all, scale);
  int64_t at = 0;
  for (const PackedLora::Part& part : parts) {
    const int64_t count = part.b.out();
    Factor d = dy.factor(p, out);
    d.first = part.first;
    multiply_factors(p, count, rank, rows, dy.turned(p, out, part.first), {u + at, all, 1}, true, db, rank);
    multiply_factors(p, rows, rank, count, d, {b, rank, 1}, false, du + at, all);
    b += count * rank, db += count * rank, at += rank;
  }
  gyre::scale(du, rows * all, scale);
  multiply_factors(p, all, in, rows, {du, 1, all}, x.factor(p, in), true, da, in);
  multiply(p, rows, in, all, {du, all, 1}, a_SI, in, add, dx, in);
}

}  // namespace

void lora_backward(const ModelConfig& config, const PackedLora& packed, const LoraTensors& weights, int64_t rows,
                   int64_t in, int64_t out, Rows dy, Rows x, LoraTensors& gradients, float* dx,
                   const std::optional<LayerDropout>& dropout) {
  if (packed.empty()) return;
  const Precision p = config.precision();
  const float *a = weights.a_SI.const_data_ptr<float>(), *b = weights.b_OR.const_data_ptr<float>();
  float *da = gradients.a_SI.mutable_data_ptr<float>(), *db = gradients.b_OR.mutable_data_ptr<float>();
  if (!dropout) {
    modules_backward(p, packed.parts, packed.a, a, b, packed.scale, rows, in, out, dy, x, da, db, true, dx);
    return;
  }
  thread_local Buffer buffer;
  buffer.reserve(kDropped * (in + round_up(in, 2)));
  float *const d_kept = buffer.data(), *const kept = d_kept + kDropped * in;
  const float scale = packed.scale * dropout->of->scale();
  for (const PackedLora::Part& part : packed.parts) {
    for_dropped(rows, [&](int64_t first, int64_t n) {
      dropout->apply(part.target, p, first, n, in, x.data + first * x.stride(p, in), x.operands ? 0 : in, kept);
      modules_backward(p, {&part, 1}, part.a, a, b, scale, n, in, out,
                       {dy.data + first * dy.stride(p, out), dy.operands}, {kept, x.operands}, da, db, false, d_kept);
      dropout->apply(part.target, p, first, n, in, d_kept, in, d_kept);
      add(dx + first * in, d_kept, n * in, dx + first * in);
    });
    a += packed.rank * in, da += packed.rank * in;
    b += part.b.out() * packed.rank, db += part.b.out() * packed.rank;
  }
}

PackedLoraBlock::PackedLoraBlock(const BlockTensors& from, const LoraParts& modules, const ModelConfig& config,
                                 PackedLora::A of_a)
    : qkv(from.qkv_lora, modules.qkv, config, of_a),
      out(from.out_lora, modules.out, config, of_a),
      gate_up(from.gate_up_lora, modules.gate_up, config, of_a),
      down(from.down_lora, modules.down, config, of_a),
      expert_gate_up(ExpertLora(from.expert_gate_up_lora, config.shape.experts).pack(config)),
      expert_down(ExpertLora(from.expert_down_lora, config.shape.experts).pack(config)) {}

PackedLoraRoot::PackedLoraRoot(const RootTensors& from, const LoraTensors& head_lora, const LoraParts& modules,
                               const ModelConfig& config, bool copy_a)
    : embed(from.embed_lora, modules.embed, config, PackedLora::A::kNone), head(head_lora, modules.head, config) {
  if (!embed.empty()) embed_a_RV = copy_a ? from.embed_lora.a_SI.clone() : from.embed_lora.a_SI;
}

void PackedLoraRoot::add_embedding(const int32_t* ids, int64_t rows, int64_t hidden, float* x) const {
  if (embed.empty()) return;
  std::vector<float> u(static_cast<size_t>(rows * embed.rank));
  embed_tokens(ids, rows, u.data());
  embed.expand(u.data(), rows, x, hidden);
}

void PackedLoraRoot::add_logits(const float* hidden, int64_t ld, int64_t rows, float* logits, int64_t ld_logits) const {
  if (head.empty()) return;
  std::vector<float> u(static_cast<size_t>(rows * head.width()));
  head.reduce(hidden, ld, rows, u.data());
  head.expand(u.data(), rows, logits, ld_logits);
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
    : config_(config),
      parameters_(parameters),
      parts_(config),
      blocks_(parameters.blocks.size()),
      apart_(parameters.blocks.size()) {}

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
    root_ = std::make_unique<PackedLoraRoot>(from, from.head_lora, parts_, config_, !parameters_.always_here());
  }
  return *root_;
}

const PackedLoraBlock& CpuAdapter::block(size_t i, bool apart) {
  if (blocks_[i] && apart && !apart_[i]) release(i);
  if (!blocks_[i]) {
    blocks_[i] = std::make_unique<PackedLoraBlock>(parameters_.blocks[i], parts_, config_,
                                                   apart ? PackedLora::A::kApart : PackedLora::A::kJoined);
    apart_[i] = apart;
    ++packed_;
  }
  return *blocks_[i];
}

}  // namespace gyre
