#include "kernels/rope.h"

#include <algorithm>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/rowwise.h"
#include "kernels/vec.h"

namespace gyre {
namespace {

constexpr int64_t kGradientRows = 64;  // rows that share one partial norm gradient

// (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin); `direction` -1 turns back.
void rotate_halves(const float* cosines, const float* sines, float direction, int64_t half, float* x) {
  for (int64_t j = 0; j < half; j += kLanes) {
    const int64_t n = half - j;
    const vf c = load_first(cosines + j, n), s = load_first(sines + j, n) * direction;
    const vf x1 = load_first(x + j, n), x2 = load_first(x + half + j, n);
    const vf turned1 = x2 * s, turned2 = x1 * s;
    store_first(x + j, x1 * c - turned1, n);
    store_first(x + half + j, x2 * c + turned2, n);
  }
}

void rotate_neighbours(const float* cosines, const float* sines, float direction, int64_t pairs, float* x) {
  for (int64_t j = 0; j < pairs; ++j) {
    const float c = cosines[j], s = sines[j] * direction, x1 = x[2 * j], x2 = x[2 * j + 1];
    x[2 * j] = x1 * c - x2 * s;
    x[2 * j + 1] = x2 * c + x1 * s;
  }
}

void rotate_head(const HeadLayout& layout, const RopeTable* table, int32_t position, float direction, float* x) {
  if (table == nullptr) return;
  const auto rotate = layout.interleaved ? rotate_neighbours : rotate_halves;
  rotate(table->cosines(position), table->sines(position), direction, table->half(), x);
}

// Calls body(first component, components, norm, whether of the queries) for what one norm goes over: a head, or all of
// them together.
template <class Body>
void for_normed(const HeadLayout& layout, Body&& body) {
  const int64_t d = layout.head_dim;
  for (const bool is_query : {true, false}) {
    const int64_t heads = is_query ? layout.heads : layout.kv_heads, begin = is_query ? 0 : layout.heads * d;
    const int64_t each = layout.wide ? heads * d : d;
    for (int64_t at = 0; at < heads * d; at += each) {
      body(begin + at, each, is_query ? layout.q_norm : layout.k_norm, is_query);
    }
  }
}

}  // namespace

void rotate_heads(const HeadLayout& layout, const RopeTable* table, const int32_t* positions, int64_t rows,
                  const float* in, int64_t ld_in, float* out, int64_t ld_out) {
  const int64_t heads = layout.heads + layout.kv_heads, d = layout.head_dim;
  parallel_for(rows, std::max<int64_t>(1, 8192 / (heads * d)), [&](int64_t r) {
    for_normed(layout, [&](int64_t at, int64_t width, const float* norm, bool) {
      const float* x = in + r * ld_in + at;
      float* y = out + r * ld_out + at;
      if (norm) {
        rms_norm_row(x, width, norm, layout.eps, y);
      } else if (x != y) {
        std::copy(x, x + width, y);
      }
      for (int64_t h = 0; h < width; h += d) rotate_head(layout, table, positions[r], 1.0f, y + h);
    });
  });
}

void rotate_heads_backward(const HeadLayout& layout, const RopeTable* table, const int32_t* positions, int64_t rows,
                           const float* in, int64_t ld_in, float* d_heads, int64_t ld_d, float* dq_norm,
                           float* dk_norm) {
  const int64_t d = layout.head_dim, parts = ceil_div(rows, kGradientRows);
  const int64_t q_width = layout.wide ? layout.heads * d : d, k_width = layout.wide ? layout.kv_heads * d : d;
  const int64_t widths = q_width + k_width;
  std::vector<float> partial(static_cast<size_t>(parts * widths), 0.0f);
  parallel_for(parts, 1, [&](int64_t p) {
    float* dq_partial = &partial[static_cast<size_t>(p * widths)];
    float* dk_partial = dq_partial + q_width;
    std::vector<float> normed(static_cast<size_t>(std::max(q_width, k_width)));
    for (int64_t r = p * kGradientRows; r < std::min(rows, (p + 1) * kGradientRows); ++r) {
      for_normed(layout, [&](int64_t at, int64_t width, const float* norm, bool is_query) {
        const float* x = in + r * ld_in + at;
        float* dy = d_heads + r * ld_d + at;
        for (int64_t h = 0; h < width; h += d) rotate_head(layout, table, positions[r], -1.0f, dy + h);
        if (norm) {
          const float rstd = rms_norm_row(x, width, norm, layout.eps, normed.data());
          rms_norm_row_backward(x, rstd, norm, dy, width, false, dy, is_query ? dq_partial : dk_partial);
        }
      });
    }
  });
  if (!dq_norm) return;
  for (int64_t p = 0; p < parts; ++p) {
    const float* of = &partial[static_cast<size_t>(p * widths)];
    for (int64_t j = 0; j < q_width; ++j) dq_norm[j] += of[j];
    for (int64_t j = 0; j < k_width; ++j) dk_norm[j] += of[q_width + j];
  }
}

}  // namespace gyre
