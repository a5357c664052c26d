#include "kernels/tile.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/panel.h"
#include "kernels/register_tile.h"

namespace gyre {

namespace {

constexpr int kRowLines = kPanel / kLineFloats;

// Vectors of a panel that a tile of so many rows takes at a time: as many as there are registers for.
constexpr auto kColumnsOf = [] {
  std::array<int, kTileRows + 1> columns{};
  for (int rows = 1; rows <= kTileRows; ++rows) {
    int& c = columns[static_cast<size_t>(rows)] = std::min(kTileRows * kTileVectors / rows, kPanelVectors);
    while (kPanelVectors % c != 0) --c;
  }
  return columns;
}();
constexpr int columns_of(int64_t rows) { return kColumnsOf[static_cast<size_t>(rows)]; }
constexpr int kMostColumns = columns_of(1);

// Rows up to which multiply_panel() is bound by memory, and by the second-level cache.
constexpr int64_t kFewRows = 4 * kWideRows, kSomeRows = 32;

struct Operands {
  Strided a;
  const float* b;
  ptrdiff_t ldb;
  int64_t steps;
  const float* start;
  ptrdiff_t start_row;
  float* c;
  ptrdiff_t ldc;
  const float* ahead;  // what to fetch during the tile, `ahead_step` floats further with every step
  ptrdiff_t ahead_step;
};

// Between what is multiplied and what is fetched of the same panel.
constexpr int64_t kFetchAhead = 32 * kPanel;
// Whole rows of a panel are fetched into the second-level cache where the processor reads ahead into the first.
constexpr int kFetchedTo = kReadsAhead ? 2 : 3;
// Rows of a single tile from which on fetching pays.
constexpr int64_t kFetchingRows = kReadsAhead ? 5 : 1;
// Lines that each of two tiles fetches per step: they share a panel's row, so that memory is read evenly.
constexpr int kSharedLines = kReadsAhead ? 2 : kRowLines;

// kFetch cache lines are fetched ahead per step; b is a panel then.
template <class Engine, int R, int C, bool kUnitColumn, int kFetch>
void tile(const Operands& operands) {
  const Operands o = operands;  // c cannot overwrite a copy, so its fields stay in registers
  RegisterTile<R, C> acc = {};
  if (o.start) load_tile<R, C>(acc, o.start, o.start_row);
  const ptrdiff_t row = o.a.row, column = kUnitColumn ? Engine::kNumbers : o.a.column, ldb = kFetch ? kPanel : o.ldb;
  const float* a = o.a.data;
  const float *b = o.b, *ahead = o.ahead;
  const ptrdiff_t ahead_step = o.ahead_step;
  for (int64_t i = 0; i < o.steps; ++i, a += column, b += ldb) {
#pragma GCC unroll 4
    for (int line = 0; line < kFetch; ++line) {
      __builtin_prefetch(ahead + line * kLineFloats, 0, kFetch == kRowLines ? kFetchedTo : 3);
    }
    if constexpr (kFetch > 0) ahead += ahead_step;
    Engine::template step<R, C>(acc, a, row, [&](int c) { return load(b + c * kLanes); });
  }
  store_tile<R, C>(acc, o.c, o.ldc);
}

using Tile = void (*)(const Operands&);
using Tiles = std::array<Tile, kTileRows * kMostColumns>;

// Tiles that fetch: of whole panels, or of bands of them. The others are few, and their compile time is not.
constexpr bool may_fetch(int64_t rows, int64_t vectors, bool unit_column) {
  if (!unit_column && rows < kTileRows) return false;
  return vectors == columns_of(rows) || (rows < kTileRows && vectors == columns_of(rows + 1));
}

// By rows and vectors; null where registers would not do, and for those that do not fetch.
template <class Engine, bool kUnitColumn, int kFetch, int... I>
constexpr Tiles tiles(std::integer_sequence<int, I...>) {
  constexpr auto one = []<int R, int C>(std::integral_constant<int, R>, std::integral_constant<int, C>) -> Tile {
    constexpr bool kFits = C <= std::max(columns_of(R), kTileVectors);
    if constexpr (kFetch == 0 ? kFits : may_fetch(R, C, kUnitColumn)) return tile<Engine, R, C, kUnitColumn, kFetch>;
    return nullptr;
  };
  return {
      one(std::integral_constant<int, I / kMostColumns + 1>{}, std::integral_constant<int, I % kMostColumns + 1>{})...};
}
using Sizes = std::make_integer_sequence<int, kTileRows * kMostColumns>;

// By unit column, then by how much is fetched ahead: nothing, a row of a panel per step, what each of two tiles
// fetches of it, a line.
template <class Engine>
constexpr Tiles kTiles[2][4] = {{tiles<Engine, false, 0>(Sizes{}), tiles<Engine, false, kRowLines>(Sizes{}),
                                 tiles<Engine, false, kSharedLines>(Sizes{}), tiles<Engine, false, 1>(Sizes{})},
                                {tiles<Engine, true, 0>(Sizes{}), tiles<Engine, true, kRowLines>(Sizes{}),
                                 tiles<Engine, true, kSharedLines>(Sizes{}), tiles<Engine, true, 1>(Sizes{})}};

Tile of(const Tiles& all, int64_t rows, int64_t vectors) {
  return all[static_cast<size_t>((rows - 1) * kMostColumns + vectors - 1)];
}

// Brings the start of the coming tile nearer.
void fetch_rows(const float* start, ptrdiff_t start_row, int64_t rows, int64_t vectors) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < vectors * kLanes; j += kLineFloats) __builtin_prefetch(start + r * start_row + j, 1);
  }
}

}  // namespace

