// Stop strings: bytes that end a reply wherever token boundaries fall.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/sequence.h"

namespace gyre {

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
