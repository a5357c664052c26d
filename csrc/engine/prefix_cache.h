// The pages of the KV pool as a tree of token prefixes: a page's parent holds the 16 positions before it.
//
//   root ─┬─ "You walk in a maze" ─┬─ "of 5 by 5. Where" ─┬─ "to? Go le"       used by one sequence, which appends
//         │                        │                      └─ "to? Go up. You"  used by nobody: cached
//         └─ …                     └─ …
//
// Every page of a running sequence is a node, and what a finished or preempted one leaves behind stays until its memory
// is needed: then pages without users and children are taken back, the one used longest ago first. Whole pages are
// shared by any number of sequences; a partly filled one has a single writer, and whoever finds the beginning of its
// own tokens there copies the page first. A row's keys and values are the same bits whoever computes them, so sharing
// changes no result.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kernels/attention.h"

namespace gyre {

class PrefixCache {
 public:
  static constexpr int32_t kNone = -1;
  static constexpr uint64_t kPrivate = uint64_t{1} << 63;  // in spaces of one sequence, whose pages nobody else finds

  // What the tree holds of a list of tokens.
  struct Match {
    std::vector<int32_t> pages{};  // whole ones, from the first position on
    int32_t partial = kNone;       // the page that goes on for another partial_tokens
    int64_t partial_tokens = 0;
    bool pending = false;  // the coming pass computes the next whole page, or all that is missing

    int64_t positions() const { return static_cast<int64_t>(pages.size()) * kPageTokens + partial_tokens; }
  };

  // Without `keep` nothing is shared and a released page is free at once.
  PrefixCache(int64_t num_pages, bool keep);
  PrefixCache(const PrefixCache&) = delete;  // the index refers to the nodes
  PrefixCache& operator=(const PrefixCache&) = delete;

  int64_t total() const { return root(); }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  int64_t cached() const { return cached_; }              // without users
  int64_t available() const { return free() + cached_; }  // that take() can give
  int64_t peak() const { return peak_; }                  // most pages with users so far

  // The longest prefix of the tokens that is computed. Nothing is shared between spaces, which have different weights.
  Match find(std::span<const int32_t> tokens, uint64_t space = 0) const;
  // Pages of the list that have no users.
  int64_t idle(std::span<const int32_t> pages) const;

  // Adds a user.
  void use(int32_t page);
  // True when the page has no user and holds exactly this many positions: its next user may append to it.
  bool extendable(int32_t page, int64_t positions) const;
  // A page with one user and nothing computed, to follow `parent` (kNone: to be a first page) in its space. kNone when
  // every page has users.
  int32_t take(int32_t parent, uint64_t space = 0);
  // Declares that the coming pass computes the page's leading positions, which then hold these tokens: find() reports
  // them as pending until commit() or withdraw().
  void announce(int32_t page, std::span<const int32_t> tokens);
  // Takes an announcement back, because the pass failed.
  void withdraw(int32_t page);
  // The page's leading positions are computed and hold these tokens. Returns the page to use from now on: an equal one
  // may be in the tree already.
  int32_t commit(int32_t page, std::span<const int32_t> tokens);
  // Removes a user from each page of the table but the first `kept`, and the pages from the table.
  void release(std::vector<int32_t>& pages, size_t kept = 0);
  // Moves a page with one user, which goes on to fill it, to another space.
  void move(int32_t page, uint64_t space);
  // Forgets everything. No page may have users.
  void clear();

 private:
  struct Node {
    int32_t parent = kNone, child = kNone, next = kNone, previous = kNone;  // child: the first one
    int32_t users = 0;
    int32_t filled = 0;    // leading positions that are computed
    int32_t known = 0;     // the same and those announced
    bool indexed = false;  // find() sees it as a whole page, all 16 tokens being known
    uint64_t used = 0;     // when it lost its last user
    uint64_t space = 0;
    std::array<int32_t, kPageTokens> tokens{};
  };
  struct Key {
    int32_t parent;
    uint64_t space;
    std::span<const int32_t> tokens;  // 16
  };
  struct Hash {
    using is_transparent = void;
    const std::vector<Node>* nodes;
    size_t operator()(const Key& key) const;
    size_t operator()(int32_t page) const;
  };
  struct Equal {
    using is_transparent = void;
    const std::vector<Node>* nodes;
    bool operator()(const Key& key, int32_t page) const;
    bool operator()(int32_t page, const Key& key) const { return (*this)(key, page); }
    bool operator()(int32_t a, int32_t b) const;
  };

  int32_t root() const { return static_cast<int32_t>(nodes_.size()) - 1; }
  bool evictable(const Node& node) const { return node.users == 0 && node.child == kNone; }
  bool index(int32_t page, int32_t* equal);
  void drop(int32_t page);
  void discard(int32_t page);

  bool keep_;
  std::vector<Node> nodes_;    // by page; the last one is the root
  std::vector<int32_t> free_;  // a stack: pages touched before come first, then low ones
  std::unordered_set<int32_t, Hash, Equal> index_;
  std::set<std::pair<uint64_t, int32_t>> evictable_;  // (used, page)
  int64_t cached_ = 0, peak_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace gyre
