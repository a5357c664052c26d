#include "engine/pass.h"

#include <cstring>

namespace gyre {

// All numbers as int64: the counts of the lists below, then these one after another, the page tables last.
std::string EnginePass::encode() const {
  std::vector<int64_t> all{num_pages,          decode_rows,     std::ssize(spans),
                           std::ssize(copies), std::ssize(ids), std::ssize(sampled)};
  for (const RowSpan& s : spans) all.insert(all.end(), {s.row, s.count, s.position, std::ssize(s.pages)});
  all.insert(all.end(), copies.begin(), copies.end());
  all.insert(all.end(), ids.begin(), ids.end());
  all.insert(all.end(), sampled.begin(), sampled.end());
  for (const RowSpan& s : spans) all.insert(all.end(), s.pages.begin(), s.pages.end());
  return {reinterpret_cast<const char*>(all.data()), all.size() * sizeof(int64_t)};
}

EnginePass::EnginePass(std::string_view bytes) {
  std::vector<int64_t> all(bytes.size() / sizeof(int64_t));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  auto next = all.cbegin() + 6;
  const auto take = [&](auto& list, int64_t count) {
    list.assign(next, next + count);
    next += count;
  };
  num_pages = all[0], decode_rows = all[1];
  std::vector<int64_t> shapes;
  take(shapes, 4 * all[2]);
  take(copies, all[3]);
  take(ids, all[4]);
  take(sampled, all[5]);
  take(tables_, all.cend() - next);
  const int32_t* pages = tables_.data();
  for (auto s = shapes.begin(); s != shapes.end(); s += 4) {
    spans.push_back({s[0], s[1], s[2], {pages, static_cast<size_t>(s[3])}, nullptr});
    pages += s[3];
  }
}

}  // namespace gyre
