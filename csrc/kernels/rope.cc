#include "kernels/rope.h"

#include <algorithm>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/rowwise.h"
#include "kernels/vec.h"

namespace gyre {
namespace {

constexpr int64_t kPartialRows = 64;  // rows that share one partial norm gradient

// (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin); `direction` -1 turns back.
void rotate_head(const float* cosines, const float* sines, float direction, int64_t half, float* x) {
  for (int64_t j = 0; j < half; j += kLanes) {
    const int64_t n = half - j;
    const vf c = load_first(cosines + j, n), s = load_first(sines + j, n) * direction;
    const vf x1 = load_first(x + j, n), x2 = load_first(x + half + j, n);
    const vf turned1 = x2 * s, turned2 = x1 * s;
    store_first(x + j, x1 * c - turned1, n);
    store_first(x + half + j, x2 * c + turned2, n);
  }
}

}  // namespace

void rotate_heads(const HeadLayout& layout, const RopeTable& table, const int32_t* positions, int64_t rows,
                  const float* in, int64_t ld_in, float* out, int64_t ld_out) {
  const int64_t heads = layout.heads + layout.kv_heads, d = layout.head_dim;
  parallel_for(rows, std::max<int64_t>(1, 8192 / (heads * d)), [&](int64_t r) {
    const float* cosines = table.cosines(positions[r]);
    const float* sines = table.sines(positions[r]);
    for (int64_t h = 0; h < heads; ++h) {
      const float* x = in + r * ld_in + h * d;
      float* y = out + r * ld_out + h * d;
      const float* norm = h < layout.heads ? layout.q_norm : layout.k_norm;
      if (norm) {
        rms_norm_row(x, d, norm, layout.eps, y);
      } else if (x != y) {
        std::copy(x, x + d, y);
      }
      rotate_head(cosines, sines, 1.0f, d / 2, y);
    }
  });
}

void rotate_heads_backward(const HeadLayout& layout, const RopeTable& table, const int32_t* positions, int64_t rows,
                           const float* in, int64_t ld_in, float* d_heads, int64_t ld_d, float* dq_norm,
                           float* dk_norm) {
  const int64_t heads = layout.heads + layout.kv_heads, d = layout.head_dim, parts = ceil_div(rows, kPartialRows);
  std::vector<float> partial(static_cast<size_t>(parts * 2 * d), 0.0f);
  parallel_for(parts, 1, [&](int64_t p) {
    float* dq_partial = &partial[static_cast<size_t>(p * 2 * d)];
    float* dk_partial = dq_partial + d;
    std::vector<float> normed(static_cast<size_t>(d));
    for (int64_t r = p * kPartialRows; r < std::min(rows, (p + 1) * kPartialRows); ++r) {
      for (int64_t h = 0; h < heads; ++h) {
        const bool is_query = h < layout.heads;
        const float* x = in + r * ld_in + h * d;
        float* dy = d_heads + r * ld_d + h * d;
        rotate_head(table.cosines(positions[r]), table.sines(positions[r]), -1.0f, d / 2, dy);
        if (const float* norm = is_query ? layout.q_norm : layout.k_norm) {
          const float rstd = rms_norm_row(x, d, norm, layout.eps, normed.data());
          rms_norm_row_backward(x, rstd, norm, dy, d, false, dy, is_query ? dq_partial : dk_partial);
        }
      }
    }
  });
  if (!dq_norm) return;
  for (int64_t p = 0; p < parts; ++p) {
    for (int64_t j = 0; j < d; ++j) dq_norm[j] += partial[static_cast<size_t>(p * 2 * d + j)];
    for (int64_t j = 0; j < d; ++j) dk_norm[j] += partial[static_cast<size_t>((p * 2 + 1) * d + j)];
  }
}

}  // namespace gyre
