#include "backend/cpu/experts.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/product.h"
#include "kernels/rowwise.h"
#include "model/routing.h"

namespace gyre {
namespace {

// Calls body(expert, first pair, pairs) for each expert that has rows. A thread has experts of its own where there are
// enough of them; fewer are computed one by one, on all threads.
template <class Body>
void for_experts(const Routes& routes, Body&& body) {
  std::vector<int64_t> used;
  for (size_t e = 0; e + 1 < routes.first.size(); ++e) {
    if (routes.first[e] < routes.first[e + 1]) used.push_back(static_cast<int64_t>(e));
  }
  const auto count = std::ssize(used);
  parallel_for(count, count >= 2 * num_threads() ? 1 : count, [&](int64_t i) {
    const auto e = static_cast<size_t>(used[static_cast<size_t>(i)]);
    body(e, routes.first[e], routes.first[e + 1] - routes.first[e]);
  });
}

// Rows of some pairs, `width` floats each.
const float* gather(const Routes& routes, int64_t first, int64_t count, const float* rows, int64_t width, Buffer& to) {
  to.reserve(count * width);
  gather_rows(rows, width, routes.rows.data() + first, count, Precision::kFloat32, to.data());
  return to.data();
}

// In eight partial sums.
float inner_product(const float* a, const float* b, int64_t n) {
  float sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int64_t k = 0; k < 8; ++k) sums[k] += a[i + k] * b[i + k];
  }
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  float sum = 0;
  for (const float s : sums) sum += s;
  return sum;
}

void scale_rows(float* rows, int64_t width, const float* by, int64_t count) {
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t j = 0; j < width; ++j) rows[r * width + j] *= by[r];
  }
}

// Adds the adapters' part of an expert's product to y, from x, the rows of its pairs one after the other. ldx as in
// PackedLora::reduce().
void add_expert_lora(std::span<const LoraRows> all, std::vector<PackedLora> PackedLoraBlock::* of, size_t expert,
                     std::span<const int32_t> rows, const float* x, int64_t ldx, float* y, int64_t ldy) {
  for (const LoraRows& own : all) {
    const std::vector<PackedLora>& experts = own.packed->*of;
    if (experts.empty()) continue;
    const auto begin = std::ranges::lower_bound(rows, own.first),
               end = std::ranges::lower_bound(rows, own.first + own.count);
    if (begin != end) experts[expert].add(x, ldx, begin - rows.begin(), end - begin, y, ldy);
  }
}

}  // namespace

void PackedExperts::pack(const BlockTensors& from, Precision precision, bool int8) {
  const int64_t experts = from.router_EH.size(0), hidden = from.router_EH.size(1);
  router.pack(floats(from.router_EH), experts, hidden, Precision::kFloat32);
  gate_up.resize(static_cast<size_t>(experts)), down.resize(static_cast<size_t>(experts));
  const auto one = [&](PackedMatrix& to, const at::Tensor& all, int64_t expert) {
    const int64_t out = all.size(0) / experts, in = all.size(1);
    const float* weight = floats(all) + expert * out * in;
    int8 ? to.quantize(weight, out, in, precision) : to.pack(weight, out, in, precision);
  };
  parallel_for(experts, 1, [&](int64_t e) {
    one(gate_up[static_cast<size_t>(e)], from.expert_gate_up_XH, e);
    one(down[static_cast<size_t>(e)], from.expert_down_YF, e);
  });
}

