// What an engine can be asked to do, checked before anything is allocated or queued.
#pragma once

#include <cstdint>

#include "engine/request.h"
#include "model/config.h"

namespace gyre {

struct EngineConfig {
  int64_t kv_bytes = 0;          // budget of the KV pool; 0 = enough for max_sequences × max_length
  int64_t max_sequences = 0;     // sequences that run together
  int64_t max_length = 0;        // prompt + output of one sequence
  int64_t max_batch_tokens = 0;  // rows of one forward pass
  bool prefix_cache = true;      // share keys and values between requests that begin alike
};

// Both throw std::invalid_argument.
void check(const EngineConfig& config, const ModelConfig& model);
// Without what depends on other requests and on the vocabulary.
void check(const Request& request, const EngineConfig& config, const ModelConfig& model);

// Pages of the KV pool.
int64_t pool_pages(const EngineConfig& config, const ModelConfig& model);

}  // namespace gyre
