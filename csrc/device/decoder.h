// The decoder in tensor operations: the second implementation of the mathematics behind model/decoder.h, which hands
// over to it when the model's device is not "cpu". All tensors are on the device; blocks compute as device/block.h
// says, embedding, head, losses, gradients and parameters are f32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "device/block.h"
#include "device/placement.h"
#include "device/weights.h"
#include "model/kv_pages.h"

namespace gyre {

// What the backward pass needs: one small graph per block, so that its gradients are freed before the next block's.
struct DeviceActivations {
  DevicePass pass;
  at::Tensor ids_N;
  std::vector<at::Tensor> inputs_NH;   // leaves
  std::vector<at::Tensor> outputs_NH;  // with their graphs; none when blocks are recomputed
  at::Tensor last_NH, hidden_NH;       // input (a leaf) and output of the final norm
};

class DeviceDecoder {
 public:
  // Both references must outlive the decoder.
  DeviceDecoder(const ModelConfig& config, const ParameterSet& parameters);

  const Placement& placement() const { return placement_; }

  // Inference through pages. Returns the final-norm hidden states of all rows, f32 [N, H].
  at::Tensor forward(std::span<const int32_t> ids, const Pass& pass, KvPages& kv, uint64_t version);

  // Training; the keys are rows of the pass. `keep` may be null.
  at::Tensor forward(std::span<const int32_t> ids, const Pass& pass, DeviceActivations* keep, bool recompute,
                     uint64_t version);

  // Adds the parameter gradients of Σ <d_hidden_NH, hidden_NH>. May be called several times on the same activations.
  void backward(const at::Tensor& d_hidden_NH, const DeviceActivations& kept, ParameterSet& gradients);

  // f32 [R, V], or [R, 1] of a value head. In f32 throughout: in bfloat16 logits would be rounded by up to 1/16 and
  // log-probs with them.
  void logits(const at::Tensor& hidden_RH, at::Tensor& logits_RV) const;

 private:
  at::Tensor embed(const at::Tensor& ids_N) const;
  at::Tensor ids_tensor(std::span<const int32_t> ids) const;
  RowAngles angles(const Pass& pass);
  at::Tensor run(const at::Tensor& ids_N, const DevicePass& pass, KvPages* kv);
  at::Tensor run_kept(DeviceActivations& keep, bool recompute);
  at::Tensor final_norm(const at::Tensor& x_NH) const;

  const ModelConfig& config_;
  const ParameterSet& parameters_;
  Placement placement_;
  DeviceRope rope_;
  DeviceWeights weights_;
};

}  // namespace gyre
