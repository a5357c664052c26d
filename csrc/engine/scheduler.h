// Which rows of which sequences the next forward pass computes.
//
// Sequences are served in order of arrival, and whoever runs is older than whoever waits. Each pass takes first one row
// of every sequence that is decoding, then as much of the running prompts, then of the waiting ones, as the row budget
// allows. When pages run out, idle sessions are evicted, the one used longest ago first; then the youngest running
// sequence goes back to the queue and is computed again later. The oldest sequence can therefore always take what it
// needs, and everything finishes.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/page_allocator.h"
#include "engine/sequence.h"

namespace gyre {

class Scheduler {
 public:
  // max_sequences: sequences that run together; max_rows: rows of one pass.
  Scheduler(int64_t num_pages, int64_t max_sequences, int64_t max_rows);

  void add(std::unique_ptr<Sequence> sequence) { waiting_.push_back(std::move(sequence)); }
  // Decides `scheduled` of every running sequence and sees to it that its pages cover those rows.
  void schedule();
  std::span<const std::unique_ptr<Sequence>> running() const { return running_; }
  // Takes out the sequence with this request id; null when there is none.
  std::unique_ptr<Sequence> remove(uint64_t id);
  // Forgets every key and value, sessions included; running sequences go back to the queue in their order.
  void forget();

  bool contains(uint64_t id) const;
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t unfinished() const { return waiting() + static_cast<int64_t>(running_.size()); }
  int64_t preemptions() const { return preemptions_; }
  const PageAllocator& pages() const { return pages_; }

 private:
  bool grow(Sequence& sequence, int64_t positions);
  bool admit();
  void restart_youngest();

  int64_t max_sequences_, max_rows_;
  PageAllocator pages_;
  std::vector<std::unique_ptr<Sequence>> running_;  // oldest first
  std::deque<std::unique_ptr<Sequence>> waiting_;   // oldest first, all younger than the running ones
  int64_t budget_ = 0;                              // rows still free in the pass being scheduled
  int64_t preemptions_ = 0;
};

}  // namespace gyre
