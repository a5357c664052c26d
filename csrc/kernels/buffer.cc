#include "kernels/buffer.h"

#include <sys/mman.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <utility>

namespace gyre {
namespace {

constexpr size_t kLine = 64, kPage = size_t{64} << 10, kHugePage = size_t{2} << 20;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// New memory from the system that begins on a huge page, null where there is none; `bytes` in whole pages.
char* map(size_t bytes) {
  void* all = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  auto* const first = static_cast<char*>(all);
  const size_t before = round_up(reinterpret_cast<uintptr_t>(all), kHugePage) - reinterpret_cast<uintptr_t>(all);
  if (before > 0) munmap(first, before);
  munmap(first + before + bytes, kHugePage - before);
#ifdef __linux__
  madvise(first + before, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // a refusal costs speed only
#endif
  return first + before;
}

// New memory piece by piece, so that those that are smaller than a huge page share one: the matrices of a small model
// are a megabyte each. Addresses are reserved for many; memory comes with the first touch.
class Pieces {
 public:
  // Null where there is none.
  char* take(size_t bytes) {
    if (bytes > left_) {
      if (left_ > 0) munmap(next_, left_);
      left_ = std::max(kAddresses, bytes);
      next_ = map(left_);
      if (next_ == nullptr) next_ = map(left_ = bytes);  // addresses may be scarce (ulimit -v)
      if (next_ == nullptr) {
        left_ = 0;
        return nullptr;
      }
    }
    left_ -= bytes;
    return std::exchange(next_, next_ + bytes);
  }

 private:
  static constexpr size_t kAddresses = size_t{1} << 30;
  char* next_ = nullptr;
  size_t left_ = 0;
};

// Memory of freed large buffers, for the next ones: sampling, passes and updates follow each other, and new pages for
// each of them take several percent of the time. A buffer takes a part of a range, which is joined to its neighbours
// again when it is freed, so that phases may divide the memory in different ways. Idle memory never raises the peak:
// what is in use and what is idle together stay below the most that has been in use at once since release(). The mutex
// guards all fields.
class IdleMemory {
 public:
  // `bytes` in whole pages, from the smallest range that has room; a piece begins on any page.
  char* take(size_t bytes, bool piece) {
    const std::lock_guard lock(mutex_);
    auto best = ranges_.end();
    for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
      const bool fits = start_in(*range, piece) + bytes <= range->first + range->second;
      if (fits && (best == ranges_.end() || range->second < best->second)) best = range;
    }
    if (best == ranges_.end()) {
      if (in_use_ + idle_ + bytes > peak_) drop(in_use_ + idle_ + bytes - peak_);
      char* const memory = piece ? pieces_.take(bytes) : map(bytes);
      if (memory == nullptr) throw std::bad_alloc();
      use(bytes);
      return memory;
    }
    char *const start = start_in(*best, piece), *const end = best->first + best->second;
    best->second = static_cast<size_t>(start - best->first);
    if (start == best->first) ranges_.erase(best);
    if (start + bytes < end) ranges_.emplace(start + bytes, end - start - bytes);
    idle_ -= bytes;
    use(bytes);
    return start;
  }

  void give(char* memory, size_t bytes) {
    const std::lock_guard lock(mutex_);
    in_use_ -= bytes, idle_ += bytes;
    auto range = ranges_.emplace(memory, bytes).first;
    if (const auto next = std::next(range); next != ranges_.end() && memory + bytes == next->first) {
      range->second += next->second;
      ranges_.erase(next);
    }
    if (range == ranges_.begin()) return;
    if (const auto before = std::prev(range); before->first + before->second == memory) {
      before->second += range->second;
      ranges_.erase(range);
    }
  }

  void release() {
    const std::lock_guard lock(mutex_);
    drop(idle_);
    peak_ = in_use_;
  }

 private:
  using Ranges = std::map<char*, size_t>;  // by address, none beside the next

  static char* start_in(const Ranges::value_type& range, bool piece) {
    if (piece) return range.first;
    const auto at = reinterpret_cast<uintptr_t>(range.first);
    return range.first + (round_up(at, kHugePage) - at);
  }

  // At least so many bytes, or all there are, from the ends of the largest ranges.
  void drop(size_t bytes) {
    for (size_t done = 0, n; done < bytes && !ranges_.empty(); done += n) {
      const auto largest = std::ranges::max_element(ranges_, {}, &Ranges::value_type::second);
      n = std::min(largest->second, round_up(bytes - done, kHugePage));
      munmap(largest->first + largest->second - n, n);
      idle_ -= n;
      largest->second -= n;
      if (largest->second == 0) ranges_.erase(largest);
    }
  }

  void use(size_t bytes) {
    in_use_ += bytes;
    peak_ = std::max(peak_, in_use_);
  }

  std::mutex mutex_;
  Pieces pieces_;
  Ranges ranges_;
  size_t in_use_ = 0, idle_ = 0, peak_ = 0;
};

// Never destroyed: threads free their buffers when the process ends.
IdleMemory& idle_memory() {
  static IdleMemory& instance = *new IdleMemory;
  return instance;
}

}  // namespace

void Buffer::Free::operator()(float* p) const {
  block > 0 ? idle_memory().give(reinterpret_cast<char*>(p), block) : std::free(p);
}

void release_idle_memory() {
  idle_memory().release();
#ifdef __GLIBC__
  malloc_trim(0);  // it keeps what libtorch's tensors leave, which no buffer can use
#endif
}

void discard_pages(float* data, int64_t count) {
#ifdef __linux__
  constexpr uintptr_t kPage = 4096;
  const auto begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) / kPage * kPage;
  const auto end = reinterpret_cast<uintptr_t>(data + count) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // a refusal costs memory only
#endif
}

void Buffer::reserve(int64_t count, bool stays) {
  if (count <= size_) return;
  data_.reset();
  size_ = 0;
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  const bool piece = stays && bytes < 8 * kHugePage;  // larger ones fill huge pages of their own
  if (bytes < (piece ? kPage : kHugePage)) {
    void* memory = nullptr;
    if (posix_memalign(&memory, kLine, bytes) != 0) throw std::bad_alloc();
    data_ = {static_cast<float*>(memory), Free{}};
  } else {
    const size_t block = round_up(bytes, kPage);
    data_ = {reinterpret_cast<float*>(idle_memory().take(block, piece)), Free{block}};
  }
  size_ = count;
}

}  // namespace gyre