template <class Engine>
void multiply_tile(int64_t rows, int64_t vectors, Strided a, const float* b, ptrdiff_t ldb, int64_t k,
                   const float* start, ptrdiff_t start_row, float* c, ptrdiff_t ldc) {
  const Tiles& variants = kTiles<Engine>[a.column == 1][0];
  for (int64_t v = 0, nv; v < vectors; v += nv) {
    nv = even_part(vectors - v, kTileVectors);
    const ptrdiff_t j = v * kLanes;
    for (int64_t r = 0, nr; r < rows; r += nr) {
      nr = even_part(rows - r, kTileRows);
      const Strided part{a.data + r * a.row, a.row, a.column};
      of(variants, nr, nv)({part, b + j, ldb, k, start ? start + r * start_row + j : nullptr, start_row,
                            c + r * ldc + j, ldc, nullptr, 0});
    }
  }
}

namespace {

// A few rows by P whole panels that lie `stride` apart.
template <class Engine, int R, int P>
void across(const Operands& operands, ptrdiff_t stride) {
  const Operands o = operands;
  RegisterTile<R, kPanelVectors> acc[P] = {};
  if (o.start) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) load_tile<R, kPanelVectors>(acc[p], o.start + p * kPanel, o.start_row);
  }
  const float *a = o.a.data, *b = o.b;
  for (int64_t i = 0; i < o.steps; ++i, a += Engine::kNumbers, b += kPanel) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      if constexpr (!kReadsAhead) {
#pragma GCC unroll 4
        for (int line = 0; line < kRowLines; ++line) {
          __builtin_prefetch(b + p * stride + kFetchAhead + line * kLineFloats, 0, kFetchedTo);
        }
      }
      const float* panel = b + p * stride;
      Engine::template step<R, kPanelVectors>(acc[p], a, o.a.row, [&](int c) { return load(panel + c * kLanes); });
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) store_tile<R, kPanelVectors>(acc[p], o.c + p * kPanel, o.ldc);
}

using Across = void (*)(const Operands&, ptrdiff_t);
using AcrossSizes = std::make_integer_sequence<int, kAcrossRows * kAcrossPanels>;

// By rows and panels; null where registers would not do.
template <class Engine, int... I>
constexpr std::array<Across, sizeof...(I)> across_tiles(std::integer_sequence<int, I...>) {
  constexpr auto one = []<int R, int P>(std::integral_constant<int, R>, std::integral_constant<int, P>) -> Across {
    if constexpr (P <= panels_across(R)) return across<Engine, R, P>;
    return nullptr;
  };
  return {one(std::integral_constant<int, I / kAcrossPanels + 1>{},
              std::integral_constant<int, I % kAcrossPanels + 1>{})...};
}
template <class Engine>
constexpr auto kAcross = across_tiles<Engine>(AcrossSizes{});

}  // namespace

template <class Engine>
void multiply_across(int64_t rows, int64_t panels, Strided a, const float* first, ptrdiff_t stride, int64_t steps,
                     const float* start, ptrdiff_t start_row, float* c, ptrdiff_t ldc) {
  kAcross<Engine>[static_cast<size_t>((rows - 1) * kAcrossPanels + panels - 1)](
      {a, first, kPanel, steps, start, start_row, c, ldc, nullptr, 0}, stride);
}

