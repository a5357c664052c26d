#include "model/pass.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/vec.h"

namespace gyre {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("decoder forward: " + what); }

// Lists the positions of consecutive rows.
void place(Pass& pass, const ModelConfig& config, int64_t row, int64_t count, int64_t position) {
  const int64_t end = position + count;
  if (end > config.max_positions) {
    refuse("a sequence of " + std::to_string(end) + " tokens exceeds max_position_embeddings " +
           std::to_string(config.max_positions));
  }
  for (int64_t i = 0; i < count; ++i) {
    pass.positions[static_cast<size_t>(row + i)] = static_cast<int32_t>(position + i);
  }
  pass.end = std::max(pass.end, end);
}

}  // namespace

Pass inference_pass(const ModelConfig& config, int64_t rows, std::span<const RowSpan> spans, int64_t num_pages) {
  Pass pass;
  pass.rows = rows;
  pass.positions.resize(static_cast<size_t>(rows));
  int64_t covered = 0;
  for (const RowSpan& s : spans) {
    const int64_t end = s.position + s.count, needed = ceil_div(end, kPageTokens);
    if (s.count <= 0 || s.position < 0 || s.row < 0 || s.row + s.count > rows) {
      refuse("rows " + std::to_string(s.row) + ".." + std::to_string(s.row + s.count) + " at position " +
             std::to_string(s.position) + " do not fit a pass of " + std::to_string(rows) + " rows");
    }
    if (static_cast<int64_t>(s.pages.size()) < needed) {
      refuse(std::to_string(end) + " tokens need " + std::to_string(needed) + " pages, got " +
             std::to_string(s.pages.size()));
    }
    for (int64_t i = 0; i < needed; ++i) {
      const int32_t page = s.pages[static_cast<size_t>(i)];
      if (page < 0 || page >= num_pages) refuse("page " + std::to_string(page) + " of " + std::to_string(num_pages));
    }
    place(pass, config, s.row, s.count, s.position);
    pass.attended.push_back({s.row, s.count, s.position, s.pages.data()});
    covered += s.count;
  }
  if (covered != rows) refuse("spans cover " + std::to_string(covered) + " of " + std::to_string(rows) + " rows");
  pass.stored = pass.attended;
  return pass;
}

Pass training_pass(const ModelConfig& config, const Packing& packing) {
  Pass pass;
  pass.rows = packing.rows();
  pass.positions.resize(static_cast<size_t>(pass.rows));
  pass.segments = packing.segments;
  const std::vector<Segment>& segments = pass.segments;

  std::vector<size_t> table(segments.size() + 1);  // segment i's begins at tables[table[i]]
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    place(pass, config, s.row, s.count, s.position);
    const auto shared = static_cast<size_t>(s.position / kPageTokens);
    for (size_t p = 0; p < shared; ++p) {
      pass.tables.push_back(pass.tables[table[static_cast<size_t>(s.parent)] + p]);
    }
    for (int64_t p = s.position / kPageTokens; p < ceil_div(s.position + s.count, kPageTokens); ++p) {
      pass.tables.push_back(static_cast<int32_t>(pass.num_pages++));
    }
    table[i + 1] = pass.tables.size();
  }
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    const int32_t* pages = pass.tables.data() + table[i];
    pass.attended.push_back({s.row, s.count, s.position, pages});
    pass.stored.push_back(pass.attended.back());
    const int64_t page_start = s.position / kPageTokens * kPageTokens;
    int64_t end = s.position;
    for (int32_t a = s.parent; end > page_start; a = segments[static_cast<size_t>(a)].parent) {
      const Segment& ancestor = segments[static_cast<size_t>(a)];
      const int64_t first = std::max(page_start, ancestor.position);
      pass.stored.push_back({ancestor.row + first - ancestor.position, end - first, first, pages});
      end = first;
    }
  }
  return pass;
}

}  // namespace gyre
