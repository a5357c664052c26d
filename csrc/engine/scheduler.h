// Which rows of which sequences the next forward pass computes, and in which pages their keys and values go.
//
// Sequences are served in order of arrival. Each pass takes first one row of every sequence that is decoding, then as
// much of the running prompts, then of the waiting ones, as the row budget allows. A waiting sequence starts behind the
// longest prefix that the cache holds; when a page that it needs next is being computed by another in this very pass,
// it stands aside until that is done, and those behind it may go first. When pages run out, what only the cache holds
// is taken back; then the running sequence that arrived last goes back to the queue, and what it had computed stays
// cached as long as there is room. The oldest running sequence can therefore always take what it needs, and everything
// finishes.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <unordered_set>
#include <vector>

#include "engine/prefix_cache.h"
#include "engine/request.h"

namespace gyre {

class Scheduler {
 public:
  // Copies a page's keys and values to another page.
  using CopyPage = std::function<void(int32_t from, int32_t to)>;

  // max_sequences: sequences that run together; max_rows: rows of one pass.
  Scheduler(int64_t num_pages, int64_t max_sequences, int64_t max_rows, bool prefix_cache);

  void add(std::unique_ptr<Sequence> sequence);
  // Decides `scheduled` of every running sequence and sees to it that its pages cover those rows. May be called again
  // when the pass has failed.
  void schedule(const CopyPage& copy);
  // Gives a sequence that the coming pass samples rows for proposed next tokens: for as many as rows and unused pages
  // are left for. Nobody gives way to them, and the prefix cache does not see them.
  void extend(Sequence& sequence, std::span<const int32_t> draft);
  // The pass is done: the scheduled rows are computed, and what was drawn from them is appended. Of proposed tokens
  // those that are none of the sequence's are forgotten.
  void commit();
  std::span<const std::unique_ptr<Sequence>> running() const { return running_; }
  // Running and waiting ones.
  std::vector<Sequence*> by_arrival() const;
  // Takes out the sequence with this request id; null when there is none. Its pages stay in the cache, or remain its
  // own where it is to be kept.
  std::unique_ptr<Sequence> remove(uint64_t id, gyre_finish reason = GYRE_FINISH_STOP);
  // Keeps a removed sequence's pages under its id.
  void keep(std::unique_ptr<Sequence> sequence);
  // Adds a sequence that goes on from what is kept under its id, under weights of a version.
  void resume(std::unique_ptr<Sequence> sequence, uint64_t weights);
  // Releases what is kept under an id, or everything.
  void drop(uint64_t id);
  void drop_all();
  // Whether pages of older weights may be in use.
  bool keeps() const;
  // Forgets every key and value; running sequences go back to the queue.
  void forget();
  // Sends the running sequences back to the queue whose weights have another version now, and notes all versions.
  void renew(const std::function<uint64_t(const Sequence&)>& version_of);

  bool contains(uint64_t id) const { return ids_.contains(id); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t unfinished() const { return waiting() + static_cast<int64_t>(running_.size()); }
  int64_t preemptions() const { return preemptions_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }  // of sequences that have run
  int64_t cached_tokens() const { return cached_tokens_; }  // those of them that the cache held
  const PrefixCache& pages() const { return cache_; }

 private:
  enum class Admission { kAdmitted, kPending, kNoRoom };

  void plan(Sequence& sequence, int64_t rows);
  void drop_draft(Sequence& sequence, int64_t positions);
  bool grow(Sequence& sequence, int64_t positions);
  Admission admit(std::unique_ptr<Sequence>& waiting, const CopyPage& copy);
  void share(Sequence& sequence, const PrefixCache::Match& match, const CopyPage& copy);
  void restart(size_t running);
  void restart_youngest();

  int64_t max_sequences_, max_rows_;
  PrefixCache cache_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in order of arrival, as is
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::unordered_set<uint64_t> ids_;                    // of both
  std::map<uint64_t, std::unique_ptr<Sequence>> kept_;  // by id; each takes the place of a running one
  uint64_t spaces_ = 0;                                 // private ones so far
  uint64_t arrivals_ = 0;
  int64_t budget_ = 0;  // rows still free in the pass being scheduled
  int64_t preemptions_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0;
};

}  // namespace gyre
