// The policy gradient with the ratio to the policy that drew the token, without a clip (Tinker's documentation).
#include <algorithm>
#include <cmath>

#include "train/losses/loss.h"

namespace gyre {
namespace {

TokenLoss importance_sampling(const LossToken& t, const double*) {
  const double log_ratio = t.logprob - t.behaviour;
  const double plain = -t.advantage * std::exp(std::clamp(log_ratio, -kLogRatioLimit, kLogRatioLimit));
  return {.value = plain, .derivative = std::abs(log_ratio) > kLogRatioLimit ? 0 : plain};
}

}  // namespace

extern const PolicyLoss kImportanceSampling{{.name = "importance_sampling", .compares = true, .constants = {}},
                                            importance_sampling};

}  // namespace gyre