template <class Engine>
void multiply_panel(int64_t rows, int64_t vectors, Strided a, ptrdiff_t a_tile, const float* panel, int64_t steps,
                    const float* next, const float* start, ptrdiff_t start_row, float* c, ptrdiff_t ldc) {
  if (rows == 0) return;
  // Few rows read a panel from memory, fastest line by line: their tiles take all of its columns. Some rows read it
  // from the second-level cache: their tiles of the same columns follow each other, and find these in the first-level
  // cache. Many rows wait for neither.
  const int64_t height = !a_tile && rows <= kFewRows ? kWideRows : kTileRows;
  const int64_t row_tiles = ceil_div(rows, height);
  const int64_t low = a_tile ? kTileRows : rows / row_tiles, higher = a_tile ? 0 : rows % row_tiles;
  const int64_t band = rows <= kSomeRows ? columns_of(low + (higher > 0 ? 1 : 0)) : vectors;
  const int64_t tiles = row_tiles * ceil_div(vectors, band);
  // A single tile runs at the speed of memory: its own panel is fetched shortly ahead. With more, the next panel is on
  // its way during all of them.
  const int64_t fetched = tiles == 1 && rows < kFetchingRows ? 0 : std::min<int64_t>(tiles, 3);
  const ptrdiff_t step = ceil_div(kPanel, tiles);
  const Tiles* const variants = kTiles<Engine>[a.column == 1];
  const float* ahead = tiles == 1 ? panel + kFetchAhead : next;
  for (int64_t first = 0; first < vectors; first += band) {
    const int64_t last = std::min(vectors, first + band);
    for (int64_t r = 0, nr, index = 0; r < rows; r += nr, ++index) {
      nr = std::min(rows - r, low + (index < higher ? 1 : 0));
      const Strided part{a.data + (a_tile ? index * a_tile : r * a.row), a.row, a.column};
      if (start_row) {
        fetch_rows(start + (r + nr) * start_row + first * kLanes, start_row, std::min(nr, rows - r - nr), last - first);
      }
      const int64_t most = columns_of(nr);
      for (int64_t v = first, nv; v < last; v += nv) {
        nv = std::min(most, last - v);
        const ptrdiff_t j = v * kLanes;
        const Tile multiply = of(variants[may_fetch(nr, nv, a.column == 1) ? fetched : 0], nr, nv);
        multiply({part, panel + j, kPanel, steps, start ? start + r * start_row + j : nullptr, start_row,
                  c + r * ldc + j, ldc, ahead, step});
      }
      ahead += steps * step;
    }
  }
}

template void multiply_tile<Floats>(int64_t, int64_t, Strided, const float*, ptrdiff_t, int64_t, const float*,
                                    ptrdiff_t, float*, ptrdiff_t);
template void multiply_tile<RegisterPairs>(int64_t, int64_t, Strided, const float*, ptrdiff_t, int64_t, const float*,
                                           ptrdiff_t, float*, ptrdiff_t);
template void multiply_across<Floats>(int64_t, int64_t, Strided, const float*, ptrdiff_t, int64_t, const float*,
                                      ptrdiff_t, float*, ptrdiff_t);
#if defined(__AVX512BF16__)
template void multiply_across<Paired>(int64_t, int64_t, Strided, const float*, ptrdiff_t, int64_t, const float*,
                                      ptrdiff_t, float*, ptrdiff_t);
#endif
template void multiply_panel<Floats>(int64_t, int64_t, Strided, ptrdiff_t, const float*, int64_t, const float*,
                                     const float*, ptrdiff_t, float*, ptrdiff_t);
#if !defined(__AMX_BF16__)
template void multiply_panel<Pairs>(int64_t, int64_t, Strided, ptrdiff_t, const float*, int64_t, const float*,
                                    const float*, ptrdiff_t, float*, ptrdiff_t);
#endif

double tile_work(Precision precision, int64_t count) {
  constexpr int64_t kDepth = 64, kRows = 4 * kTileRows;  // rows of the largest tile
  alignas(64) float a[kRows * kDepth], b[kDepth * kPanel], c[kRows * kPanel];
  std::fill(std::begin(a), std::end(a), 0.5f);
  std::fill(std::begin(b), std::end(b), 0.5f);
  const bool pairs = precision == Precision::kBfloat16 && kWords;
  const PairsScope scope;
  for (int64_t i = 0; i < count; ++i) {
    if (pairs) {
      multiply_panel<Pairs>(kRows, kPanelVectors, {a, kDepth, 1}, 0, b, kDepth, b, nullptr, 0, c, kPanel);
    } else {
      multiply_tile<Floats>(kRows, kPanelVectors, {a, kDepth, 1}, b, kPanel, kDepth, nullptr, 0, c, kPanel);
    }
  }
  return 2.0 * static_cast<double>(count * kRows * kPanel * kDepth) * (pairs ? 2 : 1);
}

}  // namespace gyre
