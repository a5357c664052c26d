#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention.h"
#include "kernels/parallel.h"
#include "kernels/tile.h"

namespace gyre {
namespace {

constexpr int64_t kKeyBlock = 64;    // keys per block of scores
constexpr int64_t kQueryBlock = 64;  // (row, head of the group) pairs per block, at least one row

// One key/value head of one sequence: its rows copied side by side, padded to whole vectors.
struct Head {
  int64_t length, padded_length, width, padded_width;
  std::vector<float> keys, keys_t, values_t;  // [length, padded_width], [width, padded_length] twice
  std::vector<float> d_keys, d_values;        // [length, padded_width]
};

// A block of queries of that head, [count, padded_width] each.
struct Block {
  std::vector<float> q, d_o, dq, p, ds;
  std::vector<float> logsumexp, delta;  // delta = <d_o, o>
  std::vector<int64_t> limit;
};

void load_head(const AttentionShape& shape, const AttentionBackward& a, int64_t begin, int64_t length, int64_t kv_head,
               Head& h) {
  const int64_t d = shape.head_dim;
  h.length = length;
  h.padded_length = round_up(length, kLanes);
  h.width = d;
  h.padded_width = round_up(d, kLanes);
  const auto rows = static_cast<size_t>(length * h.padded_width), columns = static_cast<size_t>(d * h.padded_length);
  h.keys.assign(rows, 0.0f);
  h.d_keys.assign(rows, 0.0f);
  h.d_values.assign(rows, 0.0f);
  h.keys_t.assign(columns, 0.0f);
  h.values_t.assign(columns, 0.0f);
  for (int64_t i = 0; i < length; ++i) {
    const float* k = a.k + (begin + i) * a.ld_k + kv_head * d;
    const float* v = a.v + (begin + i) * a.ld_v + kv_head * d;
    std::copy_n(k, d, &h.keys[static_cast<size_t>(i * h.padded_width)]);
    for (int64_t j = 0; j < d; ++j) {
      h.keys_t[static_cast<size_t>(j * h.padded_length + i)] = k[j];
      h.values_t[static_cast<size_t>(j * h.padded_length + i)] = v[j];
    }
  }
}

// From scores in `p` and d_o · v in `ds`: probabilities and the gradient of the scores, zero for keys past a query's
// limit.
void probabilities(Block& b, int64_t count, int64_t first_key, int64_t keys, float scale) {
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    const auto visible = static_cast<int32_t>(std::clamp<int64_t>(b.limit[at] - first_key, 0, kKeyBlock));
    for (int64_t j = 0; j < keys; j += kLanes) {
      float* p = &b.p[static_cast<size_t>(i * kKeyBlock + j)];
      float* ds = &b.ds[static_cast<size_t>(i * kKeyBlock + j)];
      const vi seen = lane_index() + static_cast<int32_t>(j) < visible;
      const vf value = seen ? exponential(load(p) * scale - b.logsumexp[at]) : vf{};
      store(p, value);
      store(ds, seen ? value * (load(ds) - b.delta[at]) * scale : vf{});
    }
  }
}

void backward_head(const AttentionShape& shape, const AttentionBackward& a, int64_t begin, int64_t length,
                   int64_t kv_head) {
  thread_local Head h;
  thread_local Block b;
  load_head(shape, a, begin, length, kv_head, h);
  const int64_t d = shape.head_dim, w = h.padded_width, vectors = w / kLanes, group = shape.heads / shape.kv_heads;
  const int64_t block_rows = std::max<int64_t>(1, kQueryBlock / group), most = block_rows * group;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  for (auto* v : {&b.q, &b.d_o, &b.dq}) v->assign(static_cast<size_t>(most * w), 0.0f);
  for (auto* v : {&b.p, &b.ds}) v->assign(static_cast<size_t>(most * kKeyBlock), 0.0f);
  b.logsumexp.resize(static_cast<size_t>(most));
  b.delta.resize(static_cast<size_t>(most));
  b.limit.resize(static_cast<size_t>(most));

  for (int64_t row = 0; row < length; row += block_rows) {
    const int64_t rows = std::min(block_rows, length - row), count = rows * group;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t r = begin + row + i / group, head = kv_head * group + i % group;
      const float* d_o = a.d_o + r * a.ld_o + head * d;
      const float* o = a.o + r * a.ld_o + head * d;
      const auto at = static_cast<size_t>(i);
      std::copy_n(a.q + r * a.ld_q + head * d, d, &b.q[static_cast<size_t>(i * w)]);
      std::copy_n(d_o, d, &b.d_o[static_cast<size_t>(i * w)]);
      float delta = 0.0f;
      for (int64_t j = 0; j < d; ++j) delta += d_o[j] * o[j];
      b.delta[at] = delta;
      b.logsumexp[at] = a.logsumexp[r * shape.heads + head];
      b.limit[at] = row + i / group + 1;
    }
    std::fill(b.dq.begin(), b.dq.end(), 0.0f);
    for (int64_t key = 0; key < row + rows; key += kKeyBlock) {
      const int64_t keys = std::min(kKeyBlock, length - key), key_vectors = ceil_div(keys, kLanes);
      multiply_tile(count, key_vectors, {b.q.data(), w, 1}, &h.keys_t[static_cast<size_t>(key)], h.padded_length, d,
                    nullptr, 0, b.p.data(), kKeyBlock);
      multiply_tile(count, key_vectors, {b.d_o.data(), w, 1}, &h.values_t[static_cast<size_t>(key)], h.padded_length, d,
                    nullptr, 0, b.ds.data(), kKeyBlock);
      probabilities(b, count, key, key_vectors * kLanes, scale);
      float* d_values = &h.d_values[static_cast<size_t>(key * w)];
      float* d_keys = &h.d_keys[static_cast<size_t>(key * w)];
      multiply_tile(keys, vectors, {b.p.data(), 1, kKeyBlock}, b.d_o.data(), w, count, d_values, w, d_values, w);
      multiply_tile(keys, vectors, {b.ds.data(), 1, kKeyBlock}, b.q.data(), w, count, d_keys, w, d_keys, w);
      multiply_tile(count, vectors, {b.ds.data(), kKeyBlock, 1}, &h.keys[static_cast<size_t>(key * w)], w, keys,
                    b.dq.data(), w, b.dq.data(), w);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t r = begin + row + i / group, head = kv_head * group + i % group;
      std::copy_n(&b.dq[static_cast<size_t>(i * w)], d, a.dq + r * a.ld_d + head * d);
    }
  }
  for (int64_t i = 0; i < length; ++i) {
    std::copy_n(&h.d_keys[static_cast<size_t>(i * w)], d, a.dk + (begin + i) * a.ld_d + kv_head * d);
    std::copy_n(&h.d_values[static_cast<size_t>(i * w)], d, a.dv + (begin + i) * a.ld_d + kv_head * d);
  }
}

}  // namespace

void attend_backward(const AttentionShape& shape, const AttentionBackward& args) {
  const int64_t sequences = static_cast<int64_t>(args.offsets.size()) - 1;
  parallel_for(sequences * shape.kv_heads, 1, [&](int64_t t) {
    const auto s = static_cast<size_t>(t / shape.kv_heads);
    backward_head(shape, args, args.offsets[s], args.offsets[s + 1] - args.offsets[s], t % shape.kv_heads);
  });
}

}  // namespace gyre
