#include <ATen/ops/empty.h>

#include "kernels/norm.h"
#include "kernels/product.h"
#include "kernels/rows.h"
#include "kernels/swiglu.h"
#include "model/block.h"

namespace gyre {
namespace {

at::Tensor rows_of(int64_t rows, int64_t width) { return at::empty({rows, width}, at::kFloat); }

// Gradients of y = x W^T + b over `rows` rows, x of width `in` and y of width `out`, all rows side by side: adds dy^T x
// to d_weight and the column sums of dy to d_bias (may be undefined), and writes dy W to dx.
void linear_backward(int64_t rows, int64_t in, int64_t out, const float* dy, const float* x, const at::Tensor& weight,
                     at::Tensor& d_weight, const at::Tensor& d_bias, float* dx) {
  multiply(out, in, rows, {dy, 1, out}, x, in, true, floats(d_weight), in);
  if (d_bias.defined()) add_column_sums(dy, rows, out, floats(d_bias));
  multiply(rows, in, out, {dy, out, 1}, floats(weight), in, false, dx, in);
}

}  // namespace

BackwardWorkspace::BackwardWorkspace(const ModelConfig& c, int64_t rows)
    : attn_normed_NH(rows_of(rows, c.hidden_size)),
      heads_NE(rows_of(rows, c.query_width() + c.kv_width())),
      mlp_normed_NH(rows_of(rows, c.hidden_size)),
      act_NF(rows_of(rows, c.intermediate_size)),
      d_normed_NH(rows_of(rows, c.hidden_size)),
      d_qkv_NR(rows_of(rows, c.qkv_width())),
      d_o_NQ(rows_of(rows, c.query_width())),
      d_act_NF(rows_of(rows, c.intermediate_size)),
      d_gate_up_N2F(rows_of(rows, 2 * c.intermediate_size)) {}

void Block::recompute(const BlockActivations& kept, const Pass& pass, BackwardWorkspace& work) const {
  const int64_t n = pass.rows, h = config.hidden_size, q = config.query_width(), k = config.kv_width();
  const auto eps = static_cast<float>(config.rms_norm_eps);
  rms_norm(floats(kept.input_NH), n, h, floats(weights.attn_norm_H), eps, floats(work.attn_normed_NH), nullptr);
  rotate_heads(head_layout(), rope, pass.positions.data(), n, floats(kept.qkv_NR), q + 2 * k, floats(work.heads_NE),
               q + k);
  rms_norm(floats(kept.middle_NH), n, h, floats(weights.mlp_norm_H), eps, floats(work.mlp_normed_NH), nullptr);
  swiglu(floats(kept.gate_up_N2F), n, config.intermediate_size, floats(work.act_NF));
}

void Block::backward(const BlockActivations& kept, const Pass& pass, BackwardWorkspace& work, at::Tensor& d_NH,
                     BlockTensors& gradients) const {
  const int64_t n = pass.rows, h = config.hidden_size, q = config.query_width(), k = config.kv_width(),
                f = config.intermediate_size;
  float *d = floats(d_NH), *d_normed = floats(work.d_normed_NH);

  // MLP: output = middle + down(swiglu(gate_up(norm(middle)))).
  linear_backward(n, f, h, d, floats(work.act_NF), weights.down_HF, gradients.down_HF, gradients.down_bias_H,
                  floats(work.d_act_NF));
  swiglu_backward(floats(kept.gate_up_N2F), floats(work.d_act_NF), n, f, floats(work.d_gate_up_N2F));
  linear_backward(n, h, 2 * f, floats(work.d_gate_up_N2F), floats(work.mlp_normed_NH), weights.gate_up_2FH,
                  gradients.gate_up_2FH, gradients.gate_up_bias_2F, d_normed);
  rms_norm_backward(floats(kept.middle_NH), floats(kept.mlp_rstd_N), floats(weights.mlp_norm_H), d_normed, n, h, d,
                    floats(gradients.mlp_norm_H));

  // Attention: middle = input + out(attend(rope(norm(qkv(norm(input)))))).
  linear_backward(n, q, h, d, floats(kept.o_NQ), weights.out_HQ, gradients.out_HQ, gradients.out_bias_H,
                  floats(work.d_o_NQ));
  float *qkv = floats(kept.qkv_NR), *heads = floats(work.heads_NE), *d_qkv = floats(work.d_qkv_NR);
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
  rotate_heads_backward(head_layout(), rope, pass.positions.data(), n, qkv, q + 2 * k, d_qkv, q + 2 * k,
                        floats(gradients.q_norm_D), floats(gradients.k_norm_D));
  linear_backward(n, h, q + 2 * k, floats(work.d_qkv_NR), floats(work.attn_normed_NH), weights.qkv_RH, gradients.qkv_RH,
                  gradients.qkv_bias_R, d_normed);
  rms_norm_backward(floats(kept.input_NH), floats(kept.attn_rstd_N), floats(weights.attn_norm_H), d_normed, n, h, d,
                    floats(gradients.attn_norm_H));
}

}  // namespace gyre
