#include "kernels/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/bf16.h"
#include "kernels/panel.h"
#include "kernels/parallel.h"

namespace gyre {
namespace {

constexpr int64_t kInnerBlock = 768;  // rows of a panel per pass: 144 KiB, which stay in the second-level cache
constexpr int64_t kRowBlock = 96;     // rows per task

// The matrix unit is done with a panel before the next one has come, and those of a quantised matrix have to be made:
// each serves more rows.
constexpr int64_t kMatrixRowBlock = 384;
constexpr int64_t kAhead = 4;  // tiles fetched before they are transposed

// Few rows read every panel once, from memory, and what comes next is fetched during the work on what is there. That is
// lost at the start of every range of panels, and long panels do not fit the first-level cache meanwhile: a few ranges
// per thread, and short inner blocks. A single tile of rows reads each panel as it is.
constexpr int64_t kStreamedRanges = 2;
constexpr int64_t streamed_block(int64_t rows) { return kReadsAhead && rows <= 2 * kWideRows ? 96 : 192; }

// Widened in registers, a word is widened once for every tile of rows; for more tiles than these, once for all of them.
constexpr int64_t kWidenedTiles = 2;

// `steps` rows of a panel of words as the two rows of numbers that each stands for, the odd position's first.
const float* unpack(const float* panel, int64_t steps) {
  thread_local Buffer buffer;
  buffer.reserve(2 * steps * kPanel);
  float* to = buffer.data();
  for (int64_t i = 0; i < steps; ++i, panel += kPanel, to += 2 * kPanel) {
    for (int64_t j = 0; j < kPanel; j += kLanes) {
      const vf words = load(panel + j);
      store(to + j, upper(words));
      store(to + kPanel + j, lower(words));
    }
  }
  return buffer.data();
}

vf numbers_of(const int8_t* codes) {
  typedef int8_t vb __attribute__((vector_size(kLanes)));
  typedef int16_t vs __attribute__((vector_size(2 * kLanes)));  // by way of which GCC finds the instructions
  vb some;
  std::memcpy(&some, codes, sizeof some);
  return __builtin_convertvector(__builtin_convertvector(__builtin_convertvector(some, vs), vi), vf);
}

// Rows first .. first+steps-1 of panel p. Those of a quantised matrix are made as pack_panels() would, in a buffer that
// is valid until the thread's next call.
const float* panel_rows(const Panels& w, int64_t p, int64_t first, int64_t steps) {
  if (w.codes == nullptr) return w.data + (p * w.depth() + first) * kPanel;
  thread_local Buffer buffer;
  buffer.reserve(steps * kPanel);
  const bool pairs = w.precision == Precision::kBfloat16;
  const float* scales = w.scales + p * kPanel;
  const int8_t* codes = w.codes + (p * round_up(w.in, 2) + (pairs ? 2 : 1) * first) * kPanel;
  float* to = buffer.data();
  for (int64_t i = 0; i < steps; ++i, to += kPanel, codes += (pairs ? 2 : 1) * kPanel) {
    for (int64_t j = 0; j < kPanel; j += kLanes) {
      const vf scale = load(scales + j), even = numbers_of(codes + j) * scale;
      store(to + j, pairs ? joined(even, numbers_of(codes + kPanel + j) * scale) : even);
    }
  }
  return buffer.data();
}

template <class Engine>
void multiply_block(int64_t rows, int64_t vectors, Strided a, const float* panel, int64_t steps, const float* start,
                    ptrdiff_t start_row, float* c, ptrdiff_t ldc) {
  const float* next = panel + steps * kPanel;
  if constexpr (std::is_same_v<Engine, Widened>) {
    if (rows > kWidenedTiles * kTileRows) {
      multiply_panel<Floats>(rows, vectors, a, 0, unpack(panel, steps), 2 * steps, next, start, start_row, c, ldc);
      return;
    }
  }
  multiply_panel<Engine>(rows, vectors, a, 0, panel, steps, next, start, start_row, c, ldc);
}

// The engine for narrow panels: the matrix unit takes none of them.
template <class Engine>
using NarrowOf = std::conditional_t<std::is_same_v<Engine, Floats>, Floats, RegisterPairs>;

// Where the chains of a product begin: at the bias (null: zero), or at what is in y.
struct Start {
  const float* bias;
  bool at_y;
};

// a: the rows of x as the engine takes them, `numbers` of them for each row of a panel.
template <class Engine>
void multiply_rows(const Panels& w, int64_t out, const float* a, int64_t lda, int64_t numbers, int64_t rows,
                   Start begin, float* y, int64_t ldy) {
  constexpr bool kPairs = !std::is_same_v<Engine, Floats>, kBlocked = std::is_same_v<Engine, Blocked>;
  const int64_t panels = ceil_div(out, kPanel), depth = w.depth();
  const int64_t row_blocks = ceil_div(rows, kBlocked || w.codes ? kMatrixRowBlock : kRowBlock);
  const int64_t block_rows = row_blocks > 1 ? round_up(ceil_div(rows, row_blocks), kTileRows) : rows;
  const bool streamed = row_blocks == 1;
  const int64_t whole = kPairs ? kInnerBlock / 2 : kInnerBlock;
  const bool in_strips = streamed && (rows > kWideRows || w.codes) && !kBlocked;
  const int64_t inner = round_up(even_part(depth, in_strips ? streamed_block(rows) : whole), kChainSteps);
  // Ranges of panels: of few rows as many for one thread as for another, with some worth the trouble in each.
  const int64_t least = std::max<int64_t>(1, 120000 / (std::max<int64_t>(block_rows, 4) * depth * kPanel));
  const int64_t ranges = streamed ? std::clamp<int64_t>(panels / least, 1, kStreamedRanges * num_threads()) : panels;
  // Whole panels that a task of few rows takes at once. Words that are widened leave no registers for it.
  const int64_t whole_panels = out / kPanel;
  constexpr bool kSeveral = std::is_same_v<Engine, Floats> || std::is_same_v<Engine, Paired>;
  const int64_t most = kSeveral && !w.codes ? panels_across(rows) : 1;
  const auto one = [&](int64_t p, int64_t first, int64_t n) {
    const int64_t width = std::min(kPanel, out - p * kPanel);
    const float* block_bias = begin.bias ? begin.bias + p * kPanel : nullptr;
    float* block_y = y + first * ldy + p * kPanel;
    for (int64_t k = 0; k < depth; k += inner) {
      const int64_t steps = std::min(inner, depth - k);
      const bool narrow = w.tail < kPanel && p == panels - 1;
      const float *block_a = a + first * lda + k * numbers,
                  *block = narrow ? w.data + p * depth * kPanel + k * w.tail : panel_rows(w, p, k, steps);
      const bool goes_on = k > 0 || begin.at_y;
      multiply_columns(n, width, goes_on ? block_y : block_bias, goes_on ? ldy : 0, block_y, ldy,
                       [&](int64_t vectors, const float* start, ptrdiff_t start_row, float* to, ptrdiff_t ld_to) {
                         if (narrow) {
                           return multiply_tile<NarrowOf<Engine>>(n, vectors, {block_a, lda, 1}, block, w.tail, steps,
                                                                  start, start_row, to, ld_to);
                         }
                         multiply_block<Engine>(n, vectors, {block_a, lda, 1}, block, steps, start, start_row, to,
                                                ld_to);
                       });
    }
  };
  parallel_for(ranges * row_blocks, streamed ? 1 : least, [&](int64_t task) {
    const int64_t range = task % ranges, first = task / ranges * block_rows;
    const int64_t n = std::min(block_rows, rows - first), end = (range + 1) * panels / ranges;
    [[maybe_unused]] const ScopeOf<Engine> scope{};
    for (int64_t p = range * panels / ranges, together; p < end; p += together) {
      const int64_t left = std::min(end, whole_panels) - p;
      together = left > 1 ? even_part(left, most) : 1;
      if constexpr (kSeveral) {
        if (together > 1) {
          float* to = y + p * kPanel;
          const float* start = begin.at_y ? to : begin.bias ? begin.bias + p * kPanel : nullptr;
          multiply_across<Engine>(rows, together, {a, lda, 1}, w.data + p * depth * kPanel, depth * kPanel, depth,
                                  start, begin.at_y ? ldy : 0, to, ldy);
          continue;
        }
      }
      one(p, first, n);
    }
  });
}

// Number i of a column of a panel.
float element(const float* column, int64_t i, Precision precision) {
  if (precision == Precision::kFloat32) return column[i * kPanel];
  const auto word = std::bit_cast<uint32_t>(column[i / 2 * kPanel]);
  return from_bf16(static_cast<uint16_t>(i % 2 ? word >> 16 : word));
}

// Some rows and columns of a panel, one number or pair at a time. A row of the panel has ld words.
void pack_rest(const float* from, int64_t in, int64_t rows, int64_t columns, Precision precision, float* to,
               int64_t ld) {
  for (int64_t r = 0; r < rows; ++r) {
    if (precision == Precision::kFloat32) {
      for (int64_t c = 0; c < columns; ++c) to[c * ld + r] = from[r * in + c];
    } else {
      float words[kLanes];
      join_pairs(from + r * in, columns, words);
      for (int64_t c = 0; c < ceil_div(columns, 2); ++c) to[c * ld + r] = words[c];
    }
  }
}

void multiply_from(const Panels& w, int64_t out, const float* x, int64_t ldx, int64_t rows, Start begin, float* y,
                   int64_t ldy) {
  const int64_t lda = operand_width(w.precision, w.in);
  if (w.precision == Precision::kFloat32) {
    return multiply_rows<Floats>(w, out, x, ldx == 0 ? lda : ldx, 1, rows, begin, y, ldy);
  }
  thread_local Buffer converted;
  if (ldx != 0) {
    converted.reserve(rows * lda);
    to_operands(x, ldx, rows, w.in, w.precision, converted.data());
    x = converted.data();
  }
  multiply_rows<Pairs>(w, out, x, lda, kWords ? 1 : 2, rows, begin, y, ldy);
}

// Columns of a panel's rows, kLanes of each, as rows of operands.
void unpack_tile(const float* rows, Precision precision, float* to, int64_t ld) {
  if (kWords || precision == Precision::kFloat32) return transpose_tile(rows, kPanel, to, ld);
  float words[kLanes * kLanes];
  transpose_tile(rows, kPanel, words, kLanes);
  for (int64_t i = 0; i < kLanes * kLanes; ++i) {
    float* pair = to + i / kLanes * ld + i % kLanes * 2;  // the odd position before the even one
    const auto word = std::bit_cast<uint32_t>(words[i]);
    pair[0] = from_bf16(static_cast<uint16_t>(word >> 16)), pair[1] = from_bf16(static_cast<uint16_t>(word));
  }
}

}  // namespace

void pack_panels(const float* weight, int64_t out, int64_t in, Precision precision, int64_t tail, float* panels) {
  const bool pairs = precision == Precision::kBfloat16;
  const int64_t depth = Panels{panels, in, precision}.depth();
  const int64_t grain = std::max<int64_t>(1, 20000 / (in * kPanel));
  parallel_for(ceil_div(out, kPanel), grain, [&](int64_t p) {
    float* panel = panels + p * depth * kPanel;
    const int64_t width = std::min(kPanel, out - p * kPanel);
    if (width < kPanel && width == tail) {
      for (int64_t k = 0; k < in; k += kLanes) {
        pack_rest(weight + p * kPanel * in + k, in, width, std::min<int64_t>(kLanes, in - k), precision,
                  panel + (pairs ? k / 2 : k) * tail, tail);
      }
      return;
    }
    if (width < kPanel) std::fill(panel, panel + depth * kPanel, 0.0f);
    for (int64_t j = 0; j < width; j += kLanes) {
      int64_t k = 0;
#if defined(__AVX512BF16__)  // whose conversion makes words of two vectors: half as many squares to transpose
      for (; pairs && j + kLanes <= width && k + 2 * kLanes <= in; k += 2 * kLanes) {
        const float* from = weight + (p * kPanel + j) * in + k;
        float words[kLanes * kLanes];
        for (int64_t r = 0; r < kLanes; ++r) {
          for (int64_t line = 0; line < 2; ++line) {
            __builtin_prefetch(from + r * in + (kAhead + line) * kLanes);
          }
          join_pairs(from + r * in, 2 * kLanes, words + r * kLanes);
        }
        transpose_tile(words, kLanes, panel + k / 2 * kPanel + j, kPanel);
      }
#endif
      for (; k < in; k += kLanes) {
        const float* from = weight + (p * kPanel + j) * in + k;
        float* to = panel + (pairs ? k / 2 : k) * kPanel + j;
        if (j + kLanes <= width && k + kLanes <= in) {
          // Two rows of a page are too many streams for the processor's own prefetching. Past a row's end: harmless.
          for (int64_t r = 0; r < kLanes; ++r) __builtin_prefetch(from + r * in + kAhead * kLanes);
          if (!pairs) {
            transpose_tile(from, in, to, kPanel);
          } else {
            float turned[kLanes * kLanes];
            transpose_tile(from, in, turned, kLanes);
            for (int i = 0; i < kLanes; i += 2) {
              store(to + i / 2 * kPanel, joined(load(turned + i * kLanes), load(turned + (i + 1) * kLanes)));
            }
          }
        } else {
          pack_rest(from, in, std::min<int64_t>(kLanes, width - j), std::min<int64_t>(kLanes, in - k), precision, to,
                    kPanel);
        }
      }
    }
  });
}

void quantize_panels(const float* weight, int64_t out, int64_t in, int8_t* codes, float* scales) {
  const int64_t depth = round_up(in, 2);
  parallel_for(ceil_div(out, kPanel), std::max<int64_t>(1, 20000 / (in * kPanel)), [&](int64_t p) {
    int8_t* panel = codes + p * depth * kPanel;
    std::fill_n(panel, depth * kPanel, int8_t{0});
    std::fill_n(scales + p * kPanel, kPanel, 0.0f);
    for (int64_t r = 0; r < std::min(kPanel, out - p * kPanel); ++r) {
      const float* row = weight + (p * kPanel + r) * in;
      float most = 0;
      for (int64_t i = 0; i < in; ++i) most = std::abs(row[i]) > most || row[i] != row[i] ? std::abs(row[i]) : most;
      const float scale = most / 127;
      scales[p * kPanel + r] = scale;
      if (scale == 0) continue;
      // A row with an infinite number or a NaN becomes one of those.
      const auto code = [&](float x) {
        return std::isfinite(scale) ? std::clamp(std::nearbyint(x / scale), -127.0f, 127.0f) : 1.0f;
      };
      for (int64_t i = 0; i < in; ++i) panel[i * kPanel + r] = static_cast<int8_t>(code(row[i]));
    }
  });
}

int64_t operand_width(Precision precision, int64_t in) {
  if (precision == Precision::kFloat32) return in;
  return ceil_div(in, 2) * (kWords ? 1 : 2);
}

void to_operands(const float* x, int64_t ldx, int64_t rows, int64_t width, Precision precision, float* operands) {
  const int64_t each = operand_width(precision, width);
  parallel_for(rows, std::max<int64_t>(1, 32768 / width), [&](int64_t r) {
    if (precision == Precision::kFloat32) {
      std::copy_n(x + r * ldx, width, operands + r * each);
    } else {
      to_operand(x + r * ldx, width, operands + r * each);
    }
  });
}

void multiply_panels(const Panels& w, int64_t out, const float* x, int64_t ldx, int64_t rows, const float* bias,
                     float* y, int64_t ldy) {
  multiply_from(w, out, x, ldx, rows, {bias, false}, y, ldy);
}

void add_panels(const Panels& w, int64_t out, const float* x, int64_t ldx, int64_t rows, float* y, int64_t ldy) {
  multiply_from(w, out, x, ldx, rows, {nullptr, true}, y, ldy);
}

void unpack_panels(const Panels& whole, int64_t first, int64_t count, float* operands) {
  const Panels w = whole.from(first);
  const int64_t depth = w.depth(), ld = operand_width(w.precision, w.in), each = ld / depth;
  parallel_for(ceil_div(count, kPanel), std::max<int64_t>(1, 20000 / (w.in * kPanel)), [&](int64_t p) {
    const int64_t columns = std::min(kPanel, count - p * kPanel);
    for (int64_t k = 0; k < depth; k += kLanes) {
      const int64_t steps = std::min<int64_t>(kLanes, depth - k);
      const float* rows = panel_rows(w, p, k, steps);
      float* to = operands + p * kPanel * ld + k * each;
      for (int64_t j = 0; j < columns; j += kLanes, to += kLanes * ld) {
        const int64_t n = std::min<int64_t>(kLanes, columns - j);
        if (n == kLanes && steps == kLanes) {
          unpack_tile(rows + j, w.precision, to, ld);
          continue;
        }
        for (int64_t r = 0; r < n; ++r) {
          for (int64_t i = 0; i < steps; ++i) {
            if (each == 1) {
              std::memcpy(to + r * ld + i, rows + i * kPanel + j + r, sizeof(float));
            } else {
              to[r * ld + 2 * i] = element(rows + j + r, 2 * i + 1, w.precision);
              to[r * ld + 2 * i + 1] = element(rows + j + r, 2 * i, w.precision);
            }
          }
        }
      }
    }
  });
}

void gather_columns(const Panels& w, const int32_t* columns, int64_t rows, float* y) {
  const int64_t depth = w.depth();
  parallel_for(rows, std::max<int64_t>(1, 16384 / w.in), [&](int64_t r) {
    const float* from = w.data + columns[r] / kPanel * depth * kPanel + columns[r] % kPanel;
    float* to = y + r * w.in;
    for (int64_t i = 0; i < w.in; ++i) to[i] = element(from, i, w.precision);
  });
}

}  // namespace gyre
