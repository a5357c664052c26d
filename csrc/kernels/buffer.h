// Memory for kernels: floats that start on a cache line, so that no vector load crosses into a second one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace gyre {

class Buffer {
 public:
  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  // At least `count` floats. Growing forgets the contents; new memory is not initialised. Large buffers ask for huge
  // pages: weights are read from one end to the other, and address translation is a good part of that cost. The memory
  // of large buffers is used again by later ones (buffer.cc). A buffer that `stays`, as weights do, shares huge pages
  // with its neighbours when it is small.
  void reserve(int64_t count, bool stays = false);

 private:
  struct Free {
    size_t block;  // bytes of a large one, else 0
    void operator()(float* p) const;
  };
  std::unique_ptr<float, Free> data_;
  int64_t size_ = 0;
};

// Gives back to the system the memory that freed large buffers and tensors left: before a phase that needs little.
void release_idle_memory();

// Gives back the memory of these floats, which are no longer needed and may read as zeros from now on.
void discard_pages(float* data, int64_t count);

}  // namespace gyre
