#include "engine/sequence.h"

#include <stdexcept>
#include <utility>

namespace gyre {

void StopMatcher::set_vocabulary(std::string data, std::vector<int64_t> offsets) {
  if (offsets.empty() || offsets.front() != 0 || offsets.back() != static_cast<int64_t>(data.size()))
    throw std::invalid_argument("vocabulary: offsets must run from 0 to the number of bytes, " +
                                std::to_string(data.size()));
  for (size_t i = 1; i < offsets.size(); ++i)
    if (offsets[i] < offsets[i - 1])
      throw std::invalid_argument("vocabulary: offset " + std::to_string(i) + " is smaller than the one before it");
  data_ = std::move(data);
  offsets_ = std::move(offsets);
}

int64_t StopMatcher::advance(Sequence& sequence) const {
  const auto& stops = sequence.request.stop_strings;
  if (stops.empty()) return -1;
  const size_t before = sequence.text.size();
  // Ids behind the table are padding of the embedding matrix: they stand for no text.
  if (const auto token = static_cast<size_t>(sequence.tokens.back()); token + 1 < offsets_.size())
    sequence.text.append(data_, offsets_[token], offsets_[token + 1] - offsets_[token]);
  if (sequence.outputs() < sequence.request.sampling.min_tokens) return -1;
  for (size_t i = 0; i < stops.size(); ++i) {
    // A match that ended earlier was seen then (or forbidden by min_tokens): start where one can end in the new bytes.
    const size_t from = before + 1 > stops[i].size() ? before + 1 - stops[i].size() : 0;
    if (sequence.text.find(stops[i], from) != std::string::npos) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace gyre
