// A part of the decoder on Gyre's kernels, for sampling together with its peers. Every output is the same chain of
// additions as in one process, on whichever peer, so log-probs are the trainer's bit for bit.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/block.h"
#include "backend/peers.h"

namespace gyre {

class CpuPart : public Inference {
 public:
  // Of the whole model; both must outlive this object.
  CpuPart(const ModelConfig& config, const ParameterSet& parameters, std::shared_ptr<Peers> peers);

  void touch() override { release(); }
  void release() override;
  void prepare() override;
  at::Tensor infer(std::span<const int32_t> ids, const Pass& pass, KvPages& kv) override;
  void logits(const at::Tensor& hidden_RH, at::Tensor& logits_RV) override;

 private:
  struct PartBlock {
    PackedBlock packed;
    BlockTensors beside;
  };

  at::Tensor embed(std::span<const int32_t> ids) const;

  const ParameterSet& parameters_;
  const TensorParallel parallel_;
  const ModelConfig config_;  // of the part
  RopeTable rope_;
  std::vector<PartBlock> blocks_;  // none: not made
  PackedMatrix embedding_, head_;  // some rows of the vocabulary; a tied embedding is the head
  at::Tensor final_norm_H_;
};

}  // namespace gyre
