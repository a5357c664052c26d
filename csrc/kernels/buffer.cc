#include "kernels/buffer.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <new>

namespace gyre {
namespace {

constexpr size_t kLine = 64, kHugePage = size_t{2} << 20;

}  // namespace

void Buffer::Free::operator()(float* p) const { std::free(p); }

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
  const bool huge = bytes >= kHugePage;
  void* memory = nullptr;
  if (posix_memalign(&memory, huge ? kHugePage : kLine, bytes) != 0) throw std::bad_alloc();
  data_.reset(static_cast<float*>(memory));
  size_ = count;
#ifdef __linux__
  if (huge) madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // a refusal costs speed only
#endif
}

}  // namespace gyre
