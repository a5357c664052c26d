// The decoder in libtorch's tensor operations, on the CPU or on a GPU. Products and attention are in the compute type;
// the residual stream, norms and rotations between them are f32, which costs little and keeps bfloat16 from rounding
// the sum of all layers at every one of them. Embedding, head, losses, gradients and parameters are f32.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/aten/block.h"
#include "backend/aten/decode.h"
#include "backend/backend.h"
#include "backend/peers.h"
#include "kernels/rope.h"

namespace gyre {

// Where tensors are, and the type of products, keys and values.
struct Placement {
  at::Device device;
  at::ScalarType compute;
  Recorder* (*make_recorder)(int device) = nullptr;  // null: CUDA's, on a GPU

  at::TensorOptions options() const { return at::TensorOptions().device(device).dtype(compute); }
};

// The backend there, of a configuration whatever device that names.
std::unique_ptr<Backend> make_aten_backend(const ModelConfig& config, const Placement& placement);

// A copy on the device of numbers from the host.
template <typename T>
at::Tensor to_device(const T* data, at::IntArrayRef shape, at::Device device);

// Both as [layer][page * 16][kv_head][head_dim] in the compute type. The page after the last is scratch (decode.h).
class AtenPages : public KvPages {
 public:
  AtenPages(const ModelConfig& config, const Placement& placement, int64_t num_pages);
  int64_t num_pages() const override { return num_pages_; }
  void copy_page(int64_t from, int64_t to) override;
  void decode_in_fixed_shapes(bool on) override;
  // Null: they do not.
  DecodeSteps* steps() const { return steps_.get(); }
  LayerPages layer(int64_t layer) const { return {keys_.select(0, layer), values_.select(0, layer)}; }

 private:
  int64_t num_pages_, window_;
  Placement placement_;
  at::Tensor keys_, values_;
  std::unique_ptr<DecodeSteps> steps_;
};

// The CPU kernels' angles on the device.
class AngleTable {
 public:
  AngleTable(const ModelConfig& config, const Placement& placement) : device_(placement.device), ropes_(config) {}
  RowAngles of(const Pass& pass);
  // Of positions on the device, less than positions().
  RowAngles at(const at::Tensor& positions_N) const;
  // Makes the angles of positions 0 .. end-1 available.
  void reserve(int64_t end);
  // Another number whenever the angles lie elsewhere.
  int64_t positions() const { return uploaded_; }

 private:
  at::Device device_;
  Ropes ropes_;
  int64_t uploaded_ = 0;
  RowAngles all_;  // [positions, pairs]
};

at::Tensor upload_ids(std::span<const int32_t> ids, at::Device device);  // int64
// What the first block takes in place of embeddings, and what becomes of its input's gradient.
at::Tensor scaled_embedding(const ModelConfig& config, const at::Tensor& x_NH);
// What becomes of a head's products.
void shape_logits(const ModelConfig& config, at::Tensor& logits_RV);
// The tensors of an adapter in the compute type, leaves of autograd's graphs; of the root's in f32. Of parameters that
// are not here all the time copies.
class AtenAdapter : public Adapter {
 public:
  AtenAdapter(const ModelConfig& config, const ParameterSet& parameters, at::ScalarType compute)
      : config_(config),
        parameters_(parameters),
        compute_(compute),
        parts_(config),
        blocks_(parameters.blocks.size()) {}

  const ParameterSet& parameters() const { return parameters_; }
  const ModelConfig& config() const { return config_; }
  void touch();
  void prepare();
  // Throws std::invalid_argument for parameters that are neither here nor prepared.
  void require_here() const { require_gathered(parameters_, made_ == blocks_.size()); }
  const BlockTensors& block(size_t i);
  const RootTensors& root();
  AtenLoraRows rows(size_t block, int64_t first, int64_t count) {
    return {&this->block(block), &parts_, config_.lora.scale, first, count};
  }

 private:
  const ModelConfig& config_;
  const ParameterSet& parameters_;
  const at::ScalarType compute_;
  const LoraParts parts_;
  std::vector<BlockTensors> blocks_;
  size_t made_ = 0;
  std::unique_ptr<RootTensors> root_;
};

// One small graph per block, so that its gradients are freed before the next block's.
struct AtenActivations : Activations {
  AtenPass shared;
  at::Tensor ids_N;
  std::vector<at::Tensor> inputs_NH;   // leaves
  std::vector<at::Tensor> outputs_NH;  // with their graphs; none when blocks are recomputed
  at::Tensor last_NH, hidden_NH;       // input (a leaf) and output of the final norm
  at::Tensor final_norm_H;             // a leaf
};

class AtenNetwork : public Network {
 public:
  AtenNetwork(const ModelConfig& config, const ParameterSet& parameters, const Placement& placement);
  // With an adapter beside a base, which must outlive it.
  AtenNetwork(const ModelConfig& config, const ParameterSet& adapter, AtenNetwork& base);

