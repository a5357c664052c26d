#include "kernels/buffer.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <utility>

namespace gyre {
namespace {

constexpr size_t kLine = 64, kHugePage = size_t{2} << 20;

float* allocate(size_t alignment, size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes) != 0) throw std::bad_alloc();
  return static_cast<float*>(memory);
}

// Freed large blocks, for the next buffers that need as much: sampling, passes and updates follow each other, and new
// pages for each of them take several percent of the time. Idle blocks never raise the peak: what is in use and what is
// idle together stay below the most that has been in use at once since release(). The mutex guards all fields.
class IdleBlocks {
 public:
  // A block of at least `bytes`, and its size.
  std::pair<float*, size_t> take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    // Not a much larger one, which another buffer may need.
    if (const auto found = blocks_.lower_bound(bytes); found != blocks_.end() && found->first <= bytes + bytes / 4) {
      const auto [size, memory] = *found;
      blocks_.erase(found);
      idle_ -= size;
      use(size);
      return {memory, size};
    }
    while (!blocks_.empty() && in_use_ + idle_ + bytes > peak_) drop_largest();
    float* memory = allocate(kHugePage, bytes);
#ifdef __linux__
    madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // a refusal costs speed only
#endif
    use(bytes);
    return {memory, bytes};
  }

  void give(float* memory, size_t size) {
    const std::lock_guard lock(mutex_);
    blocks_.emplace(size, memory);
    in_use_ -= size;
    idle_ += size;
  }

  void release() {
    const std::lock_guard lock(mutex_);
    while (!blocks_.empty()) drop_largest();
    peak_ = in_use_;
  }

 private:
  void drop_largest() {
    const auto largest = std::prev(blocks_.end());
    std::free(largest->second);
    idle_ -= largest->first;
    blocks_.erase(largest);
  }

  void use(size_t size) {
    in_use_ += size;
    peak_ = std::max(peak_, in_use_);
  }

  std::mutex mutex_;
  std::multimap<size_t, float*> blocks_;
  size_t in_use_ = 0, idle_ = 0, peak_ = 0;
};

// Never destroyed: threads free their buffers when the process ends.
IdleBlocks& idle_blocks() {
  static IdleBlocks& instance = *new IdleBlocks;
  return instance;
}

}  // namespace

void Buffer::Free::operator()(float* p) const { block > 0 ? idle_blocks().give(p, block) : std::free(p); }

void release_idle_memory() { idle_blocks().release(); }

void discard_pages(float* data, int64_t count) {
#ifdef __linux__
  constexpr uintptr_t kPage = 4096;
  const auto begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) / kPage * kPage;
  const auto end = reinterpret_cast<uintptr_t>(data + count) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // a refusal costs memory only
#endif
}

void Buffer::reserve(int64_t count) {
  if (count <= size_) return;
  data_.reset();
  size_ = 0;
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  if (bytes < kHugePage) {
    data_ = {allocate(kLine, bytes), Free{}};
  } else {
    const auto [memory, block] = idle_blocks().take(bytes);
    data_ = {memory, Free{block}};
  }
  size_ = count;
}

}  // namespace gyre
