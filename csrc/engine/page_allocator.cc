#include "engine/page_allocator.h"

#include <stdexcept>
#include <string>

namespace gyre {

PageAllocator::PageAllocator(int64_t num_pages) : references_(num_pages, 0) {
  free_.reserve(num_pages);
  for (int64_t page = num_pages; page-- > 0;) free_.push_back(static_cast<int32_t>(page));
}

int32_t PageAllocator::take() {
  if (free_.empty()) throw std::logic_error("KV pool: a page was taken from an empty pool");
  const int32_t page = free_.back();
  free_.pop_back();
  references_[page] = 1;
  return page;
}

void PageAllocator::release(std::vector<int32_t>& pages) { truncate(pages, 0); }

void PageAllocator::truncate(std::vector<int32_t>& pages, int64_t keep) {
  while (static_cast<int64_t>(pages.size()) > keep) {
    const int32_t page = pages.back();
    pages.pop_back();
    if (references_[page] <= 0) throw std::logic_error("KV pool: page " + std::to_string(page) + " was released twice");
    if (--references_[page] == 0) free_.push_back(page);
  }
}

}  // namespace gyre
