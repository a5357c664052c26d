#include "backend/cpu/block.h"

#include <ATen/ops/add.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>

#include <memory>

#include "kernels/buffer.h"
#include "kernels/product.h"
#include "kernels/rowwise.h"
#include "kernels/tile.h"

namespace gyre {
namespace {

// Calls body(tensor, shape) for all that a block's backward pass needs.
template <class Body>
void for_tensors(const ModelConfig& c, int64_t rows, Body&& body) {
  using B = BlockActivations;
  using Shape = std::vector<int64_t>;
  body(&B::input_NH, Shape{rows, c.hidden_size});
  body(&B::attn_rstd_N, Shape{rows});
  body(&B::qkv_NR, Shape{rows, c.qkv_width()});
  body(&B::o_NQ, Shape{rows, c.query_width()});
  body(&B::logsumexp_NA, Shape{rows, c.num_heads});
  body(&B::middle_NH, Shape{rows, c.hidden_size});
  body(&B::mlp_rstd_N, Shape{rows});
  const auto per_float = static_cast<int64_t>(sizeof(float)) / bytes_of(c.precision());
  body(&B::gate_up_N2F, Shape{rows, 2 * c.widest_mlp() / per_float});
  if (!c.shape.output_norms) return;
  for (const auto out : {&B::attn_out_NH, &B::mlp_out_NH}) body(out, Shape{rows, c.hidden_size});
  for (const auto rstd : {&B::attn_out_rstd_N, &B::mlp_out_rstd_N}) body(rstd, Shape{rows});
}

// Of what is kept of the experts' gates and values.
std::vector<int64_t> expert_shape(const ModelConfig& c, int64_t rows) {
  const auto per_float = static_cast<int64_t>(sizeof(float)) / bytes_of(c.precision());
  return {rows * c.shape.chosen_experts, 2 * c.shape.expert_size / per_float};
}

// Every tensor begins on a cache line.
int64_t floats_of(const std::vector<int64_t>& shape) { return round_up(c10::multiply_integers(shape), 16); }

// The tensors that a forward pass does not read in packed form.
constexpr at::Tensor BlockTensors::* kBesidePacked[] = {&BlockTensors::attn_norm_H,     &BlockTensors::qkv_bias_R,
                                                        &BlockTensors::q_norm_D,        &BlockTensors::k_norm_D,
                                                        &BlockTensors::out_bias_H,      &BlockTensors::mlp_norm_H,
                                                        &BlockTensors::gate_up_bias_2F, &BlockTensors::down_bias_H,
                                                        &BlockTensors::attn_out_norm_H, &BlockTensors::mlp_out_norm_H};

}  // namespace

struct Projection {
  at::Tensor BlockTensors::*weight, BlockTensors::*bias;
  PackedMatrix PackedBlock::* packed;
  LoraTensors BlockTensors::* lora;
  PackedLora PackedLoraBlock::* packed_lora;
};

namespace {

using B = BlockTensors;
using P = PackedBlock;
using L = PackedLoraBlock;
// Whether an adapter's module begins or ends inside a pair of operands.
bool odd_columns(const ModelConfig& c, int64_t layer) { return c.mlp_width(layer) % 2 != 0 || c.head_dim % 2 != 0; }

constexpr Projection kQkv{&B::qkv_RH, &B::qkv_bias_R, &P::qkv, &B::qkv_lora, &L::qkv},
    kOut{&B::out_HQ, &B::out_bias_H, &P::out, &B::out_lora, &L::out},
    kGateUp{&B::gate_up_2FH, &B::gate_up_bias_2F, &P::gate_up, &B::gate_up_lora, &L::gate_up},
    kDown{&B::down_HF, &B::down_bias_H, &P::down, &B::down_lora, &L::down};

}  // namespace

at::Tensor rows_of(int64_t rows, int64_t width) {
  auto memory = std::make_shared<Buffer>();
  memory->reserve(rows * width);
  return at::from_blob(memory->data(), {rows, width}, [memory](void*) {});
}

void pack(PackedMatrix& to, const at::Tensor& weight, Precision precision) {
  to.pack(floats(weight), weight.size(0), weight.size(1), precision);
}

void pack(PackedBlock& to, const BlockTensors& from, Precision precision, bool int8) {
  const auto one = [&](PackedMatrix& matrix, const at::Tensor& weight) {
    if (!int8) return pack(matrix, weight, precision);
    matrix.quantize(floats(weight), weight.size(0), weight.size(1), precision);
  };
  one(to.qkv, from.qkv_RH);
  one(to.out, from.out_HQ);
  if (from.gate_up_2FH.defined()) one(to.gate_up, from.gate_up_2FH);
  if (from.down_HF.defined()) one(to.down, from.down_HF);
  if (from.router_EH.defined()) to.experts.pack(from, precision, int8);
}

BlockTensors beside_packed(const BlockTensors& from) {
  BlockTensors copies;
  for (const auto field : kBesidePacked) {
    if ((from.*field).defined()) copies.*field = (from.*field).clone();
  }
  return copies;
}

void BlockActivations::place(const ModelConfig& c, int64_t rows, float* memory) {
  for_tensors(c, rows, [&](at::Tensor BlockActivations::* tensor, const std::vector<int64_t>& shape) {
    this->*tensor = at::from_blob(memory, shape);
    memory += floats_of(shape);
  });
  if (c.shape.experts == 0) return;
  experts.gate_up_C2F = at::from_blob(memory, expert_shape(c, rows));
}

int64_t BlockActivations::size(const ModelConfig& c, int64_t rows) {
  int64_t size = 0;
  for_tensors(c, rows,
              [&](at::Tensor BlockActivations::*, const std::vector<int64_t>& shape) { size += floats_of(shape); });
  return c.shape.experts == 0 ? size : size + floats_of(expert_shape(c, rows));
}

// Operands of odd widths are one number wider than their rows.
ForwardWorkspace::ForwardWorkspace(const ModelConfig& c, int64_t rows)
    : normed_NH(rows_of(rows, round_up(c.hidden_size, 2))),
      heads_NE(rows_of(rows, c.query_width() + c.kv_width())),
      delta_NH(rows_of(rows, c.hidden_size)),
      act_NF(rows_of(rows, round_up(c.widest_mlp(), 2))) {
  if (c.precision() == Precision::kBfloat16) gate_up_N2F = rows_of(rows, 2 * c.widest_mlp());
}

at::Tensor norm_scale(const ModelConfig& config, const at::Tensor& weight) {
  return weight.defined() && config.shape.unit_norms ? at::add(weight, 1) : weight;
}

// The rows of a mixture as its router takes them.
const float* Block::router_input(const BlockActivations& kept, ForwardWorkspace& work) const {
  if (config.shape.no_input_norms) return floats(kept.middle_NH);
  if (config.precision() == Precision::kFloat32) return floats(work.normed_NH);  // operands are floats
  const int64_t rows = kept.middle_NH.size(0), h = config.hidden_size;
  work.router_input.reserve(rows * h);
  rms_norm(floats(kept.middle_NH), rows, h, floats(norm(weights.mlp_norm_H)), static_cast<float>(config.rms_norm_eps),
           Precision::kFloat32, work.router_input.data(), nullptr);
  return work.router_input.data();
}

// The rotated heads; of a part's wide norms the rows are normed already.
void Block::rotate(const Pass& pass, float* qkv, float* heads) const {
  const bool normed = parallel != nullptr && config.shape.wide_qk_norm;
  const at::Tensor q_norm = normed ? at::Tensor() : norm(weights.q_norm_D),
                   k_norm = normed ? at::Tensor() : norm(weights.k_norm_D);
  const int64_t e = config.query_width() + config.kv_width();
  rotate_heads({config.num_heads, config.num_kv_heads, config.head_dim, floats(q_norm), floats(k_norm),
                static_cast<float>(config.rms_norm_eps), config.shape.wide_qk_norm, config.shape.rope_interleaved},
               rope(), pass.positions.data(), pass.rows, qkv, config.qkv_width(), heads, e);
}

// Of a part: the norms over all heads of queries and keys, of which each process has some.
void Block::normalize_wide(float* qkv, int64_t rows) const {
  const int64_t q = config.query_width(), ld = config.qkv_width();
  const at::Tensor all = at::from_blob(qkv, {rows, ld});
  const auto one = [&](const at::Tensor& joined, const at::Tensor& weight, int64_t own, at::Tensor columns) {
    const at::Tensor whole = joined.contiguous();
    rms_norm(floats(whole), rows, whole.size(1), floats(norm(weight)), static_cast<float>(config.rms_norm_eps),
             Precision::kFloat32, floats(whole), nullptr);
    columns.copy_(whole.narrow(1, own, columns.size(1)));
  };
  const Slice& mine = parallel->mine();
  const at::Tensor queries = all.narrow(1, 0, q), keys = all.narrow(1, q, config.kv_width());
  one(parallel->query(queries.contiguous()), weights.q_norm_D, mine.heads.first * config.head_dim, queries);
  one(parallel->keys(keys.contiguous(), config.head_dim), weights.k_norm_D, mine.kv_heads.first * config.head_dim,
      keys);
}

// What a branch adds to the residual stream: normed and scaled in place, and kept as it was before the norm.
void Block::normalize_output(at::Tensor& out_NH, const at::Tensor& weight, at::Tensor& kept_NH,
                             at::Tensor& rstd_N) const {
  const int64_t rows = out_NH.size(0), h = config.hidden_size;
  if (weight.defined()) {
    kept_NH.copy_(out_NH);
    rms_norm(floats(kept_NH), rows, h, floats(norm(weight)), static_cast<float>(config.rms_norm_eps),
             Precision::kFloat32, floats(out_NH), floats(rstd_N));
  }
  if (config.shape.residual_scale != 0)
    scale(floats(out_NH), rows * h, static_cast<float>(config.shape.residual_scale));
}

// The gradient of a branch's last product from d, that of the residual stream.
const float* Block::output_gradient(const float* d, const at::Tensor& weight, const at::Tensor& kept_NH,
                                    const at::Tensor& rstd_N, const at::Tensor& d_weight,
                                    BackwardWorkspace& work) const {
  if (work.d_scaled_NH.defined()) {
    const int64_t count = work.d_scaled_NH.numel();
    std::copy_n(d, count, floats(work.d_scaled_NH));
    scale(floats(work.d_scaled_NH), count, static_cast<float>(config.shape.residual_scale));
    d = floats(work.d_scaled_NH);
  }
  if (!weight.defined()) return d;
  std::fill_n(floats(work.d_out_NH), work.d_out_NH.numel(), 0.0f);
  rms_norm_backward(floats(kept_NH), floats(rstd_N), floats(norm(weight)), d, kept_NH.size(0), config.hidden_size,
                    floats(work.d_out_NH), floats(d_weight));
  return floats(work.d_out_NH);
}

void Block::forward(const PackedBlock& packed, const Pass& pass, const PageMemory& pages, BlockActivations& kept,
                    ForwardWorkspace& work, at::Tensor& output_NH) const {
  const int64_t n = pass.rows, h = config.hidden_size, q = config.query_width(), k = config.kv_width(),
                f = config.mlp_width(layer);
  const auto eps = static_cast<float>(config.rms_norm_eps);
  const float* input = floats(kept.input_NH);
  float *normed = floats(work.normed_NH), *heads = floats(work.heads_NE);
  float *qkv = floats(kept.qkv_NR), *o = floats(kept.o_NQ), *middle = floats(kept.middle_NH),
        *gate_up = floats(work.gate_up_N2F.defined() ? work.gate_up_N2F : kept.gate_up_N2F);

  const Precision p = config.precision();

  // Back to the residual stream: a part makes some of the columns, as many as the projection before it.
  const int64_t out = packed.out.out();
  const auto project = [&](auto&& multiply) {
    const at::Tensor own = parallel ? at::from_blob(floats(work.delta_NH), {n, out}) : work.delta_NH;
    multiply(floats(own));
    return parallel ? parallel->hidden(own) : own;
  };

  // The first product of a branch, of its input's norm or of the input itself.
  const bool plain = config.shape.no_input_norms;
  const auto enter = [&](const PackedMatrix& matrix, const at::Tensor& bias, const PackedLora PackedLoraBlock::* of,
                         const float* x, float* y) {
    const float* rows = plain ? x : normed;
    const int64_t ld = plain ? h : 0;
    matrix.multiply(rows, ld, n, floats(bias), y, matrix.out());
    add_lora(lora, of, rows, ld, y, matrix.out());
  };

  if (!plain) {
    rms_norm(input, n, h, floats(norm(weights.attn_norm_H)), eps, p, normed, floats(kept.attn_rstd_N));
  }
  enter(packed.qkv, weights.qkv_bias_R, &PackedLoraBlock::qkv, input, qkv);
  if (parallel && config.shape.wide_qk_norm) normalize_wide(qkv, n);
  rotate(pass, qkv, heads);
  store_kv(attention_shape(config, layer), pass.stored, heads + q, q + k, qkv + q + k, q + 2 * k, pages);
  attend(attention_shape(config, layer), pass.attended, heads, q + k, pages, o, q, floats(kept.logsumexp_NA));
  const at::Tensor o_NQ = parallel ? parallel->query(kept.o_NQ) : kept.o_NQ;
  at::Tensor attended_NH = project([&](float* y) {
    packed.out.multiply(floats(o_NQ), o_NQ.size(1), n, floats(weights.out_bias_H), y, out);
    add_lora(lora, &PackedLoraBlock::out, floats(o_NQ), o_NQ.size(1), y, out);
  });
  normalize_output(attended_NH, weights.attn_out_norm_H, kept.attn_out_NH, kept.attn_out_rstd_N);

  if (plain) {
    add(input, floats(attended_NH), n * h, middle);
  } else {
    add_rms_norm(input, floats(attended_NH), n, h, floats(norm(weights.mlp_norm_H)), eps, p, middle, normed,
                 floats(kept.mlp_rstd_N));
  }
  const bool mixed = config.mixes(layer);
  float* act = floats(work.act_NF);
  if (f > 0) enter(packed.gate_up, weights.gate_up_bias_2F, &PackedLoraBlock::gate_up, middle, gate_up);
  at::Tensor joined_NF;
  if (f > 0) {
    glu(config.shape.activation, gate_up, n, f, parallel ? Precision::kFloat32 : p, act, Precision::kFloat32,
        work.gate_up_N2F.defined() && kept.read_again ? floats(kept.gate_up_N2F) : nullptr);
  }
  if (parallel && f > 0) {
    joined_NF = parallel->intermediate(at::from_blob(act, {n, f}), mixed ? &Slice::shared : &Slice::intermediate);
  }
  at::Tensor down_NH = project([&](float* y) {
    const bool joined = parallel && f > 0;
    const float* x = joined ? floats(joined_NF) : act;
    const int64_t ld = joined ? joined_NF.size(1) : 0;
    if (f == 0) {
      std::fill_n(y, n * out, 0.0f);
    } else {
      packed.down.multiply(x, ld, n, floats(weights.down_bias_H), y, out);
    }
    if (mixed) {
      Mixture{config, &packed.experts, parallel, lora}.forward(router_input(kept, work), plain ? nullptr : normed, n,
                                                               kept.read_again, kept.experts, work.experts, y, out);
    }
    add_lora(lora, &PackedLoraBlock::down, x, ld, y, out);
  });
  normalize_output(down_NH, weights.mlp_out_norm_H, kept.mlp_out_NH, kept.mlp_out_rstd_N);
  add(middle, floats(down_NH), n * h, floats(output_NH));
}

BackwardWorkspace::BackwardWorkspace(const ModelConfig& c, int64_t rows)
    : attn_normed_NH(rows_of(rows, operand_width(c.precision(), c.hidden_size))),
      heads_NE(rows_of(rows, c.query_width() + c.kv_width())),
      mlp_normed_NH(rows_of(rows, operand_width(c.precision(), c.hidden_size))),
      act_NF(rows_of(rows, operand_width(c.precision(), c.widest_mlp()))),
      d_normed_NH(rows_of(rows, c.hidden_size)),
      d_qkv_NR(rows_of(rows, c.qkv_width())),
      d_o_NQ(rows_of(rows, c.query_width())),
      d_act_NF(rows_of(rows, c.widest_mlp())),
      d_gate_up_N2F(rows_of(rows, operand_width(c.precision(), 2 * c.widest_mlp()))) {
  if (c.shape.experts > 0 && c.precision() == Precision::kBfloat16) mlp_rows_NH = rows_of(rows, c.hidden_size);
  if (c.shape.residual_scale != 0) d_scaled_NH = rows_of(rows, c.hidden_size);
  if (c.shape.output_norms) d_out_NH = rows_of(rows, c.hidden_size);
}

void Block::recompute(const BlockActivations& kept, const Pass& pass, BackwardWorkspace& work) const {
  const int64_t n = pass.rows, h = config.hidden_size, f = config.mlp_width(layer);
  const auto eps = static_cast<float>(config.rms_norm_eps);
  const Precision p = config.precision();
  const auto normed = [&](const at::Tensor& x_NH, const at::Tensor& weight, at::Tensor& to_NH) {
    if (!weight.defined()) return to_operands(floats(x_NH), h, n, h, p, floats(to_NH));
    rms_norm(floats(x_NH), n, h, floats(norm(weight)), eps, p, floats(to_NH), nullptr);
  };
  normed(kept.input_NH, weights.attn_norm_H, work.attn_normed_NH);
  rotate(pass, floats(kept.qkv_NR), floats(work.heads_NE));
  normed(kept.middle_NH, weights.mlp_norm_H, work.mlp_normed_NH);
  if (f > 0) glu(config.shape.activation, floats(kept.gate_up_N2F), n, f, p, floats(work.act_NF), p, nullptr);
  if (!config.mixes(layer)) return;
  if (p == Precision::kFloat32) {
    work.mlp_rows_NH = work.mlp_normed_NH;
  } else if (weights.mlp_norm_H.defined()) {
    rms_norm(floats(kept.middle_NH), n, h, floats(norm(weights.mlp_norm_H)), eps, Precision::kFloat32,
             floats(work.mlp_rows_NH), nullptr);
  } else {
    work.mlp_rows_NH = kept.middle_NH;
  }
}

// Rows of x as operands, in `buffer` where that takes a copy.
Rows Block::operands(const float* x, int64_t rows, int64_t width, Buffer& buffer) const {
  const Precision p = config.precision();
  if (p == Precision::kFloat32) return {x, true};
  buffer.reserve(rows * operand_width(p, width));
  to_operands(x, width, rows, width, p, buffer.data());
  return {buffer.data(), true};
}

// Gradients of y = x W^T + b (and the adapter's part) over `rows` rows, all side by side: adds dy^T x to that of W and
// the column sums of dy to that of b, where there are such, and writes dy W to dx. d: dy as operands; dy is not read
// without a bias and where d will do for the adapter (lora_backward).
void Block::linear_backward(const Projection& of, int64_t rows, const float* dy, Rows d, Rows x,
                            BlockTensors& gradients, Buffer& buffer, float* dx) const {
  const Precision p = config.precision();
  const at::Tensor& weight = weights.*of.weight;
  const int64_t out = weight.size(0), in = weight.size(1);
  if (const at::Tensor& to = gradients.*of.weight; to.defined()) {
    multiply_factors(p, out, in, rows, d.turned(p, out), x.factor(p, in), true, floats(to), in);
  }
  if (const at::Tensor& to = gradients.*of.bias; to.defined()) add_column_sums(dy, rows, out, floats(to));
  Rows w{floats(weight)};
  if (packed != nullptr) {
    buffer.reserve(out * operand_width(p, in));
    (packed->*of.packed).unpack(0, out, buffer.data());
    w = {buffer.data(), true};
  }
  multiply_factors(p, rows, in, out, d.factor(p, out), w.factor(p, in), false, dx, in);
  if (adapter == nullptr) return;
  lora_backward(config, lora[0].packed->*of.packed_lora, adapter->*of.lora, rows, in, out,
                odd_columns(config, layer) ? Rows{dy} : d, x, gradients.*of.lora, dx, lora[0].dropout);
}

void Block::backward(const BlockActivations& kept, const at::Tensor& d_router_NE, const Pass& pass,
                     BackwardWorkspace& work, at::Tensor& d_NH, BlockTensors& gradients) const {
  const int64_t n = pass.rows, h = config.hidden_size, q = config.query_width(), k = config.kv_width(),
                f = config.mlp_width(layer);
  const Precision p = config.precision();
  float *d = floats(d_NH), *d_normed = floats(work.d_normed_NH);

  // Back through the norm of a branch's input into the residual stream.
  const auto leave = [&](const at::Tensor& x_NH, const at::Tensor& rstd_N, const at::Tensor& weight,
                         const at::Tensor& d_weight) {
    if (!weight.defined()) return add(d, d_normed, n * h, d);
    rms_norm_backward(floats(x_NH), floats(rstd_N), floats(norm(weight)), d_normed, n, h, d, floats(d_weight));
  };

  // MLP: output = middle + norm(down(glu(gate_up(norm(middle)))) + experts(norm(middle))).
  const float* d_down =
      output_gradient(d, weights.mlp_out_norm_H, kept.mlp_out_NH, kept.mlp_out_rstd_N, gradients.mlp_out_norm_H, work);
  if (f > 0) {
    linear_backward(kDown, n, d_down, operands(d_down, n, h, work.dy_operands), {floats(work.act_NF), true}, gradients,
                    work.weight, floats(work.d_act_NF));
    const bool as_floats = gradients.gate_up_bias_2F.defined() || (adapter != nullptr && odd_columns(config, layer));
    if (as_floats) work.d_gate_up.reserve(n * 2 * f);
    glu_backward(config.shape.activation, floats(kept.gate_up_N2F), floats(work.d_act_NF), n, f, p,
                 as_floats ? work.d_gate_up.data() : nullptr, floats(work.d_gate_up_N2F));
    linear_backward(kGateUp, n, work.d_gate_up.data(), {floats(work.d_gate_up_N2F), true},
                    {floats(work.mlp_normed_NH), true}, gradients, work.weight, d_normed);
  } else {
    std::fill_n(d_normed, n * h, 0.0f);
  }
  if (config.mixes(layer)) {
    Mixture{config, packed ? &packed->experts : nullptr, nullptr, lora, adapter}.backward(
        weights, kept.experts, d_router_NE, floats(work.mlp_rows_NH), d_down, n, work.experts, gradients, d_normed);
  }
  leave(kept.middle_NH, kept.mlp_rstd_N, weights.mlp_norm_H, gradients.mlp_norm_H);

  // Attention: middle = input + norm(out(attend(rope(norm(qkv(norm(input))))))).
  const float* d_attended = output_gradient(d, weights.attn_out_norm_H, kept.attn_out_NH, kept.attn_out_rstd_N,
                                            gradients.attn_out_norm_H, work);
  linear_backward(kOut, n, d_attended, operands(d_attended, n, h, work.dy_operands),
                  operands(floats(kept.o_NQ), n, q, work.x_operands), gradients, work.weight, floats(work.d_o_NQ));
  float *qkv = floats(kept.qkv_NR), *heads = floats(work.heads_NE), *d_qkv = floats(work.d_qkv_NR);
  AttentionBackward attention{};
  attention.precision = p;
  attention.segments = pass.segments;
  attention.q = heads;
  attention.k = heads + q;
  attention.v = qkv + q + k;
  attention.ld_q = attention.ld_k = q + k;
  attention.ld_v = attention.ld_d = q + 2 * k;
  attention.o = floats(kept.o_NQ);
  attention.d_o = floats(work.d_o_NQ);
  attention.ld_o = q;
  attention.logsumexp = floats(kept.logsumexp_NA);
  attention.dq = d_qkv;
  attention.dk = d_qkv + q;
  attention.dv = d_qkv + q + k;
  attend_backward(attention_shape(config, layer), attention, work.attention);
  const at::Tensor q_norm = norm(weights.q_norm_D), k_norm = norm(weights.k_norm_D);
  rotate_heads_backward(
      {config.num_heads, config.num_kv_heads, config.head_dim, floats(q_norm), floats(k_norm),
       static_cast<float>(config.rms_norm_eps), config.shape.wide_qk_norm, config.shape.rope_interleaved},
      rope(), pass.positions.data(), n, qkv, q + 2 * k, d_qkv, q + 2 * k, floats(gradients.q_norm_D),
      floats(gradients.k_norm_D));
  linear_backward(kQkv, n, d_qkv, operands(d_qkv, n, q + 2 * k, work.dy_operands), {floats(work.attn_normed_NH), true},
                  gradients, work.weight, d_normed);
  leave(kept.input_NH, kept.attn_rstd_N, weights.attn_norm_H, gradients.attn_norm_H);
}

}  // namespace gyre
