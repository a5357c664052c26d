// Load balancing of experts (Shazeer et al. 2017; Fedus et al. 2022), sequence by sequence as in DeepSeek-V3 (2024, eq.
// 17), so that it does not depend on micro-batches. Of token t of a sequence in a layer of E experts
//   B_t = E · Σ_e share_e · p_e(t)
// where share_e is how many of the sequence's masked tokens chose expert e, divided by their number, and p the router's
// softmax; B_t of a model is the mean over its layers with experts. Its mean over tokens is the number of experts that
// a token has when all have equal loads. Shares have no gradient.
#pragma once

#include <span>
#include <vector>

#include "train/batch.h"

namespace gyre {

// Σ weights[t] · B_t over the predicted tokens. Adds coef times its gradient to that of each layer's router logits,
// `into` (may be null; empty: made here). routers_NE: Activations::routers_NE.
double balance(const ModelConfig& config, std::span<const at::Tensor> routers_NE, const Batch& batch,
               const Predicted& predicted, const float* weights, double coef, std::vector<at::Tensor>* into);

}  // namespace gyre
