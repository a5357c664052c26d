// What a caller asks of the engine and what it gets back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "model/config.h"

namespace gyre {

// How the next token is chosen. Order, as in vLLM: stop ids are masked while min_tokens forbids them, logits are
// divided by the temperature, then min-p, top-k and top-p cut the distribution, each on what the one before it left.
struct Sampling {
  double temperature = 1.0;  // 0 = greedy: the most likely token, the lowest id on ties
  int64_t top_k = 0;         // keep the k most likely tokens, lower ids first on ties; 0 = off
  double top_p = 1.0;        // keep the most likely tokens until their mass reaches top_p; 1 = off
  double min_p = 0.0;        // keep tokens at least min_p times as likely as the most likely one; 0 = off
  int64_t max_tokens = 1;    // a sequence also ends, with kLength, when it reaches the engine's max_length
  int64_t min_tokens = 0;  // no stop id among the first min_tokens, and no stop string ends in the first min_tokens - 1
  uint64_t seed = 0;       // the draw of output token p depends on (seed, p) alone
  bool ignore_eos = false;  // stop ids do not stop
};

struct Request {
  uint64_t id = 0;
  std::vector<int32_t> prompt{};
  Sampling sampling{};
  std::vector<int32_t> stop_ids{};          // ids outside the vocabulary never occur and are harmless
  std::vector<std::string> stop_strings{};  // bytes
};

enum class Finish { kNone = 0, kStop = 1, kLength = 2, kAbort = 3 };

struct Output {
  uint64_t id = 0;
  Finish finish = Finish::kNone;
  int64_t position = 0;           // of the first of these tokens in the reply
  std::vector<int32_t> tokens{};  // the stop token included, and all of the tokens that a stop string ends in
  std::vector<float> logprobs{};  // under the policy being trained: logits / temperature over the whole vocabulary
  std::vector<float> sampling_logprobs{};  // under the distribution sampled from; 0 for greedy
  int64_t stop_index = -1;                 // which stop string matched
  int64_t cached_tokens = 0;               // prompt tokens whose keys and values were found in the prefix cache
};

struct EngineConfig {
  int64_t kv_bytes = 0;          // budget of the KV pool; 0 = enough for max_sequences × max_length
  int64_t max_sequences = 0;     // sequences that run together
  int64_t max_length = 0;        // prompt + output of one sequence
  int64_t max_batch_tokens = 0;  // rows of one forward pass
  bool prefix_cache = true;      // share keys and values between requests that begin alike
};

// What an engine can be asked to do, checked before anything is allocated or queued: both throw std::invalid_argument.
void check(const EngineConfig& config, const ModelConfig& model, int64_t bytes_per_page);
// Without what depends on other requests and on the vocabulary.
void check(const Request& request, const EngineConfig& config, const ModelConfig& model, int64_t bytes_per_page);

// Pages of the KV pool.
int64_t pool_pages(const EngineConfig& config, int64_t bytes_per_page);

// Pages that hold `positions` positions.
inline int64_t pages_for(int64_t positions) { return positions / kPageTokens + (positions % kPageTokens != 0); }

}  // namespace gyre