void Mixture::forward(const float* x, const float* operands, int64_t n, bool keep_gate_up, ExpertActivations& kept,
                      ExpertWorkspace& work, float* y, int64_t ldy) const {
  const gyre_shape& shape = config.shape;
  const int64_t h = config.hidden_size, f = shape.expert_size;
  const Precision p = config.precision();
  packed->router.multiply(x, h, n, nullptr, floats(kept.router_NE), shape.experts);
  const Routes routes(shape, floats(kept.router_NE), n);
  const int64_t pairs = routes.pairs();
  float* gate_up = floats(kept.gate_up_C2F);
  if (p == Precision::kBfloat16) {
    work.gate_up.reserve(pairs * 2 * f);
    gate_up = work.gate_up.data();
  }
  for_experts(routes, [&](size_t e, int64_t first, int64_t count) {
    thread_local Buffer buffer;
    float* to = gate_up + first * 2 * f;
    const int64_t ldx = operands == nullptr ? h : 0;
    const float* own = operands == nullptr ? gather(routes, first, count, x, h, buffer)
                                           : gather(routes, first, count, operands, operand_width(p, h), buffer);
    packed->gate_up[e].multiply(own, ldx, count, nullptr, to, 2 * f);
    add_expert_lora(lora, &PackedLoraBlock::expert_gate_up, e, routes.rows_of(e), own, ldx, to, 2 * f);
  });
  work.act.reserve(pairs * round_up(f, 2));
  at::Tensor joined;
  glu(shape.activation, gate_up, pairs, f, parallel ? Precision::kFloat32 : p, work.act.data(), Precision::kFloat32,
      p == Precision::kBfloat16 && keep_gate_up ? floats(kept.gate_up_C2F) : nullptr);
  if (parallel) {
    joined = parallel->intermediate(at::from_blob(work.act.data(), {pairs, f}), &Slice::expert).contiguous();
  }
  work.out.reserve(pairs * ldy);
  for_experts(routes, [&](size_t e, int64_t first, int64_t count) {
    float* to = work.out.data() + first * ldy;
    const int64_t ldx = parallel ? joined.size(1) : 0;
    const float* act = parallel ? floats(joined) + first * ldx : work.act.data() + first * operand_width(p, f);
    packed->down[e].multiply(act, ldx, count, nullptr, to, ldy);
    add_expert_lora(lora, &PackedLoraBlock::expert_down, e, routes.rows_of(e), act, ldx, to, ldy);
    scale_rows(to, ldy, routes.weights.data() + first, count);
  });
  scatter_add_rows(work.out.data(), ldy, routes.rows.data(), pairs, y);
}

