#include "kernels/rows.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/vec.h"

namespace gyre {
namespace {

constexpr int64_t kStrip = 64;  // columns per task where every task walks all rows
constexpr int64_t kBlock = 4096;

}  // namespace

void gather_rows(const float* table, int64_t width, const int32_t* ids, int64_t rows, float* out) {
  parallel_for(rows, std::max<int64_t>(1, 16384 / width),
               [&](int64_t r) { std::copy_n(table + ids[r] * width, width, out + r * width); });
}

void scatter_add_rows(const float* d, int64_t width, const int32_t* ids, int64_t rows, float* table) {
  parallel_for(ceil_div(width, kStrip), std::max<int64_t>(1, 256 / std::max<int64_t>(rows, 1)), [&](int64_t s) {
    const int64_t first = s * kStrip, last = std::min(width, first + kStrip);
    for (int64_t r = 0; r < rows; ++r) {
      float* to = table + ids[r] * width;
      for (int64_t j = first; j < last; ++j) to[j] += d[r * width + j];
    }
  });
}

void add(const float* a, const float* b, int64_t count, float* out) {
  parallel_for(ceil_div(count, kBlock), 4, [&](int64_t i) {
    const int64_t last = std::min(count, (i + 1) * kBlock);
    for (int64_t j = i * kBlock; j < last; ++j) out[j] = a[j] + b[j];
  });
}

void add_column_sums(const float* d, int64_t rows, int64_t width, float* sums) {
  parallel_for(ceil_div(width, kStrip), std::max<int64_t>(1, 256 / std::max<int64_t>(rows, 1)), [&](int64_t s) {
    const int64_t first = s * kStrip, n = std::min(kStrip, width - first);
    float total[kStrip] = {};
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = d + r * width + first;
      for (int64_t j = 0; j < n; ++j) total[j] += row[j];
    }
    for (int64_t j = 0; j < n; ++j) sums[first + j] += total[j];
  });
}

}  // namespace gyre
