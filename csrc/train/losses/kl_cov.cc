// KL-Cov (Cui et al. 2025, arXiv 2505.22617): the plain surrogate, and for the tokens with the highest covariance of
// log-prob and advantage in the mini-batch a penalty on the distance from the old policy.
#include <cmath>

#include "train/losses/loss.h"

namespace gyre {
namespace {

TokenLoss kl_cov(const LossToken& t, const double* constants) {
  const Ratio ratio = ratio_to_old(t);
  const double plain = -t.advantage * ratio.value;
  TokenLoss out{.value = plain, .derivative = ratio.clamped ? 0 : plain};
  if (t.over_batch != 0) {
    const double away = t.logprob - t.old_logprob;
    out.value += constants[1] * std::abs(away);
    out.derivative += constants[1] * ((away > 0) - (away < 0));
  }
  return out;
}

}  // namespace

extern const PolicyLoss kKlCov{{.name = "kl_cov",
                                .compares = true,
                                .over_batch = GYRE_OVER_BATCH_KL_COV,
                                .constants = {{"kl_cov_ratio", "(0,1]", 0.0002}, {"kl_cov_coef", "[0,)", 1.0}}},
                               kl_cov};

}  // namespace gyre
