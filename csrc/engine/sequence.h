// A request in progress, and the stop strings that may end it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"

namespace gyre {

struct Sequence {
  explicit Sequence(Request r) : request(std::move(r)), tokens(request.prompt) {}

  Request request;
  std::vector<int32_t> tokens;  // the prompt, then the output
  std::vector<float> logprobs, sampling_logprobs;
  std::string text;  // bytes of the output; kept only when there are stop strings

  std::vector<int32_t> pages;  // page table
  int64_t computed = 0;        // leading positions whose keys and values are in the pages
  int64_t scheduled = 0;       // rows in the coming forward pass: positions computed .. computed+scheduled-1

  int64_t told = 0;      // output tokens that Engine::progress has handed out
  uint64_t arrival = 0;  // in order of submission
  bool started = false;  // has been among the running ones
  int64_t cached = 0;    // prompt positions that the prefix cache held when it started

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t prompt_length() const { return static_cast<int64_t>(request.prompt.size()); }
  int64_t outputs() const { return length() - prompt_length(); }
  int64_t pending() const { return length() - computed; }
  // One row away from its next token, having produced some already.
  bool decoding() const { return outputs() > 0 && pending() == 1; }
  // The coming pass ends with this sequence's last token, so it yields a new one.
  bool samples() const { return scheduled > 0 && scheduled == pending(); }
};

// Stop strings: bytes that end a reply wherever token boundaries fall.
class StopMatcher {
 public:
  // bytes of token i: data[offsets[i] .. offsets[i+1])
  void set_vocabulary(std::string data, std::vector<int64_t> offsets);
  bool has_vocabulary() const { return offsets_.size() > 1; }

  // Appends the newest token's bytes to sequence.text and returns the first of the request's stop strings that ends
  // within those bytes, -1 when none does. To be called once per output token.
  int64_t advance(Sequence& sequence) const;

 private:
  std::string data_;
  std::vector<int64_t> offsets_;
};

}  // namespace gyre
