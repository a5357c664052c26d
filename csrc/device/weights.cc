#include "device/weights.h"

namespace gyre {
namespace {

constexpr at::Tensor BlockTensors::* kNorms[] = {&BlockTensors::attn_norm_H, &BlockTensors::q_norm_D,
                                                 &BlockTensors::k_norm_D, &BlockTensors::mlp_norm_H};
constexpr at::Tensor BlockTensors::* kProjections[] = {
    &BlockTensors::qkv_RH,      &BlockTensors::qkv_bias_R,      &BlockTensors::out_HQ,  &BlockTensors::out_bias_H,
    &BlockTensors::gate_up_2FH, &BlockTensors::gate_up_bias_2F, &BlockTensors::down_HF, &BlockTensors::down_bias_H};

at::Tensor leaf(const at::Tensor& parameter, at::ScalarType compute) {
  if (!parameter.defined()) return {};
  return parameter.detach().to(compute).requires_grad_(true);
}

}  // namespace

void DeviceWeights::refresh(const ParameterSet& parameters, uint64_t newest, at::ScalarType compute) {
  if (version == newest) return;
  blocks.assign(parameters.blocks.size(), {});
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (const auto field : kNorms) blocks[i].*field = leaf(parameters.blocks[i].*field, at::kFloat);
    for (const auto field : kProjections) blocks[i].*field = leaf(parameters.blocks[i].*field, compute);
  }
  final_norm_H = leaf(parameters.root.final_norm_H, at::kFloat);
  version = newest;
}

std::vector<at::Tensor> tensors_of(const BlockTensors& block) {
  std::vector<at::Tensor> all;
  const auto add = [&](const auto& fields) {
    for (const auto field : fields) {
      if ((block.*field).defined()) all.push_back(block.*field);
    }
  };
  add(kNorms);
  add(kProjections);
  return all;
}

}  // namespace gyre
