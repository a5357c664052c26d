// CISPO (MiniMax 2025, arXiv 2506.13585): REINFORCE weighed by the clamped ratio, which is not differentiated, so that
// clipped tokens still learn.
#include <algorithm>

#include "train/losses/loss.h"

namespace gyre {
namespace {

TokenLoss cispo(const LossToken& t, const double* constants) {
  const double ratio = ratio_to_old(t).value;
  const double weight = std::clamp(ratio, 1 - constants[0], 1 + constants[1]);
  return {.value = -weight * t.advantage * t.logprob, .derivative = -weight * t.advantage, .clipped = weight != ratio};
}

}  // namespace

extern const PolicyLoss kCispo{
    {.name = "cispo", .compares = true, .constants = {{"clip_low", "[0,1]", 0.2}, {"clip_high", "[0,)", 0.28}}}, cispo};

}  // namespace gyre
