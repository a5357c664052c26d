#include "kernels/tile.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/register_tile.h"

namespace gyre {
namespace {

constexpr int kLineFloats = 16;  // a cache line of 64 bytes
constexpr int kRowLines = kPanel / kLineFloats;

struct Operands {
  Strided a;
  const float* b;
  ptrdiff_t ldb;
  int64_t k;
  const float* start;
  ptrdiff_t start_row;
  float* c;
  ptrdiff_t ldc;
  const float* ahead;  // what to fetch during the tile, `ahead_step` floats further with every i
  ptrdiff_t ahead_step;
};

// kFetch cache lines are fetched ahead per step; b is a panel then.
template <int R, int C, bool kUnitColumn, int kFetch>
void tile(const Operands& operands) {
  const Operands o = operands;  // c cannot overwrite a copy, so its fields stay in registers
  RegisterTile<R, C> acc = {};
  if (o.start) load_tile<R, C>(acc, o.start, o.start_row);
  const ptrdiff_t row = o.a.row, column = kUnitColumn ? 1 : o.a.column, ldb = kFetch ? kPanel : o.ldb;
  const float* a = o.a.data;
  const float *b = o.b, *ahead = o.ahead;
  const ptrdiff_t ahead_step = o.ahead_step;
  for (int64_t i = 0; i < o.k; ++i, a += column, b += ldb) {
#pragma GCC unroll 4
    for (int line = 0; line < kFetch; ++line) __builtin_prefetch(ahead + line * kLineFloats);
    if constexpr (kFetch > 0) ahead += ahead_step;
    vf w[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) w[c] = load(b + c * kLanes);
    add_products<R, C>(acc, a, row, w);
  }
  store_tile<R, C>(acc, o.c, o.ldc);
}

using Tile = void (*)(const Operands&);

template <bool kUnitColumn, int kFetch, int... I>
constexpr std::array<Tile, sizeof...(I)> tiles(std::integer_sequence<int, I...>) {
  return {tile<I / kTileVectors + 1, I % kTileVectors + 1, kUnitColumn, kFetch>...};
}
using Variants = std::make_integer_sequence<int, kTileRows * kTileVectors>;
// By unit column, then by how much is fetched ahead: nothing, a line per step, a row of a panel per step.
constexpr std::array<Tile, kTileRows * kTileVectors> kTiles[2][3] = {
    {tiles<false, 0>(Variants{}), tiles<false, 1>(Variants{}), tiles<false, kRowLines>(Variants{})},
    {tiles<true, 0>(Variants{}), tiles<true, 1>(Variants{}), tiles<true, kRowLines>(Variants{})}};

// Brings the start of the coming tile nearer.
void fetch_rows(const float* start, ptrdiff_t start_row, int64_t rows, int64_t vectors) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < vectors * kLanes; j += kLineFloats) __builtin_prefetch(start + r * start_row + j, 1);
  }
}

}  // namespace

void multiply_tile(int64_t rows, int64_t vectors, Strided a, const float* b, ptrdiff_t ldb, int64_t k,
                   const float* start, ptrdiff_t start_row, float* c, ptrdiff_t ldc) {
  const auto& variants = kTiles[a.column == 1][0];
  for (int64_t v = 0, nv; v < vectors; v += nv) {
    nv = even_part(vectors - v, kTileVectors);
    const ptrdiff_t j = v * kLanes;
    for (int64_t r = 0, nr; r < rows; r += nr) {
      nr = even_part(rows - r, kTileRows);
      const Strided part{a.data + r * a.row, a.row, a.column};
      variants[static_cast<size_t>((nr - 1) * kTileVectors + nv - 1)]({part, b + j, ldb, k,
                                                                       start ? start + r * start_row + j : nullptr,
                                                                       start_row, c + r * ldc + j, ldc, nullptr, 0});
    }
  }
}

void multiply_panel(int64_t rows, int64_t vectors, Strided a, ptrdiff_t a_tile, const float* panel, int64_t k,
                    const float* start, ptrdiff_t start_row, float* c, ptrdiff_t ldc) {
  const int64_t tiles = ceil_div(rows, kTileRows);
  const float* next = panel + k * kPanel;
  const ptrdiff_t step = tiles ? ceil_div(kPanel, tiles) : 0;
  // A single tile runs at the speed of memory: its own panel is fetched shortly ahead. With more, the next panel is on
  // its way during all of them.
  const auto& variants = kTiles[a.column == 1][tiles < 3 ? 2 : 1];
  for (int64_t r = 0, nr, tile = 0; r < rows; r += nr, ++tile) {
    nr = a_tile ? std::min<int64_t>(kTileRows, rows - r) : even_part(rows - r, kTileRows);
    const Strided part{a.data + (a_tile ? tile * a_tile : r * a.row), a.row, a.column};
    if (start_row) fetch_rows(start + (r + nr) * start_row, start_row, std::min(nr, rows - r - nr), vectors);
    for (int64_t v = 0, nv; v < vectors; v += nv) {
      nv = even_part(vectors - v, kTileVectors);
      const ptrdiff_t j = v * kLanes;
      variants[static_cast<size_t>((nr - 1) * kTileVectors + nv - 1)](
          {part, panel + j, kPanel, k, start ? start + r * start_row + j : nullptr, start_row, c + r * ldc + j, ldc,
           tiles == 1 ? panel + 16 * kPanel : next + tile * k * step, step});
    }
  }
}

}  // namespace gyre
