#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "kernels/norm.h"
#include "kernels/rows.h"
#include "kernels/swiglu.h"
#include "model/block.h"

namespace gyre {
namespace {

at::Tensor rows_of(int64_t rows, int64_t width) { return at::empty({rows, width}, at::kFloat); }

// y = x W^T + b: adds dy^T x to d_weight and the column sums of dy to d_bias.
void add_linear_gradients(const at::Tensor& dy, const at::Tensor& x, at::Tensor& d_weight, const at::Tensor& d_bias) {
  d_weight.addmm_(dy.t(), x);
  if (d_bias.defined()) add_column_sums(floats(dy), dy.size(0), dy.size(1), floats(d_bias));
}

}  // namespace

BackwardWorkspace::BackwardWorkspace(const ModelConfig& c, int64_t rows)
    : normed_NH(rows_of(rows, c.hidden_size)),
      d_normed_NH(rows_of(rows, c.hidden_size)),
      heads_NE(rows_of(rows, c.query_width() + c.kv_width())),
      d_qkv_NR(rows_of(rows, c.qkv_width())),
      d_o_NQ(rows_of(rows, c.query_width())),
      act_NF(rows_of(rows, c.intermediate_size)),
      d_act_NF(rows_of(rows, c.intermediate_size)),
      d_gate_up_N2F(rows_of(rows, 2 * c.intermediate_size)) {}

void Block::backward(const BlockActivations& kept, const Pass& pass, BackwardWorkspace& work, at::Tensor& d_NH,
                     BlockTensors& gradients) const {
  const int64_t n = pass.rows, h = config.hidden_size, q = config.query_width(), k = config.kv_width(),
                f = config.intermediate_size;
  const auto eps = static_cast<float>(config.rms_norm_eps);
  float *d = floats(d_NH), *normed = floats(work.normed_NH), *d_normed = floats(work.d_normed_NH);

  // MLP: output = middle + down(swiglu(gate_up(norm(middle)))).
  swiglu(floats(kept.gate_up_N2F), n, f, floats(work.act_NF));
  add_linear_gradients(d_NH, work.act_NF, gradients.down_HF, gradients.down_bias_H);
  at::mm_out(work.d_act_NF, d_NH, weights.down_HF);
  swiglu_backward(floats(kept.gate_up_N2F), floats(work.d_act_NF), n, f, floats(work.d_gate_up_N2F));
  rms_norm(floats(kept.middle_NH), n, h, floats(weights.mlp_norm_H), eps, normed, nullptr);
  add_linear_gradients(work.d_gate_up_N2F, work.normed_NH, gradients.gate_up_2FH, gradients.gate_up_bias_2F);
  at::mm_out(work.d_normed_NH, work.d_gate_up_N2F, weights.gate_up_2FH);
  rms_norm_backward(floats(kept.middle_NH), floats(kept.mlp_rstd_N), floats(weights.mlp_norm_H), d_normed, n, h, d,
                    floats(gradients.mlp_norm_H));

  // Attention: middle = input + out(attend(rope(norm(qkv(norm(input)))))).
  add_linear_gradients(d_NH, kept.o_NQ, gradients.out_HQ, gradients.out_bias_H);
  at::mm_out(work.d_o_NQ, d_NH, weights.out_HQ);
  const HeadLayout layout = head_layout();
  float *qkv = floats(kept.qkv_NR), *heads = floats(work.heads_NE), *d_qkv = floats(work.d_qkv_NR);
  rotate_heads(layout, rope, pass.positions.data(), n, qkv, q + 2 * k, heads, q + k);
  AttentionBackward attention{};
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
  attend_backward(attention_shape(), attention, work.attention);
  rotate_heads_backward(layout, rope, pass.positions.data(), n, qkv, q + 2 * k, d_qkv, q + 2 * k,
                        floats(gradients.q_norm_D), floats(gradients.k_norm_D));
  rms_norm(floats(kept.input_NH), n, h, floats(weights.attn_norm_H), eps, normed, nullptr);
  add_linear_gradients(work.d_qkv_NR, work.normed_NH, gradients.qkv_RH, gradients.qkv_bias_R);
  at::mm_out(work.d_normed_NH, work.d_qkv_NR, weights.qkv_RH);
  rms_norm_backward(floats(kept.input_NH), floats(kept.attn_rstd_N), floats(weights.attn_norm_H), d_normed, n, h, d,
                    floats(gradients.attn_norm_H));
}

}  // namespace gyre
