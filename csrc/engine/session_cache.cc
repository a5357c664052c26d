#include "engine/session_cache.h"

#include <algorithm>
#include <utility>

namespace gyre {

void SessionCache::store(Sequence& sequence) {
  const uint64_t session = sequence.request.session;
  release(session);
  pages_.truncate(sequence.pages, session == 0 ? 0 : pages_for(sequence.computed));
  if (!sequence.pages.empty()) {
    const auto begin = sequence.tokens.begin();
    Entry entry{{begin, begin + sequence.computed}, std::move(sequence.pages), ++clock_};
    held_pages_ += static_cast<int64_t>(entry.pages.size());
    entries_.emplace(session, std::move(entry));
  }
  sequence.pages.clear();
  sequence.computed = 0;
}

void SessionCache::restore(Sequence& sequence) {
  sequence.cached = 0;
  const auto found = entries_.find(sequence.request.session);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  const auto end =
      std::mismatch(entry.tokens.begin(), entry.tokens.end(), sequence.tokens.begin(), sequence.tokens.end()).first;
  sequence.computed = std::min<int64_t>(end - entry.tokens.begin(), sequence.length() - 1);
  sequence.cached = std::min(sequence.computed, sequence.prompt_length());
  held_pages_ -= static_cast<int64_t>(entry.pages.size());
  sequence.pages = std::move(entry.pages);
  pages_.truncate(sequence.pages, pages_for(sequence.computed));
  entries_.erase(found);
}

void SessionCache::release(uint64_t session) {
  if (const auto found = entries_.find(session); found != entries_.end()) drop(found);
}

bool SessionCache::evict() {
  if (entries_.empty()) return false;
  drop(std::min_element(entries_.begin(), entries_.end(),
                        [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
  return true;
}

void SessionCache::clear() {
  while (!entries_.empty()) drop(entries_.begin());
}

void SessionCache::drop(std::unordered_map<uint64_t, Entry>::iterator entry) {
  held_pages_ -= static_cast<int64_t>(entry->second.pages.size());
  pages_.release(entry->second.pages);
  entries_.erase(entry);
}

}  // namespace gyre
