// Which pages of the KV pool are in use, and by how many holders.
#pragma once

#include <cstdint>
#include <vector>

namespace gyre {

class PageAllocator {
 public:
  explicit PageAllocator(int64_t num_pages);

  int64_t total() const { return static_cast<int64_t>(references_.size()); }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }

  // A free page with one reference. The pool must not be empty.
  int32_t take();
  // Drops one reference from each page of the table and empties it.
  void release(std::vector<int32_t>& pages);
  // Drops one reference from the pages behind the first `keep` and shortens the table to them.
  void truncate(std::vector<int32_t>& pages, int64_t keep);

 private:
  std::vector<int32_t> references_;
  std::vector<int32_t> free_;  // a stack: recently used pages are still in the caches, low ones are touched first
};

}  // namespace gyre
