// multiply_panel<Blocked>: by the processor's matrix unit (AMX).
#if defined(__AMX_BF16__)
#include <algorithm>
#include <array>

#include "kernels/bf16.h"
#include "kernels/matrix_unit.h"
#include "kernels/panel.h"

namespace gyre {
namespace {

// A block of rows, by all vectors of a panel, for all of its steps.
struct BlockedOperands {
  int64_t vectors;
  const float* a;
  ptrdiff_t lda;
  const float* panel;
  int64_t steps;
  const float* start;
  ptrdiff_t start_row;
  float* c;
  ptrdiff_t ldc;
  const float* ahead;  // fetched meanwhile, `ahead_step` lines with every kChainSteps steps
  int64_t ahead_lines;
};

static_assert(kLanes == 16 && kPanelVectors == 3 && kChainSteps == 16);
constexpr int64_t kRowsAtOnce = 2 * kMatrixRows;

// kVectors columns of sums of one or two tiles of rows, the second `second` rows after the first (which may overlap it:
// the rows of both are the same sums).
template <bool kTwo, int kVectors>
void multiply_block(const BlockedOperands& o, int64_t steps, int64_t second) {
  // Calls body(register, first row, first column) for all sums.
  const auto for_sums = [&](auto&& body) {
    unrolled<(kTwo ? 2 : 1) * kVectors>([&](auto i) {
      constexpr int kHalf = i / kVectors, kVector = i % kVectors;
      body(std::integral_constant<int, 3 * kHalf + kVector>{}, kHalf * second, kVector * kLanes);
    });
  };
  if (o.start) {
    for_sums([&](auto sum, int64_t row, int64_t column) {
      load_matrix<sum>(o.start + row * o.start_row + column, o.start_row);
    });
  } else {
    for_sums([](auto sum, int64_t, int64_t) { clear_matrix<sum>(); });
  }
  const float *a = o.a, *b = o.panel, *ahead = o.ahead;
  for (int64_t i = 0; i < steps; i += kChainSteps, a += kChainSteps, b += kChainSteps * kPanel) {
    for (int64_t line = 0; line < o.ahead_lines; ++line, ahead += kLineFloats) __builtin_prefetch(ahead, 0, 2);
    load_matrix<6>(a, o.lda);
    unrolled<kVectors>([&](auto v) {
      load_matrix<7>(b + v * kLanes, kPanel);
      multiply_matrices<v, 6, 7>();
    });
    if constexpr (kTwo) {  // backwards: the last vector is in its register
      load_matrix<6>(a + second * o.lda, o.lda);
      unrolled<kVectors>([&](auto done) {
        constexpr int kVector = kVectors - 1 - done;
        if constexpr (done > 0) load_matrix<7>(b + kVector * kLanes, kPanel);
        multiply_matrices<3 + kVector, 6, 7>();
      });
    }
  }
  for_sums([&](auto sum, int64_t row, int64_t column) { store_matrix<sum>(o.c + row * o.ldc + column, o.ldc); });
}

using Block = void (*)(const BlockedOperands&, int64_t, int64_t);
constexpr std::array<Block, 6> kBlocks{multiply_block<false, 1>, multiply_block<false, 2>, multiply_block<false, 3>,
                                       multiply_block<true, 1>,  multiply_block<true, 2>,  multiply_block<true, 3>};

void multiply_rows(int64_t rows, BlockedOperands o) {
  const bool two = rows > kMatrixRows;
  const int64_t height = two ? ceil_div(rows, 2) : rows;
  const Block block = kBlocks[static_cast<size_t>(3 * two + o.vectors - 1)];
  const int64_t whole = o.steps / kChainSteps * kChainSteps, rest = o.steps - whole;
  if (whole > 0) {
    set_shapes({height, kChainSteps, 6, 1});
    block(o, whole, rows - height);
  }
  if (rest > 0) {
    set_shapes({height, rest, 6, 1});
    o.a += whole, o.panel += whole * kPanel;
    if (whole > 0) o.start = o.c, o.start_row = o.ldc;
    o.ahead_lines = 0;
    block(o, rest, rows - height);
  }
}

thread_local TileShapes in_use{};

// What the processor reads.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t column_bytes[16] = {};
  uint8_t rows[16] = {};
};

}  // namespace

void set_shapes(const TileShapes& shapes) {
  if (shapes == in_use) return;
  TileConfiguration c;
  for (int i = 0; i < 8; ++i) {
    const bool operand = i >= shapes.sums && i < shapes.sums + shapes.operands, block = !operand && i >= shapes.sums;
    c.column_bytes[i] = static_cast<uint16_t>(operand ? 4 * shapes.steps : 64);
    c.rows[i] = static_cast<uint8_t>(block ? shapes.steps : shapes.rows);
  }
  asm volatile("ldtilecfg %0" ::"m"(c));
  in_use = shapes;
}

PairsScope::~PairsScope() {
  asm volatile("tilerelease" ::);
  in_use = {};
}

template <>
void multiply_panel<Blocked>(int64_t rows, int64_t vectors, Strided a, ptrdiff_t, const float* panel, int64_t steps,
                             const float* next, const float* start, ptrdiff_t start_row, float* c, ptrdiff_t ldc) {
  // A single block of rows runs at the speed of memory: what follows is fetched shortly ahead. With more, the next
  // panel is on its way during all of them.
  constexpr int64_t kBlockLines = kChainSteps * kPanel / kLineFloats;
  const int64_t blocks = ceil_div(rows, kRowsAtOnce), lines = blocks > 0 ? ceil_div(kBlockLines, blocks) : 0;
  for (int64_t r = 0, index = 0; r < rows; r += kRowsAtOnce, ++index) {
    const float* from = start ? start + r * start_row : nullptr;
    const float* ahead =
        blocks == 1 ? panel + 8 * kChainSteps * kPanel : next + index * steps / kChainSteps * lines * kLineFloats;
    multiply_rows(std::min(kRowsAtOnce, rows - r),
                  {vectors, a.data + r * a.row, a.row, panel, steps, from, start_row, c + r * ldc, ldc, ahead, lines});
  }
}

}  // namespace gyre
#endif
