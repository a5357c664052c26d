#include "kernels/attention_tile.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/register_tile.h"
#include "kernels/tile.h"

namespace gyre {
namespace {

constexpr int64_t kPageVectors = kPageTokens / kLanes;  // of keys
static_assert(kPageTokens % kLanes == 0);
constexpr int64_t kAhead = 2;  // pages of values between what is multiplied and what is fetched

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kValueRows = 6, kValueVectors = 4;
#else
constexpr int kValueRows = kTileRows, kValueVectors = kTileVectors;
#endif

struct ScoreTile {
  const float* q;
  ptrdiff_t ldq;
  int64_t depth;
  const float* keys[kTileVectors];   // one vector of keys each
  const float* ahead[kTileVectors];  // as far along as keys
  float* scores;
  ptrdiff_t ldc;
};

template <int R, int C>
void score_tile(const ScoreTile& t) {
  RegisterTile<R, C> acc = {};
  for (int64_t i = 0; i < t.depth; ++i) {
    vf w[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      w[c] = load(t.keys[c] + i * kPageTokens);
      __builtin_prefetch(t.ahead[c] + i * kPageTokens);
    }
    add_products<R, C>(acc, t.q + i, t.ldq, w);
  }
  store_tile<R, C>(acc, t.scores, t.ldc);
}

struct ValueTile {
  const float* p;
  ptrdiff_t ldp;
  HeadPages values;  // data at the tile's first column
  int64_t first, last, width;
  float* sums;
  ptrdiff_t ldc;
};

template <int R, int C>
void value_tile(const ValueTile& t) {
  RegisterTile<R, C> acc;
  load_tile<R, C>(acc, t.sums, t.ldc);
  const int64_t last_page = (t.last - 1) / kPageTokens;
  for (int64_t key = t.first; key < t.last;) {
    const int64_t page = key / kPageTokens, slot = key % kPageTokens;
    const int64_t end = std::min(t.last, key + kPageTokens - slot);
    const float* v = t.values.page(page) + slot * t.width;
    const float* ahead = t.values.page(std::min(page + kAhead, last_page)) + slot * t.width;
    for (; key < end; ++key, v += t.width, ahead += t.width) {
      vf w[C];
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        w[c] = load(v + c * kLanes);
        __builtin_prefetch(ahead + c * kLanes);
      }
      add_products<R, C>(acc, t.p + key, t.ldp, w);
    }
  }
  store_tile<R, C>(acc, t.sums, t.ldc);
}

template <int... I>
constexpr std::array<void (*)(const ScoreTile&), sizeof...(I)> score_tiles(std::integer_sequence<int, I...>) {
  return {score_tile<I / kTileVectors + 1, I % kTileVectors + 1>...};
}
constexpr auto kScoreTiles = score_tiles(std::make_integer_sequence<int, kTileRows * kTileVectors>{});

template <int... I>
constexpr std::array<void (*)(const ValueTile&), sizeof...(I)> value_tiles(std::integer_sequence<int, I...>) {
  return {value_tile<I / kValueVectors + 1, I % kValueVectors + 1>...};
}
constexpr auto kValueTiles = value_tiles(std::make_integer_sequence<int, kValueRows * kValueVectors>{});

}  // namespace

void score_keys(int64_t rows, const float* q, ptrdiff_t ldq, int64_t depth, const HeadPages& keys, int64_t num_pages,
                float* scores, ptrdiff_t ldc) {
  const int64_t vectors = num_pages * kPageVectors;
  const auto at = [&](int64_t v) { return keys.page(v / kPageVectors) + v % kPageVectors * kLanes; };
  for (int64_t v = 0, nv; v < vectors; v += nv) {
    nv = std::min<int64_t>(kTileVectors, vectors - v);
    ScoreTile tile{};
    tile.ldq = ldq;
    tile.depth = depth;
    tile.ldc = ldc;
    for (int64_t c = 0; c < nv; ++c) {
      tile.keys[c] = at(v + c);
      tile.ahead[c] = at(std::min(v + nv + c, vectors - 1));
    }
    for (int64_t r = 0, nr; r < rows; r += nr) {
      nr = even_part(rows - r, kTileRows);
      tile.q = q + r * ldq;
      tile.scores = scores + r * ldc + v * kLanes;
      kScoreTiles[static_cast<size_t>((nr - 1) * kTileVectors + nv - 1)](tile);
    }
  }
}

void add_values(int64_t rows, const float* p, ptrdiff_t ldp, const HeadPages& values, int64_t first, int64_t last,
                int64_t width, float* sums, ptrdiff_t ldc) {
  if (first >= last) return;
  const int64_t vectors = ceil_div(width, kLanes);
  for (int64_t r = 0, nr; r < rows; r += nr) {
    nr = even_part(rows - r, kValueRows);
    for (int64_t v = 0, nv; v < vectors; v += nv) {
      nv = even_part(vectors - v, kValueVectors);
      kValueTiles[static_cast<size_t>((nr - 1) * kValueVectors + nv - 1)](
          {p + r * ldp,
           ldp,
           {values.data + v * kLanes, values.stride, values.table},
           first,
           last,
           width,
           sums + r * ldc + v * kLanes,
           ldc});
    }
  }
}

}  // namespace gyre
