// What a caller asks of the engine, a request in progress with the stop strings that may end it, and what the caller
// gets back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gyre_engine.h"
#include "kernels/attention.h"
#include "model/config.h"

namespace gyre {

class Decoder;

struct Request {
  uint64_t id = 0;
  std::shared_ptr<const Decoder> policy{};  // null: the engine's decoder
  std::vector<int32_t> prompt{};
  gyre_sampling sampling{};
  std::vector<int32_t> stop_ids{};          // ids outside the vocabulary never occur and are harmless
  std::vector<std::string> stop_strings{};  // bytes
  int64_t drawn = 0;                        // last tokens of the prompt that are output of an earlier request
  gyre_keep keep = GYRE_KEEP_NONE;
  bool kept = false;  // the prompt's keys and values are those kept under the id
};

struct Output {
  uint64_t id = 0;
  gyre_finish finish = GYRE_FINISH_NONE;
  int64_t position = 0;           // of the first of these tokens in the reply
  std::vector<int32_t> tokens{};  // the stop token included, and all of the tokens that a stop string ends in
  std::vector<float> logprobs{};  // under the policy being trained: logits / temperature over the whole vocabulary
  std::vector<float> sampling_logprobs{};        // under the distribution sampled from; 0 for greedy
  std::vector<gyre_alternative> alternatives{};  // of each token in turn, as many as were asked for
  int64_t cached_tokens = 0;                     // prompt tokens whose keys and values were found in the prefix cache
  bool kept = false;                             // its keys and values stay under its id
};

struct Sequence {
  explicit Sequence(Request r)
      : request(std::move(r)),
        tokens(request.prompt),
        logprobs(request.drawn),
        sampling_logprobs(request.drawn),
        alternatives(request.drawn * request.sampling.alternatives),
        reported(request.drawn) {}

  Request request;
  std::vector<int32_t> tokens;  // the prompt, then the output
  std::vector<float> logprobs, sampling_logprobs;
  std::vector<gyre_alternative> alternatives;
  std::string text;  // bytes of the output; kept only when there are stop strings

  uint64_t weights = 0;  // the policy's version that computes the rows
  uint64_t space = 0;    // of the prefix cache: the same, or its own where older weights computed some of the pages
  std::vector<int32_t> pages;  // page table
  int64_t computed = 0;        // leading positions whose keys and values are in the pages
  int64_t scheduled = 0;       // rows in the coming forward pass: positions computed .. computed+scheduled-1
  std::vector<int32_t> draft;  // proposed next tokens, whose rows are the last of those scheduled

  int64_t learned = 0;   // leading tokens that proposals may repeat
  int64_t reported = 0;  // output tokens that Engine::progress has returned
  uint64_t arrival = 0;  // in order of submission
  bool started = false;  // has been among the running ones
  int64_t cached = 0;    // prompt positions that the prefix cache held when it started

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t prompt_length() const { return static_cast<int64_t>(request.prompt.size()) - request.drawn; }
  int64_t outputs() const { return length() - prompt_length(); }
  int64_t pending() const { return length() - computed; }
  // One row away from its next token, having produced some already.
  bool decoding() const { return outputs() > 0 && pending() == 1; }
  // Its pages stay when it ends for this reason.
  bool keeps(gyre_finish reason) const {
    const bool asked = reason == GYRE_FINISH_ABORT ? request.keep != GYRE_KEEP_NONE
                                                   : reason == GYRE_FINISH_LENGTH && request.keep == GYRE_KEEP_CUT;
    return asked && pending() == 1 && (request.kept || outputs() > request.drawn);
  }
  // The coming pass ends with this sequence's last token, so it yields a new one.
  bool samples() const { return scheduled > 0 && scheduled >= pending(); }
};

// Stop strings: bytes that end a reply wherever token boundaries fall.
class StopMatcher {
 public:
  // bytes of token i: data[offsets[i] .. offsets[i+1])
  void set_vocabulary(std::string data, std::vector<int64_t> offsets);
  bool has_vocabulary() const { return offsets_.size() > 1; }

  // Fills sequence.text with what was drawn before.
  void resume(Sequence& sequence) const;
  // Appends the newest token's bytes to sequence.text and tells whether one of the request's stop strings ends within
  // those bytes. To be called once per output token.
  bool advance(Sequence& sequence) const;

 private:
  void append(Sequence& sequence, int32_t id) const;

  std::string data_;
  std::vector<int64_t> offsets_;
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
