// Clip-Cov (Cui et al. 2025, arXiv 2505.22617): PPO in which some tokens with a high covariance of log-prob and
// advantage, drawn over the mini-batch, learn nothing, so that entropy does not collapse.
#include "train/losses/loss.h"

namespace gyre {
namespace {

TokenLoss clip_cov(const LossToken& t, const double* constants) {
  if (t.over_batch != 0) return {.value = 0, .derivative = 0, .clipped = true};
  return clipped_surrogate(t.advantage, ratio_to_old(t), constants[0], constants[1], 0);
}

}  // namespace

extern const PolicyLoss kClipCov{{.name = "clip_cov",
                                  .compares = true,
                                  .over_batch = GYRE_OVER_BATCH_CLIP_COV,
                                  .constants = {{"clip_low", "[0,1]", 0.2},
                                                {"clip_high", "[0,)", 0.28},
                                                {"clip_cov_ratio", "(0,1]", 0.0002},
                                                {"clip_cov_low", "", 1.0},
                                                {"clip_cov_high", "", 5.0}}},
                                 clip_cov};

}  // namespace gyre
