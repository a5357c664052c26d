// A part of the decoder in libtorch's tensor operations, for sampling together with its peers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/aten/network.h"

namespace gyre {

class AtenPart : public Inference {
 public:
  // Of the whole model; both must outlive this object.
  AtenPart(const ModelConfig& config, const ParameterSet& parameters, const Placement& placement,
           std::shared_ptr<Peers> peers);

  void touch() override { release(); }
  void release() override;
  void prepare() override;
  at::Tensor infer(std::span<const int32_t> ids, const Pass& pass, KvPages& kv) override;
  void logits(const at::Tensor& hidden_RH, at::Tensor& logits_RV) override;

 private:
  const ParameterSet& parameters_;
  const TensorParallel parallel_;
  const ModelConfig config_;  // of the part
  const Placement placement_;
  AngleTable angles_;
  std::vector<BlockTensors> blocks_;  // none: not made
  RootTensors root_;                  // some rows of embedding and head, f32
};

}  // namespace gyre
