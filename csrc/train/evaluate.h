// Forward-only passes over batches of any size: sequences are processed in groups of bounded size, which changes no bit
// of the results because every row is computed by row-invariant kernels.
#pragma once

#include "backend/decoder.h"
#include "train/batch.h"

namespace gyre {

// Token-aligned log-probs and, when it is not null, entropies; 0 where the mask is 0. Throws NotFiniteError after
// filling the outputs when a log-prob or entropy is not finite.
void evaluate_policy(Decoder& decoder, const Batch& batch, double temperature, float* logprobs, float* entropies);

// Token-aligned values of the critic, 0 where the mask is 0. Throws NotFiniteError like evaluate_policy.
void evaluate_critic(Decoder& critic, const Batch& batch, float* values);

}  // namespace gyre
