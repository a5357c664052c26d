#include "model/block.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>

#include "kernels/norm.h"
#include "kernels/rows.h"
#include "kernels/swiglu.h"
#include "kernels/vec.h"

namespace gyre {
namespace {

at::Tensor rows_of(int64_t rows, int64_t width) { return at::empty({rows, width}, at::kFloat); }

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
  body(&B::gate_up_N2F, Shape{rows, 2 * c.intermediate_size});
}

// Every tensor begins on a cache line.
int64_t floats_of(const std::vector<int64_t>& shape) { return round_up(c10::multiply_integers(shape), 16); }

}  // namespace

void BlockActivations::place(const ModelConfig& c, int64_t rows, float* memory) {
  for_tensors(c, rows, [&](at::Tensor BlockActivations::* tensor, const std::vector<int64_t>& shape) {
    this->*tensor = at::from_blob(memory, shape);
    memory += floats_of(shape);
  });
}

int64_t BlockActivations::size(const ModelConfig& c, int64_t rows) {
  int64_t size = 0;
  for_tensors(c, rows,
              [&](at::Tensor BlockActivations::*, const std::vector<int64_t>& shape) { size += floats_of(shape); });
  return size;
}

ForwardWorkspace::ForwardWorkspace(const ModelConfig& c, int64_t rows)
    : normed_NH(rows_of(rows, c.hidden_size)),
      heads_NE(rows_of(rows, c.query_width() + c.kv_width())),
      delta_NH(rows_of(rows, c.hidden_size)),
      act_NF(rows_of(rows, c.intermediate_size)) {}

HeadLayout Block::head_layout() const {
  return {config.num_heads,         config.num_kv_heads,      config.head_dim,
          floats(weights.q_norm_D), floats(weights.k_norm_D), static_cast<float>(config.rms_norm_eps)};
}

void Block::forward(const PackedBlock& packed, const Pass& pass, float* key_pages, float* value_pages,
                    BlockActivations& kept, ForwardWorkspace& work, at::Tensor& output_NH) const {
  const int64_t n = pass.rows, h = config.hidden_size, q = config.query_width(), k = config.kv_width(),
                f = config.intermediate_size;
  const auto eps = static_cast<float>(config.rms_norm_eps);
  const float* input = floats(kept.input_NH);
  float *normed = floats(work.normed_NH), *delta = floats(work.delta_NH), *heads = floats(work.heads_NE);
  float *qkv = floats(kept.qkv_NR), *o = floats(kept.o_NQ), *middle = floats(kept.middle_NH),
        *gate_up = floats(kept.gate_up_N2F);

  rms_norm(input, n, h, floats(weights.attn_norm_H), eps, normed, floats(kept.attn_rstd_N));
  packed.qkv.multiply(normed, h, n, floats(weights.qkv_bias_R), qkv, q + 2 * k);
  rotate_heads(head_layout(), rope, pass.positions.data(), n, qkv, q + 2 * k, heads, q + k);
  store_kv(attention_shape(), pass.stored, heads + q, q + k, qkv + q + k, q + 2 * k, key_pages, value_pages);
  attend(attention_shape(), pass.attended, heads, q + k, key_pages, value_pages, o, q, floats(kept.logsumexp_NA));
  packed.out.multiply(o, q, n, floats(weights.out_bias_H), delta, h);

  add_rms_norm(input, delta, n, h, floats(weights.mlp_norm_H), eps, middle, normed, floats(kept.mlp_rstd_N));
  packed.gate_up.multiply(normed, h, n, floats(weights.gate_up_bias_2F), gate_up, 2 * f);
  swiglu(gate_up, n, f, floats(work.act_NF));
  packed.down.multiply(floats(work.act_NF), f, n, floats(weights.down_bias_H), delta, h);
  add(middle, delta, n * h, floats(output_NH));
}

}  // namespace gyre
