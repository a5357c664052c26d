#include "kernels/gemm.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/tile.h"
#include "kernels/vec.h"

namespace gyre {
namespace {

constexpr int64_t kInnerBlock = 768;  // inner positions per pass: a panel (144 KiB) stays in the second-level cache
constexpr int64_t kRowBlock = 96;     // rows per task
constexpr int64_t kAhead = 4;         // tiles fetched before they are transposed

// Few rows read every panel once, from memory, and what comes next is fetched during the work on what is there. That is
// lost at the start of every range of panels, and long panels do not fit the first-level cache meanwhile: a few ranges
// per thread, and short inner blocks (of a tile's rows alone, each is read only once as it is).
constexpr int64_t kStreamedRanges = 2, kStreamedBlock = 192;

// The last panel of a matrix whose width is no multiple of a vector goes through a buffer, so that y is never written
// past its row.
void multiply_narrow(const float* x, int64_t ldx, int64_t rows, const float* panel, int64_t k, const float* bias,
                     int64_t width, bool resume, float* y, int64_t ldy) {
  float buffer[kTileRows * kPanel];
  const int64_t vectors = ceil_div(width, kLanes);
  for (int64_t first = 0; first < rows; first += kTileRows) {
    const int64_t n = std::min<int64_t>(kTileRows, rows - first);
    std::fill(buffer, buffer + n * kPanel, 0.0f);
    for (int64_t r = 0; r < n; ++r) {
      const float* start = resume ? y + (first + r) * ldy : bias;
      if (start) std::copy(start, start + width, buffer + r * kPanel);
    }
    multiply_panel(n, vectors, {x + first * ldx, ldx, 1}, 0, panel, k, buffer, kPanel, buffer, kPanel);
    for (int64_t r = 0; r < n; ++r) std::copy(buffer + r * kPanel, buffer + r * kPanel + width, y + (first + r) * ldy);
  }
}

}  // namespace

int64_t PackedMatrix::bytes() const {
  return ceil_div(out_, kPanel) * in_ * kPanel * static_cast<int64_t>(sizeof(float));
}

void PackedMatrix::pack(const float* weight, int64_t out, int64_t in) {
  panels_.reserve(ceil_div(out, kPanel) * in * kPanel);
  out_ = out;
  in_ = in;
  const int64_t grain = std::max<int64_t>(1, 20000 / (in * kPanel));
  parallel_for(ceil_div(out, kPanel), grain, [&](int64_t p) {
    float* panel = panels_.data() + p * in * kPanel;
    const int64_t width = std::min(kPanel, out - p * kPanel);
    if (width < kPanel) std::fill(panel, panel + in * kPanel, 0.0f);
    for (int64_t j = 0; j < width; j += kLanes) {
      for (int64_t k = 0; k < in; k += kLanes) {
        const float* from = weight + (p * kPanel + j) * in + k;
        float* to = panel + k * kPanel + j;
        if (j + kLanes <= width && k + kLanes <= in) {
          // Two rows of a page are too many streams for the processor's own prefetching. Past a row's end: harmless.
          for (int64_t r = 0; r < kLanes; ++r) __builtin_prefetch(from + r * in + kAhead * kLanes);
          transpose_tile(from, in, to, kPanel);
        } else {
          const int64_t rows = std::min<int64_t>(kLanes, width - j), columns = std::min<int64_t>(kLanes, in - k);
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t c = 0; c < columns; ++c) to[c * kPanel + r] = from[r * in + c];
          }
        }
      }
    }
  });
}

void PackedMatrix::multiply_columns(int64_t first_column, int64_t count, const float* x, int64_t ldx, int64_t rows,
                                    const float* bias, float* y, int64_t ldy) const {
  const int64_t panels = ceil_div(count, kPanel), row_blocks = ceil_div(rows, kRowBlock);
  const int64_t block_rows = row_blocks > 1 ? round_up(ceil_div(rows, row_blocks), kTileRows) : rows;
  const float* first_panel = panels_.data() + first_column * in_;
  const bool streamed = row_blocks == 1;
  const int64_t inner = even_part(in_, streamed && rows > kTileRows ? kStreamedBlock : kInnerBlock);
  const int64_t grain = std::max<int64_t>(streamed ? ceil_div(panels, kStreamedRanges * num_threads()) : 1,
                                          120000 / (std::max<int64_t>(block_rows, 4) * in_ * kPanel));
  parallel_for(panels * row_blocks, grain, [&](int64_t task) {
    const int64_t p = task % panels, first = task / panels * block_rows, n = std::min(block_rows, rows - first);
    const int64_t width = std::min(kPanel, count - p * kPanel);
    const float* panel = first_panel + p * in_ * kPanel;
    const float* block_bias = bias ? bias + first_column + p * kPanel : nullptr;
    float* block_y = y + first * ldy + p * kPanel;
    for (int64_t k = 0; k < in_; k += inner) {
      const int64_t nk = std::min(inner, in_ - k);
      const float* block_x = x + first * ldx + k;
      if (width % kLanes) {
        multiply_narrow(block_x, ldx, n, panel + k * kPanel, nk, block_bias, width, k > 0, block_y, ldy);
      } else {
        multiply_panel(n, width / kLanes, {block_x, ldx, 1}, 0, panel + k * kPanel, nk, k ? block_y : block_bias,
                       k ? ldy : 0, block_y, ldy);
      }
    }
  });
}

}  // namespace gyre