void Mixture::backward(const BlockTensors& weights, const ExpertActivations& kept, const at::Tensor& d_router_NE,
                       const float* x, const float* dy, int64_t n, ExpertWorkspace& work, BlockTensors& gradients,
                       float* dx) const {
  const gyre_shape& shape = config.shape;
  const int64_t h = config.hidden_size, f = shape.expert_size, experts = shape.experts;
  const Precision p = config.precision();
  const Routes routes(shape, floats(kept.router_NE), n);
  const int64_t pairs = routes.pairs();
  std::vector<float> d_weights(static_cast<size_t>(pairs));
  work.out.reserve(pairs * h);
  // One expert's matrix of all.
  const auto matrix = [&](const at::Tensor& all, std::vector<PackedMatrix> PackedExperts::* of, size_t e,
                          Buffer& buffer) -> Factor {
    const int64_t out = all.size(0) / experts, in = all.size(1);
    if (packed == nullptr) return Rows{floats(all) + static_cast<int64_t>(e) * out * in}.factor(p, in);
    buffer.reserve(out * operand_width(p, in));
    (packed->*of)[e].unpack(0, out, buffer.data());
    return Rows{buffer.data(), true}.factor(p, in);
  };
  const ExpertLora none({}, experts);
  const auto lora_of = [&](const BlockTensors* set, LoraTensors BlockTensors::* of) {
    return adapter == nullptr ? none : ExpertLora(set->*of, experts);
  };
  const ExpertLora lora_gate_up = lora_of(adapter, &BlockTensors::expert_gate_up_lora),
                   lora_down = lora_of(adapter, &BlockTensors::expert_down_lora);
  ExpertLora d_lora_gate_up = lora_of(&gradients, &BlockTensors::expert_gate_up_lora),
             d_lora_down = lora_of(&gradients, &BlockTensors::expert_down_lora);
  for_experts(routes, [&](size_t e, int64_t first, int64_t count) {
    thread_local Buffer rows_of_x, rows_of_dy, widened, inner, unpacked;
    const float *own_x = gather(routes, first, count, x, h, rows_of_x),
                *own_dy = gather(routes, first, count, dy, h, rows_of_dy), *gate_up = nullptr;
    if (p == Precision::kBfloat16) {
      widened.reserve(count * 2 * f);
      widen(halves(kept.gate_up_C2F) + first * 2 * f, count * 2 * f, widened.data());
      gate_up = widened.data();
    } else {
      gate_up = floats(kept.gate_up_C2F) + first * 2 * f;
    }
    inner.reserve(count * 5 * f);
    float *act = inner.data(), *weighted = act + count * f, *d_act = weighted + count * f,
          *d_gate_up = d_act + count * f;
    glu(shape.activation, gate_up, count, f, Precision::kFloat32, act, Precision::kFloat32, nullptr);
    multiply_factors(p, count, f, h, {own_dy, h, 1}, matrix(weights.expert_down_YF, &PackedExperts::down, e, unpacked),
                     false, d_act, f);
    std::copy_n(act, count * f, weighted);
    scale_rows(weighted, f, routes.weights.data() + first, count);
    if (!lora_down.each.empty()) {
      lora_backward(config, lora[0].packed->expert_down[e], lora_down.each[e], count, f, h, {own_dy}, {weighted},
                    d_lora_down.each[e], d_act);
    }
    for (int64_t r = 0; r < count; ++r) {
      d_weights[static_cast<size_t>(first + r)] = inner_product(act + r * f, d_act + r * f, f);
    }
    scale_rows(d_act, f, routes.weights.data() + first, count);
    glu_backward(shape.activation, gate_up, d_act, count, f, Precision::kFloat32, nullptr, d_gate_up);
    const auto own = static_cast<int64_t>(e);
    if (const at::Tensor& d = gradients.expert_down_YF; d.defined()) {
      multiply(p, h, f, count, {own_dy, 1, h}, weighted, f, true, floats(d) + own * h * f, f);
    }
    if (const at::Tensor& d = gradients.expert_gate_up_XH; d.defined()) {
      multiply(p, 2 * f, h, count, {d_gate_up, 1, 2 * f}, own_x, h, true, floats(d) + own * 2 * f * h, h);
    }
    multiply_factors(p, count, h, 2 * f, {d_gate_up, 2 * f, 1},
                     matrix(weights.expert_gate_up_XH, &PackedExperts::gate_up, e, unpacked), false,
                     work.out.data() + first * h, h);
    if (!lora_gate_up.each.empty()) {
      lora_backward(config, lora[0].packed->expert_gate_up[e], lora_gate_up.each[e], count, h, 2 * f, {d_gate_up},
                    {own_x}, d_lora_gate_up.each[e], work.out.data() + first * h);
    }
  });
  d_lora_gate_up.store(gradients.expert_gate_up_lora);
  d_lora_down.store(gradients.expert_down_lora);
  scatter_add_rows(work.out.data(), h, routes.rows.data(), pairs, dx);

  std::vector<float> d_logits(static_cast<size_t>(n * experts));
  if (d_router_NE.defined()) std::copy_n(floats(d_router_NE), n * experts, d_logits.begin());
  routes.backward(d_weights, d_logits.data());
  if (const at::Tensor& d = gradients.router_EH; d.defined()) {
    multiply(Precision::kFloat32, experts, h, n, {d_logits.data(), 1, experts}, x, h, true, floats(d), h);
  }
  multiply(Precision::kFloat32, n, h, experts, {d_logits.data(), experts, 1}, floats(weights.router_EH), h, true, dx,
           h);
}

}  // namespace gyre
