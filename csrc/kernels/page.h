// Keys and values live in pages of this many consecutive positions (paged attention as in vLLM, Kwon et al. 2023).
#pragma once

#include <cstdint>

namespace gyre {

inline constexpr int64_t kPageTokens = 16;

}  // namespace gyre
