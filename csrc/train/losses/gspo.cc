// GSPO (Zheng et al. 2025, arXiv 2507.18071): PPO's clip of the episode's ratio, the exponential of the mean log-ratio
// of its tokens. In the token form of the paper every token has the episode's ratio and the gradient of its own
// log-prob.
#include <algorithm>
#include <cmath>

#include "train/losses/loss.h"

namespace gyre {
namespace {

constexpr double kMeanLogRatioLimit = 10.0;

TokenLoss gspo(const LossToken& t, const double* constants) {
  const double mean = t.over_batch;
  const Ratio ratio{std::exp(std::min(kMeanLogRatioLimit, mean)), mean > kMeanLogRatioLimit};
  return clipped_surrogate(t.advantage, ratio, constants[0], constants[1], 0);
}

}  // namespace

extern const PolicyLoss kGspo{{.name = "gspo",
                               .compares = true,
                               .over_batch = GYRE_OVER_BATCH_MEAN_LOG_RATIO,
                               .constants = {{"clip_low", "[0,1]", 0.2}, {"clip_high", "[0,)", 0.28}}},
                              gspo};

}  // namespace gyre
