// Every parameter-shaped set of tensors (weights, gradients, Adam moments) has this one layout, block by block, so that
// a block's weights and its gradients are reached through one place, where shards hook in (Residence).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/config.h"

namespace gyre {

// A low-rank adapter beside a projection, which may be of several modules (q, k and v read one input): the A of the
// adapted ones one after the other, and their B. Undefined where none is adapted.
struct LoraTensors {
  at::Tensor a_SI;  // S = rank for each module, I the projection's input
  at::Tensor b_OR;  // O: the modules' outputs, R = rank
};

// One transformer block. q|k|v and gate|up are fused row-wise; absent tensors are undefined.
struct BlockTensors {
  at::Tensor flat_P;  // the block's whole storage; everything below is a view of it
  // q_norm and k_norm are [Q] and [K] where they are over all heads. The out norms are on what a branch adds.
  at::Tensor attn_norm_H, qkv_RH /* R = Q+2K */, qkv_bias_R, q_norm_D, k_norm_D, out_HQ, out_bias_H, attn_out_norm_H;
  at::Tensor mlp_norm_H, gate_up_2FH, gate_up_bias_2F, down_HF, down_bias_H, mlp_out_norm_H;
  // One expert after another, each like gate_up and down; gate_up and down themselves are an MLP beside them.
  at::Tensor router_EH, expert_gate_up_XH /* X = E·2F */, expert_down_YF /* Y = E·H */;
  // An adapter's set has these alone. Those of experts as gyre_lora_target says.
  LoraTensors qkv_lora, out_lora, gate_up_lora, down_lora, expert_gate_up_lora, expert_down_lora;
};

// Embedding, final norm and head. `head_VH` is the same tensor as `embed_VH` when embeddings are tied.
struct RootTensors {
  at::Tensor flat_P;
  at::Tensor embed_VH, final_norm_H, head_VH, score_1H, score_bias_1;
  LoraTensors embed_lora /* I = V, O = H */, head_lora;
};

// An adapted module: its columns of the projection's output.
struct LoraPart {
  const char* name;  // within its block
  int64_t first, count;
  uint32_t target;  // gyre_lora_target
};
// The adapted modules of each projection, in order; of experts the one that all of a layer are.
struct LoraParts {
  explicit LoraParts(const ModelConfig& config);
  std::vector<LoraPart> qkv, out, gate_up, down, expert_gate_up, expert_down, embed, head;
};

struct NamedTensor {
  std::string name;  // Hugging Face name
  at::Tensor value;  // view into a block's or the root's flat storage
};

// Behind a set whose storage is not all here at all times (shards over ranks): what a network needs of it comes and
// goes. A unit is a block, or kRoot. Networks enter units in the order of their passes and leave them when they have
// read (weights) or completed (gradients) them; entering again what is here changes nothing, and a root's weights stay
// until rest().
class Residence {
 public:
  virtual ~Residence() = default;
  virtual void enter(int64_t unit) = 0;
  virtual void leave(int64_t unit) = 0;
  // The pass is over: nothing of the set is used until the next.
  virtual void rest() {}
  // Nor will there be one soon: memory that it would use again is freed.
  virtual void let_go() { rest(); }
  // And the values have changed.
  virtual void change() { let_go(); }
  // Whether enter() and leave() need not be called.
  virtual bool always_here() const { return false; }
};
inline constexpr int64_t kRoot = -1;

struct ParameterSet {
  std::vector<BlockTensors> blocks;
  RootTensors root;
  std::vector<NamedTensor> named;  // embed, blocks in order, final norm, head:
                                   // Hugging Face's parts of the fused tensors

  std::shared_ptr<Residence> residence;  // null: everything is here
  bool always_here() const { return !residence || residence->always_here(); }
  void enter(int64_t unit) const {
    if (residence) residence->enter(unit);
  }
  void leave(int64_t unit) const {
    if (residence) residence->leave(unit);
  }
  void let_go() const {
    if (residence) residence->let_go();
  }
  // Calls body(i) for all blocks in order, each while it is here.
  template <class Body>
  void for_blocks(Body&& body) const {
    for (size_t i = 0; i < blocks.size(); ++i) {
      enter(static_cast<int64_t>(i));
      body(i);
      leave(static_cast<int64_t>(i));
    }
  }

  // The flat storages in a fixed order: root first, then blocks.
  std::vector<at::Tensor> flats() const;
};

// What the passes of a network read: a base, and the adapter beside it (null: there is none).
struct ReadParameters {
  const ParameterSet& base;
  const ParameterSet* adapter = nullptr;

  void enter(int64_t unit) const {
    base.enter(unit);
    if (adapter) adapter->enter(unit);
  }
  void leave(int64_t unit) const {
    base.leave(unit);
    if (adapter) adapter->leave(unit);
  }
};

// The set of a configuration (an adapter's, where it has one) over storage that `allocate` gives: so many zero f32
// numbers, on whichever device.
ParameterSet lay_out(const ModelConfig& config, const std::function<at::Tensor(int64_t count)>& allocate);

}  // namespace gyre
