#include "engine/pass.h"

#include <cstring>
#include <stdexcept>
#include <utility>

namespace gyre {
namespace {

// Arrays of numbers one after another, each behind its length.
class Writer {
 public:
  template <typename T>
  void put(const T* data, size_t count) {
    const uint64_t length = count;
    bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
    bytes.append(reinterpret_cast<const char*>(data), count * sizeof(T));
  }
  template <typename T>
  void put(const std::vector<T>& values) {
    put(values.data(), values.size());
  }
  std::string bytes;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  template <typename T>
  std::vector<T> get() {
    uint64_t length = 0;
    take(&length, sizeof length);
    if (length > rest_.size() / sizeof(T)) refuse();
    std::vector<T> values(length);
    take(values.data(), length * sizeof(T));
    return values;
  }
  [[noreturn]] static void refuse() {
    throw std::invalid_argument("engine: a peer sent bytes that are not a pass: do all ranks run the same build?");
  }

 private:
  void take(void* to, size_t size) {
    if (size > rest_.size()) refuse();
    if (size > 0) std::memcpy(to, rest_.data(), size);
    rest_.remove_prefix(size);
  }
  std::string_view rest_;
};

}  // namespace

std::string EnginePass::encode() const {
  Writer out;
  std::vector<int64_t> shape{num_pages, decode_rows};
  std::vector<int32_t> tables;
  for (const RowSpan& s : spans) {
    shape.insert(shape.end(), {s.row, s.count, s.position, static_cast<int64_t>(s.pages.size())});
    tables.insert(tables.end(), s.pages.begin(), s.pages.end());
  }
  out.put(shape);
  out.put(tables);
  out.put(copies);
  out.put(ids);
  out.put(sampled);
  return std::move(out.bytes);
}

EnginePass::EnginePass(std::string_view bytes) {
  Reader in(bytes);
  const auto shape = in.get<int64_t>();
  tables_ = in.get<int32_t>();
  copies = in.get<int32_t>();
  ids = in.get<int32_t>();
  sampled = in.get<int64_t>();
  if (shape.size() < 2 || shape.size() % 4 != 2) Reader::refuse();
  num_pages = shape[0], decode_rows = shape[1];
  size_t table = 0;
  for (size_t i = 2; i < shape.size(); i += 4) {
    const auto pages = static_cast<size_t>(shape[i + 3]);
    if (pages > tables_.size() - table) Reader::refuse();
    spans.push_back({shape[i], shape[i + 1], shape[i + 2], std::span<const int32_t>(tables_).subspan(table, pages)});
    table += pages;
  }
}

}  // namespace gyre
