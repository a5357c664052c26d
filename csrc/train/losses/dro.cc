// DRO (Richemond et al. 2024, arXiv 2405.19107): REINFORCE with a quadratic penalty on the distance from the policy
// that drew the token.
#include "train/losses/loss.h"

namespace gyre {
namespace {

TokenLoss dro(const LossToken& t, const double* constants) {
  const double away = t.logprob - t.behaviour;
  return {.value = -(t.advantage * t.logprob - constants[0] / 2 * away * away),
          .derivative = -t.advantage + constants[0] * away};
}

}  // namespace

extern const PolicyLoss kDro{{.name = "dro", .compares = true, .constants = {{"dro_beta", "(0,)", 0.05}}}, dro};

}  // namespace gyre
