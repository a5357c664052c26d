// The last part of a step: from hidden states to one drawn token for each sequence.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampler.h"
#include "engine/sequence.h"
#include "model/decoder.h"

namespace gyre {

// Draws the next token of sequences[i] from row rows[i] of the hidden states. Throws what draw_token throws.
std::vector<Draw> draw_tokens(Decoder& decoder, const at::Tensor& hidden_NH, std::span<const int64_t> rows,
                              std::span<Sequence* const> sequences);

}  // namespace gyre
