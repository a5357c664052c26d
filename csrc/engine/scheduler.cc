#include "engine/scheduler.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace gyre {

namespace {

auto has_id(uint64_t id) {
  return [id](const std::unique_ptr<Sequence>& s) { return s->request.id == id; };
}

template <typename Queue>
void insert_by_arrival(Queue& queue, std::unique_ptr<Sequence> sequence) {
  const auto later = [](const auto& a, const auto& b) { return a->arrival < b->arrival; };
  queue.insert(std::upper_bound(queue.begin(), queue.end(), sequence, later), std::move(sequence));
}

// The tokens of page `index`, of the first `positions`.
std::span<const int32_t> page_tokens(const Sequence& s, int64_t index, int64_t positions) {
  const int64_t begin = index * kPageTokens;
  return std::span(s.tokens).subspan(begin, std::min(kPageTokens, positions - begin));
}

}  // namespace

Scheduler::Scheduler(int64_t num_pages, int64_t max_sequences, int64_t max_rows, bool prefix_cache)
    : max_sequences_(max_sequences), max_rows_(max_rows), cache_(num_pages, prefix_cache) {}

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  sequence->arrival = ++arrivals_;
  ids_.insert(sequence->request.id);
  waiting_.push_back(std::move(sequence));
}

void Scheduler::schedule(const CopyPage& copy) {
  budget_ = max_rows_;
  for (auto& s : running_) {
    for (int64_t page = s->computed / kPageTokens; s->scheduled > 0 && page < pages_for(s->computed + s->scheduled);
         ++page)
      cache_.withdraw(s->pages[page]);
    s->scheduled = 0;
    drop_draft(*s, s->length());
  }
  for (const bool decoding : {true, false}) {
    // grow() may take sequences away from the end of running_, the current one included.
    for (size_t i = 0; i < running_.size() && budget_ > 0; ++i) {
      Sequence& s = *running_[i];
      const int64_t rows = std::min(s.pending(), budget_);
      if (s.decoding() == decoding && grow(s, s.computed + rows)) plan(s, rows);
    }
  }
  for (auto next = waiting_.begin(); next != waiting_.end() && budget_ > 0;) {
    const Admission admission = admit(*next, copy);
    if (admission == Admission::kNoRoom) break;
    next = admission == Admission::kAdmitted ? waiting_.erase(next) : next + 1;
  }
}

// Gives the sequence rows of the coming pass.
void Scheduler::plan(Sequence& s, int64_t rows) {
  s.scheduled = rows;
  budget_ -= rows;
  const int64_t end = s.computed + rows;
  for (int64_t page = s.computed / kPageTokens; page < pages_for(end); ++page)
    cache_.announce(s.pages[page], page_tokens(s, page, end));
}

void Scheduler::extend(Sequence& s, std::span<const int32_t> draft) {
  const auto rows = std::min(static_cast<int64_t>(draft.size()), budget_);
  while (static_cast<int64_t>(s.pages.size()) < pages_for(s.length() + rows) && cache_.free() > 0)
    s.pages.push_back(cache_.take(s.pages.back(), s.space));
  const auto room = std::min(rows, static_cast<int64_t>(s.pages.size()) * kPageTokens - s.length());
  s.draft.assign(draft.begin(), draft.begin() + room);
  s.scheduled += room;
  budget_ -= room;
}

// Forgets a draft and the pages after so many positions that were taken for it.
void Scheduler::drop_draft(Sequence& s, int64_t positions) {
  if (s.draft.empty()) return;
  s.draft.clear();
  cache_.release(s.pages, pages_for(positions));
}

void Scheduler::commit() {
  for (auto& s : running_) {
    // Of a draft, the rows of what has become the sequence's: its last token is not computed yet.
    const int64_t rows = s->draft.empty() ? s->scheduled : std::min(s->scheduled, s->pending() - 1);
    const int64_t end = s->computed + rows;
    drop_draft(*s, end);
    for (int64_t page = s->computed / kPageTokens; s->scheduled > 0 && page < pages_for(end); ++page)
      s->pages[page] = cache_.commit(s->pages[page], page_tokens(*s, page, end));
    s->computed = end;
    s->scheduled = 0;
  }
}

// Makes the sequence's pages cover `positions`; false when the sequence itself had to give way.
bool Scheduler::grow(Sequence& s, int64_t positions) {
  while (static_cast<int64_t>(s.pages.size()) < pages_for(positions)) {
    const int32_t page = cache_.take(s.pages.empty() ? PrefixCache::kNone : s.pages.back(), s.space);
    if (page != PrefixCache::kNone) {
      s.pages.push_back(page);
      continue;
    }
    const bool itself = running_.back().get() == &s;
    restart_youngest();
    if (itself) return false;
  }
  return true;
}

