#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace gyre {

namespace {
auto has_id(uint64_t id) {
  return [id](const std::unique_ptr<Sequence>& s) { return s->request.id == id; };
}
}  // namespace

Scheduler::Scheduler(int64_t num_pages, int64_t max_sequences, int64_t max_rows)
    : max_sequences_(max_sequences), max_rows_(max_rows), pages_(num_pages) {}

void Scheduler::schedule() {
  budget_ = max_rows_;
  for (auto& sequence : running_) sequence->scheduled = 0;
  for (const bool decoding : {true, false}) {
    // grow() may take sequences away from the end of running_, the current one included.
    for (size_t i = 0; i < running_.size() && budget_ > 0; ++i) {
      Sequence& sequence = *running_[i];
      if (sequence.decoding() != decoding) continue;
      const int64_t rows = std::min(sequence.pending(), budget_);
      if (!grow(sequence, sequence.computed + rows)) continue;
      sequence.scheduled = rows;
      budget_ -= rows;
    }
  }
  while (budget_ > 0 && admit()) {
    Sequence& sequence = *running_.back();
    sequence.scheduled = std::min(sequence.pending(), budget_);
    budget_ -= sequence.scheduled;
  }
}

// Makes the sequence's pages cover `positions`; false when the sequence itself had to give way.
bool Scheduler::grow(Sequence& sequence, int64_t positions) {
  while (static_cast<int64_t>(sequence.pages.size()) < pages_for(positions)) {
    if (pages_.free() > 0) {
      sequence.pages.push_back(pages_.take());
    } else {
      const bool itself = running_.back().get() == &sequence;
      restart_youngest();
      if (itself) return false;
    }
  }
  return true;
}

// Moves the oldest waiting sequence to the running ones when there is a place and pages for all of its present tokens,
// plus one for each sequence already running: otherwise it would soon be sent back.
bool Scheduler::admit() {
  if (waiting_.empty() || static_cast<int64_t>(running_.size()) >= max_sequences_) return false;
  Sequence& sequence = *waiting_.front();
  const int64_t reserve = static_cast<int64_t>(running_.size());
  if (pages_.free() < pages_for(sequence.length()) + reserve) return false;
  running_.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
  return grow(sequence, sequence.length());
}

void Scheduler::restart_youngest() {
  Sequence& youngest = *running_.back();
  pages_.release(youngest.pages);
  budget_ += youngest.scheduled;
  youngest.computed = youngest.scheduled = 0;
  waiting_.push_front(std::move(running_.back()));
  running_.pop_back();
  ++preemptions_;
}

std::unique_ptr<Sequence> Scheduler::remove(uint64_t id) {
  std::unique_ptr<Sequence> sequence;
  if (const auto r = std::ranges::find_if(running_, has_id(id)); r != running_.end()) {
    sequence = std::move(*r);
    running_.erase(r);
    pages_.release(sequence->pages);
  } else if (const auto w = std::ranges::find_if(waiting_, has_id(id)); w != waiting_.end()) {
    sequence = std::move(*w);
    waiting_.erase(w);
  }
  return sequence;
}

void Scheduler::forget() {
  const int64_t before = preemptions_;
  while (!running_.empty()) restart_youngest();
  preemptions_ = before;  // not for want of pages
}

bool Scheduler::contains(uint64_t id) const {
  return std::ranges::any_of(running_, has_id(id)) || std::ranges::any_of(waiting_, has_id(id));
}

}  // namespace gyre
