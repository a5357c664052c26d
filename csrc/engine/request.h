// What a caller asks of the engine and what it gets back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gyre.h"
#include "kernels/attention.h"
#include "model/config.h"

namespace gyre {

struct Request {
  uint64_t id = 0;
  std::vector<int32_t> prompt{};
  gyre_sampling sampling{};
  std::vector<int32_t> stop_ids{};          // ids outside the vocabulary never occur and are harmless
  std::vector<std::string> stop_strings{};  // bytes
};

struct Output {
  uint64_t id = 0;
  gyre_finish finish = GYRE_FINISH_NONE;
  int64_t position = 0;           // of the first of these tokens in the reply
  std::vector<int32_t> tokens{};  // the stop token included, and all of the tokens that a stop string ends in
  std::vector<float> logprobs{};  // under the policy being trained: logits / temperature over the whole vocabulary
  std::vector<float> sampling_logprobs{};  // under the distribution sampled from; 0 for greedy
  int64_t stop_index = -1;                 // which stop string matched
  int64_t cached_tokens = 0;               // prompt tokens whose keys and values were found in the prefix cache
};

// What an engine can be asked to do, checked before anything is allocated or queued: both throw std::invalid_argument.
void check(const gyre_engine_config& config, const ModelConfig& model, int64_t bytes_per_page);
// Without what depends on other requests and on the vocabulary.
void check(const Request& request, const gyre_engine_config& config, const ModelConfig& model, int64_t bytes_per_page);

// Pages of the KV pool.
int64_t pool_pages(const gyre_engine_config& config, int64_t bytes_per_page);

// Pages that hold `positions` positions.
inline int64_t pages_for(int64_t positions) { return positions / kPageTokens + (positions % kPageTokens != 0); }

}  // namespace gyre
