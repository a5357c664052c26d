// Low-rank adapters beside the kernels' packed products: y += scale · (x Aᵀ) Bᵀ for the rows of an adapter. Every
// number of it is a chain of additions over the row alone, which goes on from the base's result: a row has the same
// bits in any batch, and where B is zero those of the base.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "kernels/gemm.h"
#include "kernels/product.h"
#include "model/parameters.h"

namespace gyre {

// What is dropped of the inputs of a layer's modules, for rows of a pass.
struct LayerDropout {
  const Dropout* of;
  int64_t layer;

  // y = x with zeros where it is dropped, of so many rows from `first` on, of `width` numbers; y may be x. ldx = 0:
  // both are operands in that precision.
  void apply(uint32_t target, Precision p, int64_t first, int64_t rows, int64_t width, const float* x, int64_t ldx,
             float* y) const;
};

// An adapter beside one projection.
struct PackedLora {
  struct Part {
    int64_t first;  // column of the projection
    uint32_t target;
    PackedMatrix a, b;  // a: where each module has an input of its own
  };
  PackedMatrix a;  // of all parts
  std::vector<Part> parts;
  int64_t rank = 0;
  float scale = 0;

  PackedLora() = default;
  // Of A nothing is packed, or that of all modules together, and each by itself as well.
  enum class A { kNone, kJoined, kApart };
  PackedLora(const LoraTensors& from, const std::vector<LoraPart>& modules, const ModelConfig& config,
             A of_a = A::kJoined);
  bool empty() const { return parts.empty(); }
  int64_t width() const { return rank * std::ssize(parts); }
  // scale · x Aᵀ of all parts, [rows, width()], from rows ldx floats apart. ldx = 0: operands (kernels/gemm.h).
  void reduce(const float* x, int64_t ldx, int64_t rows, float* u) const;
  // y += u Bᵀ
  void expand(const float* u, int64_t rows, float* y, int64_t ldy) const;
  // y += the adapter's part, of so many rows from `first` on; ldx as in reduce().
  void add(const float* x, int64_t ldx, int64_t first, int64_t rows, float* y, int64_t ldy) const;
  // The same of inputs of which something is dropped; of modules that are packed apart.
  void add_dropped(const LayerDropout& dropout, const float* x, int64_t ldx, int64_t first, int64_t rows, float* y,
                   int64_t ldy) const;
};

struct PackedLoraBlock {
  PackedLoraBlock(const BlockTensors& from, const LoraParts& modules, const ModelConfig& config,
                  PackedLora::A of_a = PackedLora::A::kJoined);
  PackedLora qkv, out, gate_up, down;
  std::vector<PackedLora> expert_gate_up, expert_down;
};

// The adapters of experts one by one: A is a view, B a copy.
struct ExpertLora {
  ExpertLora(const LoraTensors& all, int64_t experts);
  // Copies B back.
  void store(LoraTensors& all) const;
  std::vector<PackedLora> pack(const ModelConfig& config) const;

  std::vector<LoraTensors> each;
  at::Tensor b_EOR;
};

// Outside the blocks.
struct PackedLoraRoot {
  // copy_a: the embedding's A would not be here all the time. head: of the head's tensors.
  PackedLoraRoot(const RootTensors& from, const LoraTensors& head, const LoraParts& modules, const ModelConfig& config,
                 bool copy_a);
  PackedLora embed, head;
  at::Tensor embed_a_RV;
  // Adds the embedding's part to x[rows, hidden].
  void add_embedding(const int32_t* ids, int64_t rows, int64_t hidden, float* x) const;
  // Adds the head's part of hidden rows, ld floats apart, to logits, ld_logits apart.
  void add_logits(const float* hidden, int64_t ld, int64_t rows, float* logits, int64_t ld_logits) const;
  // u = scale · A of the tokens, [rows, rank].
  void embed_tokens(const int32_t* ids, int64_t rows, float* u) const;
};

// Rows of a pass with what their adapter has of the block at hand.
struct LoraRows {
  const PackedLoraBlock* packed;
  int64_t first, count;
  std::optional<LayerDropout> dropout{};
};

// y[rows, ldy] += the adapters' part of one projection; ldx as in reduce().
void add_lora(std::span<const LoraRows> rows, const PackedLora PackedLoraBlock::* of, const float* x, int64_t ldx,
              float* y, int64_t ldy);

// Rows side by side: floats, or operands (kernels/gemm.h).
struct Rows {
  const float* data;
  bool operands = false;

  int64_t stride(Precision p, int64_t width) const { return operands ? operand_width(p, width) : width; }
  // As a factor of a product, and the same transposed.
  Factor factor(Precision p, int64_t width) const { return {data, stride(p, width), 1, operands}; }
  Factor turned(Precision p, int64_t width, int64_t first = 0) const {
    return {data, 1, stride(p, width), operands, first};
  }
};

// From dy[rows, out] and x[rows, in] of a projection: adds to the gradients of A and B, and to dx. dropout: that of the
// forward pass, if there was one. dy may be operands where all modules have even numbers of columns.
void lora_backward(const ModelConfig& config, const PackedLora& packed, const LoraTensors& weights, int64_t rows,
                   int64_t in, int64_t out, Rows dy, Rows x, LoraTensors& gradients, float* dx,
                   const std::optional<LayerDropout>& dropout = {});

// The same for the embedding, whose output's gradient is dx[rows, hidden].
void embed_lora_backward(const ModelConfig& config, const PackedLoraRoot& packed, const LoraTensors& weights,
                         std::span<const int32_t> ids, const float* dx, LoraTensors& gradients);

// Packed copies of an adapter, each made when it is read first after a change.
class CpuAdapter : public Adapter {
 public:
  // Both must outlive this object.
  CpuAdapter(const ModelConfig& config, const ParameterSet& parameters);

  const ParameterSet& parameters() const { return parameters_; }
  void touch();
  // All copies. All ranks call it together.
  void prepare();
  // Throws std::invalid_argument for parameters that are not here and not prepared either.
  void require_here() const { require_gathered(parameters_, packed_ == blocks_.size() && root_); }
  // apart: with each module's A by itself.
  const PackedLoraBlock& block(size_t i, bool apart = false);
  // Training needs a block's copies only while it is there.
  void release(size_t i);
  const PackedLoraRoot& root();

 private:
  const ModelConfig& config_;
  const ParameterSet& parameters_;
  const LoraParts parts_;
  std::vector<std::unique_ptr<PackedLoraBlock>> blocks_;
  std::vector<bool> apart_;
  std::unique_ptr<PackedLoraRoot> root_;
  size_t packed_ = 0;
};

}  // namespace gyre
