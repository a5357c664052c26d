// Keys and values of finished requests, kept for the next request of the same session: the turns of an episode share
// one history.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/page_allocator.h"
#include "engine/sequence.h"

namespace gyre {

class SessionCache {
 public:
  explicit SessionCache(PageAllocator& pages) : pages_(pages) {}

  int64_t sessions() const { return static_cast<int64_t>(entries_.size()); }
  int64_t held_pages() const { return held_pages_; }

  // Takes the sequence's pages over, in place of what its session held. Without a session they are released.
  void store(Sequence& sequence);
  // Gives the sequence (which has no pages) those of its session that hold the longest common prefix of token ids,
  // except that the last token is always computed again: its logits are needed. The session then holds nothing.
  void restore(Sequence& sequence);
  void release(uint64_t session);
  // Frees the session that was used the longest ago; false when there is none.
  bool evict();
  void clear();

 private:
  struct Entry {
    std::vector<int32_t> tokens, pages;
    uint64_t used;
  };
  void drop(std::unordered_map<uint64_t, Entry>::iterator entry);

  PageAllocator& pages_;
  std::unordered_map<uint64_t, Entry> entries_;
  int64_t held_pages_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace gyre
