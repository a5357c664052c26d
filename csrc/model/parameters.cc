#include "model/parameters.h"

#include <initializer_list>

namespace gyre {
namespace {

constexpr int64_t kAlignFloats = 16;  // every tensor starts on a cache line

using Allocate = std::function<at::Tensor(int64_t count)>;

// Collects tensors that share one flat storage; `bind` allocates it and points every tensor at its place.
class Layout {
 public:
  void place(at::Tensor& tensor, std::initializer_list<int64_t> shape) {
    int64_t count = 1;
    for (int64_t n : shape) count *= n;
    entries_.push_back({&tensor, shape, total_});
    total_ += (count + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
  }
  void bind(at::Tensor& flat, const Allocate& allocate) const {
    flat = allocate(total_);
    for (const Entry& e : entries_) {
      int64_t count = 1;
      for (int64_t n : e.shape) count *= n;
      *e.tensor = flat.narrow(0, e.offset, count).view(e.shape);
    }
  }

 private:
  struct Entry {
    at::Tensor* tensor;
    std::vector<int64_t> shape;
    int64_t offset;
  };
  std::vector<Entry> entries_;
  int64_t total_ = 0;
};

BlockTensors make_block(const ModelConfig& c, const Allocate& allocate) {
  BlockTensors b;
  Layout layout;
  const int64_t h = c.hidden_size, q = c.query_width(), f = c.intermediate_size;
  layout.place(b.attn_norm_H, {h});
  layout.place(b.qkv_RH, {c.qkv_width(), h});
  if (c.qkv_bias) layout.place(b.qkv_bias_R, {c.qkv_width()});
  if (c.qk_norm) {
    layout.place(b.q_norm_D, {c.head_dim});
    layout.place(b.k_norm_D, {c.head_dim});
  }
  layout.place(b.out_HQ, {h, q});
  if (c.out_bias) layout.place(b.out_bias_H, {h});
  layout.place(b.mlp_norm_H, {h});
  layout.place(b.gate_up_2FH, {2 * f, h});
  if (c.mlp_bias) layout.place(b.gate_up_bias_2F, {2 * f});
  layout.place(b.down_HF, {h, f});
  if (c.mlp_bias) layout.place(b.down_bias_H, {h});
  layout.bind(b.flat_P, allocate);
  return b;
}

RootTensors make_root(const ModelConfig& c, const Allocate& allocate) {
  RootTensors r;
  Layout layout;
  const bool language_model = c.head == GYRE_HEAD_LM;
  layout.place(r.embed_VH, {c.vocab_size, c.hidden_size});
  layout.place(r.final_norm_H, {c.hidden_size});
  if (language_model && !c.tie_embeddings) layout.place(r.head_VH, {c.vocab_size, c.hidden_size});
  if (!language_model) {
    layout.place(r.score_1H, {1, c.hidden_size});
    layout.place(r.score_bias_1, {1});
  }
  layout.bind(r.flat_P, allocate);
  if (language_model && c.tie_embeddings) r.head_VH = r.embed_VH;
  return r;
}

void name_block(const ModelConfig& c, const BlockTensors& b, int64_t index, std::vector<NamedTensor>& named) {
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  const auto add = [&](const char* name, const at::Tensor& value) {
    if (value.defined()) named.push_back({prefix + name, value});
  };
  const auto part = [](const at::Tensor& fused, int64_t first, int64_t count) {
    return fused.defined() ? fused.narrow(0, first, count) : fused;
  };
  const int64_t q = c.query_width(), k = c.kv_width(), f = c.intermediate_size;
  add("self_attn.q_proj.weight", part(b.qkv_RH, 0, q));
  add("self_attn.q_proj.bias", part(b.qkv_bias_R, 0, q));
  add("self_attn.k_proj.weight", part(b.qkv_RH, q, k));
  add("self_attn.k_proj.bias", part(b.qkv_bias_R, q, k));
  add("self_attn.v_proj.weight", part(b.qkv_RH, q + k, k));
  add("self_attn.v_proj.bias", part(b.qkv_bias_R, q + k, k));
  add("self_attn.o_proj.weight", b.out_HQ);
  add("self_attn.o_proj.bias", b.out_bias_H);
  add("self_attn.q_norm.weight", b.q_norm_D);
  add("self_attn.k_norm.weight", b.k_norm_D);
  add("mlp.gate_proj.weight", part(b.gate_up_2FH, 0, f));
  add("mlp.gate_proj.bias", part(b.gate_up_bias_2F, 0, f));
  add("mlp.up_proj.weight", part(b.gate_up_2FH, f, f));
  add("mlp.up_proj.bias", part(b.gate_up_bias_2F, f, f));
  add("mlp.down_proj.weight", b.down_HF);
  add("mlp.down_proj.bias", b.down_bias_H);
  add("input_layernorm.weight", b.attn_norm_H);
  add("post_attention_layernorm.weight", b.mlp_norm_H);
}

}  // namespace

std::vector<at::Tensor> ParameterSet::flats() const {
  std::vector<at::Tensor> all{root.flat_P};
  for (const BlockTensors& b : blocks) all.push_back(b.flat_P);
  return all;
}

ParameterSet lay_out(const ModelConfig& config, const Allocate& allocate) {
  ParameterSet set;
  set.root = make_root(config, allocate);
  set.named.push_back({"model.embed_tokens.weight", set.root.embed_VH});
  for (int64_t i = 0; i < config.num_layers; ++i) {
    set.blocks.push_back(make_block(config, allocate));
    name_block(config, set.blocks.back(), i, set.named);
  }
  set.named.push_back({"model.norm.weight", set.root.final_norm_H});
  if (config.head == GYRE_HEAD_VALUE) {
    set.named.push_back({"score.weight", set.root.score_1H});
    set.named.push_back({"score.bias", set.root.score_bias_1});
  } else if (!config.tie_embeddings) {
    set.named.push_back({"lm_head.weight", set.root.head_VH});
  }
  return set;
}

}  // namespace gyre
