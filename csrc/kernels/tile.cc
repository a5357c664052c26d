#include "kernels/tile.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gyre {
namespace {

struct Operands {
  Strided a;
  const float* b;
  ptrdiff_t ldb;
  int64_t k;
  const float* start;
  ptrdiff_t start_row;
  float* c;
  ptrdiff_t ldc;
};

template <int R, int C, bool kUnitColumn>
void tile(const Operands& o) {
  vf acc[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) acc[r][c] = o.start ? load(o.start + r * o.start_row + c * kLanes) : vf{};
  }
  const ptrdiff_t row = o.a.row, column = kUnitColumn ? 1 : o.a.column, ldb = o.ldb;
  const float* a = o.a.data;
  const float* b = o.b;
  for (int64_t i = 0; i < o.k; ++i, a += column, b += ldb) {
    // The first pass over a panel runs at the speed of memory: fetch ahead of the hardware prefetcher.
    if constexpr (C == kTileVectors) {
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) __builtin_prefetch(b + 16 * ldb + c * kLanes);
    }
    vf w[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) w[c] = load(b + c * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const vf x = splat(a[r * row]);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) acc[r][c] += x * w[c];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) store(o.c + r * o.ldc + c * kLanes, acc[r][c]);
  }
}

using Tile = void (*)(const Operands&);

template <bool kUnitColumn, int... I>
constexpr std::array<Tile, sizeof...(I)> tiles(std::integer_sequence<int, I...>) {
  return {tile<I / kTileVectors + 1, I % kTileVectors + 1, kUnitColumn>...};
}
using Variants = std::make_integer_sequence<int, kTileRows * kTileVectors>;
constexpr auto kUnitTiles = tiles<true>(Variants{});
constexpr auto kStridedTiles = tiles<false>(Variants{});

// Size of the next of the even parts that `left` is cut into, none above `most`.
int64_t even_part(int64_t left, int64_t most) { return ceil_div(left, ceil_div(left, most)); }

}  // namespace

void multiply_tile(int64_t rows, int64_t vectors, Strided a, const float* b, ptrdiff_t ldb, int64_t k,
                   const float* start, ptrdiff_t start_row, float* c, ptrdiff_t ldc) {
  const auto& variants = a.column == 1 ? kUnitTiles : kStridedTiles;
  for (int64_t v = 0, nv; v < vectors; v += nv) {
    nv = even_part(vectors - v, kTileVectors);
    const ptrdiff_t j = v * kLanes;
    for (int64_t r = 0, nr; r < rows; r += nr) {
      nr = even_part(rows - r, kTileRows);
      const Strided part{a.data + r * a.row, a.row, a.column};
      variants[(nr - 1) * kTileVectors + nv - 1](
          {part, b + j, ldb, k, start ? start + r * start_row + j : nullptr, start_row, c + r * ldc + j, ldc});
    }
  }
}

}  // namespace gyre
