#include "model/parameters.h"

#include <c10/util/accumulate.h>

#include <initializer_list>

namespace gyre {
namespace {

constexpr int64_t kAlignFloats = 16;  // every tensor starts on a cache line

using Allocate = std::function<at::Tensor(int64_t count)>;

// Collects tensors that share one flat storage; `bind` allocates it and points every tensor at its place.
class Layout {
 public:
  void place(at::Tensor& tensor, std::initializer_list<int64_t> shape) {
    entries_.push_back({&tensor, shape, total_});
    total_ += (c10::multiply_integers(shape) + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
  }
  int64_t size() const { return total_; }
  void bind(at::Tensor& flat, const Allocate& allocate) const {
    flat = allocate(total_);
    for (const Entry& e : entries_) {
      *e.tensor = flat.narrow(0, e.offset, c10::multiply_integers(e.shape)).view(e.shape);
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

BlockTensors make_block(const ModelConfig& c, int64_t layer, const Allocate& allocate) {
  BlockTensors b;
  Layout layout;
  const int64_t h = c.hidden_size, q = c.query_width(), f = c.mlp_width(layer);
  if (!c.shape.no_input_norms) layout.place(b.attn_norm_H, {h});
  layout.place(b.qkv_RH, {c.qkv_width(), h});
  if (c.qkv_bias) layout.place(b.qkv_bias_R, {c.qkv_width()});
  if (c.qk_norm) {
    layout.place(b.q_norm_D, {c.q_norm_width()});
    layout.place(b.k_norm_D, {c.k_norm_width()});
  }
  layout.place(b.out_HQ, {h, q});
  if (c.out_bias) layout.place(b.out_bias_H, {h});
  if (c.shape.output_norms) layout.place(b.attn_out_norm_H, {h});
  if (!c.shape.no_input_norms) layout.place(b.mlp_norm_H, {h});
  if (f > 0) layout.place(b.gate_up_2FH, {2 * f, h});
  if (f > 0 && c.mlp_bias) layout.place(b.gate_up_bias_2F, {2 * f});
  if (f > 0) layout.place(b.down_HF, {h, f});
  if (c.mixes(layer)) {
    const int64_t experts = c.shape.experts, width = c.shape.expert_size;
    layout.place(b.router_EH, {experts, h});
    layout.place(b.expert_gate_up_XH, {experts * 2 * width, h});
    layout.place(b.expert_down_YF, {experts * h, width});
  }
  if (c.shape.output_norms) layout.place(b.mlp_out_norm_H, {h});
  if (f > 0 && c.mlp_bias) layout.place(b.down_bias_H, {h});
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

// Gates and values of all experts, then what they give: the order of files that stack them.
void name_experts(const ModelConfig& c, const BlockTensors& b, const std::string& prefix,
                  std::vector<NamedTensor>& named) {
  if (!b.router_EH.defined()) return;
  const int64_t f = c.shape.expert_size, h = c.hidden_size;
  const auto add = [&](int64_t expert, const char* name, const at::Tensor& all, int64_t first, int64_t count) {
    named.push_back({prefix + "experts." + std::to_string(expert) + name, all.narrow(0, first, count)});
  };
  named.push_back({prefix + "gate.weight", b.router_EH});
  for (int64_t e = 0; e < c.shape.experts; ++e) {
    add(e, ".gate_proj.weight", b.expert_gate_up_XH, 2 * e * f, f);
    add(e, ".up_proj.weight", b.expert_gate_up_XH, (2 * e + 1) * f, f);
  }
  for (int64_t e = 0; e < c.shape.experts; ++e) add(e, ".down_proj.weight", b.expert_down_YF, e * h, h);
}

void name_block(const ModelConfig& c, const BlockTensors& b, int64_t index, std::vector<NamedTensor>& named) {
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  const auto add = [&](const char* name, const at::Tensor& value) {
    if (value.defined()) named.push_back({prefix + name, value});
  };
  const auto part = [](const at::Tensor& fused, int64_t first, int64_t count) {
    return fused.defined() ? fused.narrow(0, first, count) : fused;
  };
  const int64_t q = c.query_width(), k = c.kv_width(), f = c.mlp_width(index);
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
  name_experts(c, b, prefix + "mlp.", named);
  add("input_layernorm.weight", b.attn_norm_H);
  add("post_attention_layernorm.weight", b.mlp_norm_H);
  add("post_self_attn_layernorm.weight", b.attn_out_norm_H);
  add("post_mlp_layernorm.weight", b.mlp_out_norm_H);
}

// What is adapted of a projection with inputs of this width. rank: of all experts together, where these have one.
struct Adapted {
  const std::vector<LoraPart>& parts;
  int64_t rank, in;
  LoraTensors& tensors;
};

void place_lora(const Adapted& of, Layout& layout) {
  if (of.parts.empty()) return;
  int64_t out = 0;
  for (const LoraPart& part : of.parts) out += part.count;
  layout.place(of.tensors.a_SI, {of.rank * std::ssize(of.parts), of.in});
  layout.place(of.tensors.b_OR, {out, of.rank});
}

// In PEFT's names, without its prefix.
void name_lora(const std::string& prefix, const Adapted& of, const std::string& kind, std::vector<NamedTensor>& named) {
  int64_t a = 0, b = 0;
  for (const LoraPart& part : of.parts) {
    const std::string name = prefix + part.name + "." + kind, end = kind == "lora_" ? ".weight" : "";
    named.push_back({name + "A" + end, of.tensors.a_SI.narrow(0, a, of.rank)});
    named.push_back({name + "B" + end, of.tensors.b_OR.narrow(0, b, part.count)});
    a += of.rank, b += part.count;
  }
}

ParameterSet lay_out_adapter(const ModelConfig& c, const Allocate& allocate) {
  ParameterSet set;
  const LoraParts parts(c);
  const std::vector<LoraPart> none;
  const int64_t r = c.lora.rank, h = c.hidden_size, q = c.query_width(), f = c.intermediate_size;
  RootTensors& root = set.root;
  Layout layout;
  at::Tensor place_holder;  // a storage is never empty
  layout.place(place_holder, {1});
  if (c.head == GYRE_HEAD_VALUE) {
    layout.place(root.score_1H, {1, h});
    layout.place(root.score_bias_1, {1});
  }
  const Adapted embed{parts.embed, r, c.vocab_size, root.embed_lora}, head{parts.head, r, h, root.head_lora};
  place_lora(embed, layout);
  place_lora(head, layout);
  layout.bind(root.flat_P, allocate);
  name_lora("", embed, "lora_embedding_", set.named);
  for (int64_t i = 0; i < c.num_layers; ++i) {
    BlockTensors& block = set.blocks.emplace_back();
    Layout of_block;
    const Adapted all[] = {
        {parts.qkv, r, h, block.qkv_lora},
        {parts.out, r, q, block.out_lora},
        {parts.gate_up, r, h, block.gate_up_lora},
        {parts.down, r, f, block.down_lora},
        {c.mixes(i) ? parts.expert_gate_up : none, r * c.shape.experts, h, block.expert_gate_up_lora},
        {c.mixes(i) ? parts.expert_down : none, r * c.shape.experts, c.shape.expert_size, block.expert_down_lora}};
    for (const Adapted& of : all) place_lora(of, of_block);
    if (of_block.size() == 0) of_block.place(place_holder, {1});
    of_block.bind(block.flat_P, allocate);
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    for (const Adapted& of : all) name_lora(prefix, of, "lora_", set.named);
  }
  name_lora("", head, "lora_", set.named);
  if (c.head == GYRE_HEAD_VALUE) {
    set.named.push_back({"score.weight", root.score_1H});
    set.named.push_back({"score.bias", root.score_bias_1});
  }
  return set;
}

}  // namespace

LoraParts::LoraParts(const ModelConfig& c) {
  constexpr uint32_t kMlp = GYRE_LORA_GATE | GYRE_LORA_UP | GYRE_LORA_DOWN;
  const bool mixture = c.shape.experts > 0, adapted = c.lora.rank > 0;
  require(!adapted || !mixture || (c.lora.targets & kMlp) == 0,
          "adapter: gate_proj, up_proj and down_proj of a mixture of experts have none, "
          "expected experts.gate_up_proj, experts.down_proj or targets of its attention");
  require(!adapted || mixture || (c.lora.targets & GYRE_LORA_EXPERTS) == 0,
          "adapter: experts.gate_up_proj and experts.down_proj are of models with experts");
  const auto add = [&](std::vector<LoraPart>& to, uint32_t target, const char* name, int64_t first, int64_t count) {
    if (adapted && (c.lora.targets & target) != 0) to.push_back({name, first, count, target});
  };
  const int64_t h = c.hidden_size, q = c.query_width(), k = c.kv_width(), f = c.intermediate_size;
  add(qkv, GYRE_LORA_Q, "self_attn.q_proj", 0, q);
  add(qkv, GYRE_LORA_K, "self_attn.k_proj", q, k);
  add(qkv, GYRE_LORA_V, "self_attn.v_proj", q + k, k);
  add(out, GYRE_LORA_O, "self_attn.o_proj", 0, h);
  add(gate_up, GYRE_LORA_GATE, "mlp.gate_proj", 0, f);
  add(gate_up, GYRE_LORA_UP, "mlp.up_proj", f, f);
  add(down, GYRE_LORA_DOWN, "mlp.down_proj", 0, h);
  add(expert_gate_up, GYRE_LORA_EXPERTS_GATE_UP, "mlp.experts.gate_up_proj", 0, 2 * c.shape.expert_size);
  add(expert_down, GYRE_LORA_EXPERTS_DOWN, "mlp.experts.down_proj", 0, h);
  add(embed, GYRE_LORA_EMBED, "model.embed_tokens", 0, h);
  if (c.head == GYRE_HEAD_LM) add(head, GYRE_LORA_HEAD, "lm_head", 0, c.vocab_size);
}

std::vector<at::Tensor> ParameterSet::flats() const {
  std::vector<at::Tensor> all{root.flat_P};
  for (const BlockTensors& b : blocks) all.push_back(b.flat_P);
  return all;
}

ParameterSet lay_out(const ModelConfig& config, const Allocate& allocate) {
  if (config.lora.rank > 0) return lay_out_adapter(config, allocate);
  ParameterSet set;
  set.root = make_root(config, allocate);
  set.named.push_back({"model.embed_tokens.weight", set.root.embed_VH});
  for (int64_t i = 0; i < config.num_layers; ++i) {
    set.blocks.push_back(make_block(config, i, allocate));
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