// Moves a waiting sequence to the running ones when there is a place and pages for all of its present tokens, plus one
// for each sequence already running: otherwise it would soon be sent back. Its last token is always computed, for its
// logits.
Scheduler::Admission Scheduler::admit(std::unique_ptr<Sequence>& waiting, const CopyPage& copy) {
  const int64_t others = static_cast<int64_t>(running_.size() + kept_.size());
  if (others >= max_sequences_) return Admission::kNoRoom;
  Sequence& s = *waiting;
  const PrefixCache::Match match = cache_.find(std::span(s.tokens).first(s.length() - 1), s.space);
  if (match.pending) return Admission::kPending;
  const int64_t shared = static_cast<int64_t>(match.pages.size());
  if (cache_.available() - cache_.idle(match.pages) < pages_for(s.length()) - shared + others)
    return Admission::kNoRoom;
  share(s, match, copy);
  if (!s.started) {
    s.started = true;
    s.cached = std::min(s.computed, s.prompt_length());
    prompt_tokens_ += s.prompt_length();
    cached_tokens_ += s.cached;
  }
  insert_by_arrival(running_, std::move(waiting));
  grow(s, s.length());
  plan(s, std::min(s.pending(), budget_));
  return Admission::kAdmitted;
}

// Gives a sequence without pages those that hold the beginning of its tokens.
void Scheduler::share(Sequence& s, const PrefixCache::Match& match, const CopyPage& copy) {
  for (const int32_t page : match.pages) cache_.use(page);
  s.pages = match.pages;
  s.computed = static_cast<int64_t>(match.pages.size()) * kPageTokens;
  if (match.partial == PrefixCache::kNone) return;
  const bool append = cache_.extendable(match.partial, match.partial_tokens);
  int32_t page = match.partial;
  cache_.use(page);
  if (!append) {  // others have gone on from there in another way
    page = cache_.take(s.pages.empty() ? PrefixCache::kNone : s.pages.back(), s.space);
    if (page != PrefixCache::kNone) copy(match.partial, page);
    std::vector<int32_t> source = {match.partial};
    cache_.release(source);
    if (page == PrefixCache::kNone) return;
  }
  s.computed += match.partial_tokens;
  s.pages.push_back(page);
  cache_.commit(page, page_tokens(s, s.computed / kPageTokens, s.computed));
}

void Scheduler::restart(size_t running) {
  require<std::logic_error>(!running_[running]->request.kept, "request ", running_[running]->request.id,
                            ": keys and values of older weights cannot be computed again");
  std::unique_ptr<Sequence> s = std::move(running_[running]);
  running_.erase(running_.begin() + static_cast<ptrdiff_t>(running));
  cache_.release(s->pages);
  budget_ += s->scheduled;
  s->computed = s->scheduled = 0;
  s->draft.clear();
  insert_by_arrival(waiting_, std::move(s));
}

void Scheduler::restart_youngest() {
  restart(running_.size() - 1);
  ++preemptions_;
}

std::vector<Sequence*> Scheduler::by_arrival() const {
  std::vector<Sequence*> all;
  for (const auto& s : running_) all.push_back(s.get());
  for (const auto& s : waiting_) all.push_back(s.get());
  std::ranges::sort(all, {}, &Sequence::arrival);
  return all;
}

std::unique_ptr<Sequence> Scheduler::remove(uint64_t id, gyre_finish reason) {
  std::unique_ptr<Sequence> sequence;
  if (ids_.erase(id) == 0) return sequence;
  if (const auto r = std::ranges::find_if(running_, has_id(id)); r != running_.end()) {
    sequence = std::move(*r);
    running_.erase(r);
    if (!sequence->keeps(reason)) cache_.release(sequence->pages);
  } else if (const auto w = std::ranges::find_if(waiting_, has_id(id)); w != waiting_.end()) {
    sequence = std::move(*w);
    waiting_.erase(w);
  }
  return sequence;
}

void Scheduler::keep(std::unique_ptr<Sequence> sequence) {
  sequence->scheduled = 0;
  drop_draft(*sequence, sequence->length());
  kept_[sequence->request.id] = std::move(sequence);
}

void Scheduler::resume(std::unique_ptr<Sequence> sequence, uint64_t weights) {
  const auto found = kept_.find(sequence->request.id);
  require(found != kept_.end() && found->second->tokens == sequence->tokens, "request ", sequence->request.id,
          ": no keys and values of these tokens are kept under its id");
  const std::unique_ptr<Sequence> before = std::move(found->second);
  kept_.erase(found);
  sequence->pages = std::move(before->pages);
  sequence->computed = before->computed;
  sequence->weights = weights;
  sequence->space = before->space;
  if (before->weights != weights) {
    sequence->space = PrefixCache::kPrivate | ++spaces_;
    if (sequence->computed % kPageTokens != 0) cache_.move(sequence->pages.back(), sequence->space);
  }
  sequence->started = true;
  sequence->arrival = ++arrivals_;
  ids_.insert(sequence->request.id);
  running_.push_back(std::move(sequence));
}

void Scheduler::drop(uint64_t id) {
  const auto found = kept_.find(id);
  if (found == kept_.end()) return;
  cache_.release(found->second->pages);
  kept_.erase(found);
}

void Scheduler::drop_all() {
  while (!kept_.empty()) drop(kept_.begin()->first);
}

bool Scheduler::keeps() const {
  return !kept_.empty() || std::ranges::any_of(running_, [](const auto& s) { return s->request.kept; });
}

void Scheduler::forget() {
  while (!running_.empty()) restart(running_.size() - 1);
  cache_.clear();
}

void Scheduler::renew(const std::function<uint64_t(const Sequence&)>& version_of) {
  for (size_t i = running_.size(); i-- > 0;) {
    if (running_[i]->weights != version_of(*running_[i])) restart(i);
  }
  for (auto& s : waiting_) s->weights = s->space = version_of(*s);
}

}  // namespace gyre
