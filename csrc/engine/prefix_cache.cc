#include "engine/prefix_cache.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace gyre {
namespace {

// Leading tokens that two lists have in common.
int64_t common(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

}  // namespace

size_t PrefixCache::Hash::operator()(const Key& key) const {
  uint64_t h = static_cast<uint64_t>(key.parent) ^ key.space << 32;
  for (const int32_t token : key.tokens) {
    h = (h ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15;
    h ^= h >> 32;
  }
  return h;
}

size_t PrefixCache::Hash::operator()(int32_t page) const {
  const Node& node = (*nodes)[page];
  return (*this)(Key{node.parent, node.space, node.tokens});
}

bool PrefixCache::Equal::operator()(const Key& key, int32_t page) const {
  const Node& node = (*nodes)[page];
  return key.parent == node.parent && key.space == node.space && std::ranges::equal(key.tokens, node.tokens);
}

bool PrefixCache::Equal::operator()(int32_t a, int32_t b) const {
  const Node& node = (*nodes)[a];
  return (*this)(Key{node.parent, node.space, node.tokens}, b);
}

PrefixCache::PrefixCache(int64_t num_pages, bool keep)
    : keep_(keep), nodes_(num_pages + 1), index_(0, Hash{&nodes_}, Equal{&nodes_}) {
  free_.reserve(num_pages);
  clear();
}

void PrefixCache::clear() {
  index_.clear();
  evictable_.clear();
  free_.clear();
  std::ranges::fill(nodes_, Node{});
  for (int32_t page = root(); page-- > 0;) free_.push_back(page);
  cached_ = 0;
}

PrefixCache::Match PrefixCache::find(std::span<const int32_t> tokens, uint64_t space) const {
  Match match;
  if (!keep_) return match;
  int32_t at = root();
  for (; static_cast<int64_t>(tokens.size()) >= kPageTokens; tokens = tokens.subspan(kPageTokens)) {
    const auto found = index_.find(Key{at, space, tokens.first(kPageTokens)});
    if (found == index_.end()) break;
    if (nodes_[*found].filled < kPageTokens) {
      match.pending = true;
      return match;
    }
    match.pages.push_back(at = *found);
  }
  const int64_t rest = static_cast<int64_t>(tokens.size());
  tokens = tokens.first(std::min(rest, kPageTokens - 1));
  for (int32_t page = nodes_[at].child; page != kNone; page = nodes_[page].next) {
    const Node& node = nodes_[page];
    if (node.space != space) continue;
    const int64_t known = common(tokens, std::span(node.tokens).first(node.known));
    const int64_t computed = std::min<int64_t>(known, node.filled);
    if (computed > match.partial_tokens) match.partial = page, match.partial_tokens = computed;
    match.pending |= known == rest && computed < rest;
  }
  match.pending &= match.partial_tokens < rest;
  return match;
}

int64_t PrefixCache::idle(std::span<const int32_t> pages) const {
  return std::ranges::count_if(pages, [&](int32_t page) { return nodes_[page].users == 0; });
}

bool PrefixCache::extendable(int32_t page, int64_t positions) const {
  return nodes_[page].users == 0 && nodes_[page].filled == positions;
}

void PrefixCache::use(int32_t page) {
  Node& node = nodes_[page];
  if (evictable(node)) evictable_.erase({node.used, page});
  if (node.users++ > 0) return;
  --cached_;
  peak_ = std::max(peak_, total() - available());
}

int32_t PrefixCache::take(int32_t parent, uint64_t space) {
  if (free_.empty()) {
    if (evictable_.empty()) return kNone;
    --cached_;
    discard(evictable_.begin()->second);
  }
  const int32_t page = free_.back();
  free_.pop_back();
  Node& node = nodes_[page];
  node.parent = parent == kNone ? root() : parent;
  node.users = 1;
  node.space = space;
  Node& above = nodes_[node.parent];
  node.next = above.child;
  if (node.next != kNone) nodes_[node.next].previous = page;
  above.child = page;
  peak_ = std::max(peak_, total() - available());
  return page;
}

// Lets find() see a page whose 16 tokens are known; false when it sees an equal one already.
bool PrefixCache::index(int32_t page, int32_t* equal) {
  const auto [found, inserted] = index_.insert(page);
  nodes_[page].indexed = inserted;
  *equal = *found;
  return inserted;
}

void PrefixCache::announce(int32_t page, std::span<const int32_t> tokens) {
  Node& node = nodes_[page];
  if (!keep_ || node.indexed) return;
  std::ranges::copy(tokens, node.tokens.begin());
  node.known = static_cast<int32_t>(tokens.size());
  int32_t equal;
  if (node.known == kPageTokens) index(page, &equal);
}

void PrefixCache::withdraw(int32_t page) {
  Node& node = nodes_[page];
  if (node.filled == kPageTokens) return;
  if (node.indexed) index_.erase(page);
  node.indexed = false;
  node.known = node.filled;
}

int32_t PrefixCache::commit(int32_t page, std::span<const int32_t> tokens) {
  Node& node = nodes_[page];
  node.filled = node.known = static_cast<int32_t>(tokens.size());
  if (!keep_) return page;
  std::ranges::copy(tokens, node.tokens.begin());
  int32_t equal;
  if (node.filled < kPageTokens || node.indexed || index(page, &equal)) return page;
  if (node.child != kNone) return page;  // its children keep it
  use(equal);
  node.users = 0;
  discard(page);
  return equal;
}

void PrefixCache::move(int32_t page, uint64_t space) {
  withdraw(page);
  nodes_[page].space = space;
}

void PrefixCache::release(std::vector<int32_t>& pages, size_t kept) {
  // Backwards, so that a page counts as used later than what follows it.
  for (; pages.size() > kept; pages.pop_back()) drop(pages.back());
}

void PrefixCache::drop(int32_t page) {
  Node& node = nodes_[page];
  if (node.users <= 0) throw std::logic_error("KV pool: page " + std::to_string(page) + " was released twice");
  if (--node.users > 0) return;
  withdraw(page);
  const bool found = node.child != kNone || (node.space & kPrivate) == 0;
  if (!keep_ || node.filled == 0 || !found) return discard(page);
  node.used = ++clock_;
  ++cached_;
  if (evictable(node)) evictable_.insert({node.used, page});
}

// Frees a page that has neither users nor children.
void PrefixCache::discard(int32_t page) {
  Node& node = nodes_[page];
  evictable_.erase({node.used, page});
  if (node.indexed) index_.erase(page);
  Node& above = nodes_[node.parent];
  (node.previous == kNone ? above.child : nodes_[node.previous].next) = node.next;
  if (node.next != kNone) nodes_[node.next].previous = node.previous;
  if (node.parent != root() && evictable(above)) evictable_.insert({above.used, node.parent});
  node = {};
  free_.push_back(page);
}

}  // namespace gyre
