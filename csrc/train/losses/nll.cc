// Minus the log-prob of each token: supervised fine-tuning.
#include "train/losses/loss.h"

namespace gyre {
namespace {

TokenLoss nll(const LossToken& t, const double*) { return {.value = -t.logprob, .derivative = -1}; }

}  // namespace

extern const PolicyLoss kNll{{.name = "nll", .compares = false, .constants = {}}, nll};

}  // namespace gyre
