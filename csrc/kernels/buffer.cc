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
