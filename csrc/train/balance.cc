#include "train/balance.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "model/routing.h"

namespace gyre {
namespace {

// The router of one layer.
struct Router {
  const float* logits;
  size_t experts, chosen;
  double scale;  // E over the number of layers
  float* d;      // null: no gradient
  double coef;

  std::span<const float> row(const Target& target) const {
    return {logits + target.row * static_cast<int64_t>(experts), experts};
  }

  // Of the masked tokens of one sequence.
  double add(std::span<const int64_t> tokens, std::span<const Target> targets, const float* weights) const {
    std::vector<double> share(experts), p(experts);
    std::vector<int32_t> own(chosen);
    for (const Target& target : targets) {
      choose_experts(row(target), own);
      for (const int32_t e : own) share[static_cast<size_t>(e)] += 1 / static_cast<double>(targets.size());
    }
    double sum = 0;
    for (size_t i = 0; i < targets.size(); ++i) {
      softmax_row(row(targets[i]), p);
      double mean = 0;
      for (size_t e = 0; e < experts; ++e) mean += share[e] * p[e];
      const double weight = scale * weights[tokens[i]];
      sum += weight * mean;
      if (d == nullptr) continue;
      float* to = d + targets[i].row * static_cast<int64_t>(experts);
      for (size_t e = 0; e < experts; ++e) to[e] += static_cast<float>(coef * weight * p[e] * (share[e] - mean));
    }
    return sum;
  }
};

}  // namespace

double balance(const ModelConfig& config, std::span<const at::Tensor> routers_NE, const Batch& batch,
               const Predicted& predicted, const float* weights, double coef, std::vector<at::Tensor>* into) {
  std::vector<size_t> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    if (config.mixes(i)) layers.push_back(static_cast<size_t>(i));
  }
  if (layers.empty() || predicted.tokens.empty()) return 0;
  if (into && into->empty()) {
    for (const at::Tensor& logits_NE : routers_NE) into->push_back(at::zeros_like(logits_NE));
  }
  const auto experts = static_cast<size_t>(config.shape.experts);
  double sum = 0;
  for (const size_t layer : layers) {
    const Router router{.logits = routers_NE[layer].const_data_ptr<float>(),
                        .experts = experts,
                        .chosen = static_cast<size_t>(config.shape.chosen_experts),
                        .scale = static_cast<double>(experts) / static_cast<double>(layers.size()),
                        .d = into ? (*into)[layer].mutable_data_ptr<float>() : nullptr,
                        .coef = coef};
    const std::span tokens(predicted.tokens);
    for (size_t first = 0, end = 0; first < tokens.size(); first = end) {
      const int64_t next = *std::ranges::upper_bound(batch.offsets, tokens[first]);  // sequence
      while (end < tokens.size() && tokens[end] < next) ++end;
      sum += router.add(tokens.subspan(first, end - first), std::span(predicted.targets).subspan(first, end - first),
                        weights);
    }
  }
  return sum;
}

}  // namespace gyre