  std::unique_ptr<Network> adapted(const ModelConfig& config, const ParameterSet& parameters) override {
    return std::make_unique<AtenNetwork>(config, parameters, *this);
  }
  Adapter* adapter() override { return adapter_.get(); }
  void touch() override;
  void release() override;
  void prepare() override;
  at::Tensor infer(std::span<const int32_t> ids, const Pass& pass, KvPages& kv) override;
  at::Tensor forward(std::span<const int32_t> ids, Pass pass, bool recompute,
                     std::unique_ptr<Activations>* keep) override;
  void backward(const std::vector<HiddenGradient>& all, const Activations& kept) override;
  // In f32 throughout: in bfloat16 logits would be rounded by up to 1/16 and log-probs with them.
  void logits(const at::Tensor& hidden_RH, std::span<const AdapterRows> adapters, at::Tensor& logits_RV) override;
  Scores score(const at::Tensor& hidden_NH, std::span<const Target> targets, float inverse_temperature,
               bool want_entropy, int64_t k) override;
  void score_backward(const at::Tensor& hidden_NH, std::span<const Target> targets, float inverse_temperature,
                      const Support& support, const Dropout& dropout, const Objective& objective) override;
  at::Tensor value_backward(const at::Tensor& hidden_NH, std::span<const Target> targets,
                            std::span<const double> d_values, ParameterSet& gradients) override;

 private:
  const BlockTensors& block(size_t i);
  at::Tensor run(const at::Tensor& ids_N, const AtenPass& pass, std::span<const AdapterRows> adapters, AtenPages* kv);
  at::Tensor forward_block(size_t i, const AtenActivations& kept, bool record);
  static std::vector<AtenLoraRows> lora_rows(std::span<const AdapterRows> adapters, size_t block);
  // The leaves of a block that gradients are of, and their gradients' tensors.
  std::vector<at::Tensor> leaves(size_t block);
  const RootTensors& value_root() const { return adapter_ ? adapter_->parameters().root : parameters_.root; }
  at::Tensor logits_of(const at::Tensor& rows_RH);

  const ModelConfig& config_;
  const ParameterSet& parameters_;  // the base's
  const ReadParameters read_;
  Placement placement_;
  AtenNetwork* const base_;  // this one, without an adapter
  const std::unique_ptr<AtenAdapter> adapter_;
  // Projections in the compute type: in float32 they share the parameters' storage, otherwise they are copies, made
  // again after each change. Norms are f32. Leaves of autograd's graphs.
  std::vector<BlockTensors> blocks_;       // without flat_P
  uint64_t weights_ = 0;                   // another number whenever those that infer() reads may lie elsewhere
  std::unique_ptr<ParameterSet> sampled_;  // of parameters that are not here all the time: copies for inference
  AngleTable angles_;
};

// A part of the decoder, for sampling together with its peers.
class AtenPart : public Inference {
 public:
  // Of the whole model, and the adapter that all rows pass through (may be null); they must outlive this object.
  AtenPart(const ModelConfig& config, const ParameterSet& parameters, const ParameterSet* adapter,
           const Placement& placement, std::shared_ptr<Peers> peers);

  void touch() override;
  void release() override;
  void prepare() override;
  at::Tensor infer(std::span<const int32_t> ids, const Pass& pass, KvPages& kv) override;
  void logits(const at::Tensor& hidden_RH, std::span<const AdapterRows> adapters, at::Tensor& logits_RV) override;

 private:
  void prepare_adapter();

  const ParameterSet& parameters_;
  const ParameterSet* const adapter_;
  const TensorParallel parallel_;
  const ModelConfig config_;  // of the part
  const LoraParts modules_;
  const Placement placement_;
  AngleTable angles_;
  std::vector<BlockTensors> blocks_;  // none: not made
  std::vector<BlockTensors> lora_;
  RootTensors lora_root_;
  RootTensors root_;  // some rows of embedding and head, f32
};

}  // namespace gyre
