#include <algorithm>
#include <vector>

#include "kernels/attention.h"
#include "kernels/bf16.h"
#include "kernels/panel.h"
#include "kernels/parallel.h"

namespace gyre {
namespace {

constexpr int64_t kKeyBlock = 64;    // keys per block of scores
constexpr int64_t kQueryBlock = 64;  // (row, head of the group) pairs per block, at least one row
constexpr int64_t kMostParts = 16;   // of a batch
constexpr int64_t kLeastPart = 128;  // rows

// Consecutive query rows, cut at the ends of segments into blocks, and the keys that they see among rows first_key ..
// row+count-1, of which the gradients are summed in partials[offset] (keys) and after it (values), by key/value head.
struct Part {
  int64_t row, count, first_key;
  size_t first_segment, offset;
  int64_t keys() const { return row + count - first_key; }
};

struct Problem {
  const AttentionShape& shape;
  const AttentionBackward& a;
  std::vector<Part> parts;
  size_t partial_floats;
  int64_t group, width;  // heads per key/value head, head_dim in whole vectors

  float* d_keys(std::vector<float>& partials, const Part& part, int64_t kv_head) const {
    return partials.data() + part.offset + static_cast<size_t>(2 * kv_head * part.keys() * width);
  }
};

// The parts depend on the batch alone, never on the number of threads.
Problem divide(const AttentionShape& shape, const AttentionBackward& a) {
  Problem p{shape, a, {}, 0, shape.heads / shape.kv_heads, round_up(shape.head_dim, kLanes)};
  const int64_t rows = a.segments.empty() ? 0 : a.segments.back().row + a.segments.back().count;
  const int64_t part_rows = std::max(kLeastPart, ceil_div(rows, kMostParts));
  size_t segment = 0;
  for (int64_t row = 0; row < rows; row += part_rows) {
    while (a.segments[segment].row + a.segments[segment].count <= row) ++segment;
    size_t root = segment;  // where the tree begins, and with it all that its rows see
    while (a.segments[root].parent >= 0) root = static_cast<size_t>(a.segments[root].parent);
    p.parts.push_back({row, std::min(part_rows, rows - row), a.segments[root].row, segment, p.partial_floats});
    p.partial_floats += static_cast<size_t>(2 * p.parts.back().keys() * shape.kv_heads * p.width);
  }
  return p;
}

// One key/value head of the keys of a part: rows copied side by side, padded to whole vectors.
struct Keys {
  int64_t first, ld;  // ld: columns of the transposes; a block of them may be read past the last key
  std::vector<float> rows, keys_t, values_t;  // [keys, width], [head_dim, ld] twice
};

// A block of queries of that head, [count, width] each.
struct Block {
  std::vector<float> q, d_o, dq, p, ds;
  std::vector<float> logsumexp, delta;  // delta = <d_o, o>
  std::vector<int64_t> limit;           // rows of keys up to here are seen
  std::vector<int64_t> start;           // positions of keys from here on
};

// Pieces of rows are too short for the processor to fetch the next ones by itself.
constexpr int64_t kRowsAhead = 4;
void fetch_piece(const float* piece, int64_t n) {
  for (int64_t j = 0; j < n; j += 16) __builtin_prefetch(piece + j);
}

void load_keys(const Problem& p, const Part& part, int64_t kv_head, Keys& keys) {
  const int64_t d = p.shape.head_dim, n = part.keys(), w = p.width;
  keys.first = part.first_key;
  keys.ld = round_up(n, kLanes) + kLanes;
  keys.rows.assign(static_cast<size_t>(n * w), 0.0f);
  keys.keys_t.assign(static_cast<size_t>(d * keys.ld), 0.0f);
  keys.values_t.assign(static_cast<size_t>(d * keys.ld), 0.0f);
  std::vector<float> value(static_cast<size_t>(d));
  float* v = value.data();
  for (int64_t i = 0; i < n; ++i) {
    float* k = &keys.rows[static_cast<size_t>(i * w)];
    fetch_piece(p.a.k + (keys.first + i + kRowsAhead) * p.a.ld_k + kv_head * d, d);
    fetch_piece(p.a.v + (keys.first + i + kRowsAhead) * p.a.ld_v + kv_head * d, d);
    std::copy_n(p.a.k + (keys.first + i) * p.a.ld_k + kv_head * d, d, k);
    std::copy_n(p.a.v + (keys.first + i) * p.a.ld_v + kv_head * d, d, v);
    if (p.a.precision == Precision::kBfloat16) round_row(k, d), round_row(v, d);
    for (int64_t j = 0; j < d; ++j) {
      keys.keys_t[static_cast<size_t>(j * keys.ld + i)] = k[j];
      keys.values_t[static_cast<size_t>(j * keys.ld + i)] = v[j];
    }
  }
}

// `position`: of the first row.
void load_queries(const Problem& p, int64_t row, int64_t position, int64_t count, int64_t kv_head, Block& b) {
  const int64_t d = p.shape.head_dim, w = p.width;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t r = row + i / p.group, head = kv_head * p.group + i % p.group;
    const float* d_o = p.a.d_o + r * p.a.ld_o + head * d;
    const float* o = p.a.o + r * p.a.ld_o + head * d;
    const float* q = p.a.q + r * p.a.ld_q + head * d;
    const auto at = static_cast<size_t>(i);
    fetch_piece(d_o + kRowsAhead * p.a.ld_o, d), fetch_piece(o + kRowsAhead * p.a.ld_o, d),
        fetch_piece(q + kRowsAhead * p.a.ld_q, d);
    float* own_q = &b.q[static_cast<size_t>(i * w)];
    std::copy_n(q, d, own_q);
    if (p.a.precision == Precision::kBfloat16) round_row(own_q, d);
    std::copy_n(d_o, d, &b.d_o[static_cast<size_t>(i * w)]);
    float delta = 0.0f;
    for (int64_t j = 0; j < d; ++j) delta += d_o[j] * o[j];
    b.delta[at] = delta;
    b.logsumexp[at] = p.a.logsumexp[r * p.shape.heads + head];
    b.limit[at] = r + 1;
    b.start[at] = p.shape.first_seen(position + i / p.group);
  }
  std::fill(b.dq.begin(), b.dq.end(), 0.0f);
}

// From scores in `p` and d_o · v in `ds`: probabilities and the gradient of the scores, zero for keys that a query does
// not see and past the block's last key. `position`: of the first key. Apart with and without a cap: what the two had
// in common would be rounded, where it is now part of a fused multiply-add.
template <bool kCapped>
void probabilities(const AttentionShape& shape, Block& b, int64_t count, int64_t first_key, int64_t position,
                   int64_t keys) {
  const float scale = shape.score_scale();
  [[maybe_unused]] const float cap = shape.cap;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    const auto hidden_keys = static_cast<int32_t>(std::clamp<int64_t>(b.start[at] - position, 0, keys));
    const auto seen_keys = static_cast<int32_t>(std::clamp<int64_t>(b.limit[at] - first_key, 0, keys));
    for (int64_t j = 0; j < keys; j += kLanes) {
      float* p = &b.p[static_cast<size_t>(i * kKeyBlock + j)];
      float* ds = &b.ds[static_cast<size_t>(i * kKeyBlock + j)];
      const vi key = lane_index() + static_cast<int32_t>(j), seen = (key < seen_keys) & (key >= hidden_keys);
      if constexpr (kCapped) {
        const vf bend = hyperbolic_tangent(load(p) * scale / cap);
        const vf value = seen ? exponential(cap * bend - b.logsumexp[at]) : vf{};
        store(p, value);
        store(ds, seen ? value * (load(ds) - b.delta[at]) * (1.0f - bend * bend) * scale : vf{});
      } else {
        const vf value = seen ? exponential(load(p) * scale - b.logsumexp[at]) : vf{};
        store(p, value);
        store(ds, seen ? value * (load(ds) - b.delta[at]) * scale : vf{});
      }
    }
  }
}

// The block's queries against `count` keys from row `first`, at `position`: adds to dq, d_keys and d_values.
void backward_block(const Problem& p, const Keys& keys, Block& b, int64_t queries, int64_t first, int64_t position,
                    int64_t count, float* d_keys, float* d_values) {
  const int64_t d = p.shape.head_dim, w = p.width, vectors = w / kLanes, at = first - keys.first;
  const int64_t key_vectors = ceil_div(count, kLanes);
  multiply_tile<Floats>(queries, key_vectors, {b.q.data(), w, 1}, &keys.keys_t[static_cast<size_t>(at)], keys.ld, d,
                        nullptr, 0, b.p.data(), kKeyBlock);
  multiply_tile<Floats>(queries, key_vectors, {b.d_o.data(), w, 1}, &keys.values_t[static_cast<size_t>(at)], keys.ld, d,
                        nullptr, 0, b.ds.data(), kKeyBlock);
  const auto make = p.shape.cap > 0 ? probabilities<true> : probabilities<false>;
  make(p.shape, b, queries, first, position, count);
  d_keys += at * w;
  d_values += at * w;
  multiply_tile<Floats>(count, vectors, {b.p.data(), 1, kKeyBlock}, b.d_o.data(), w, queries, d_values, w, d_values, w);
  multiply_tile<Floats>(count, vectors, {b.ds.data(), 1, kKeyBlock}, b.q.data(), w, queries, d_keys, w, d_keys, w);
  multiply_tile<Floats>(queries, vectors, {b.ds.data(), kKeyBlock, 1}, &keys.rows[static_cast<size_t>(at * w)], w,
                        count, b.dq.data(), w, b.dq.data(), w);
}

void backward_part(const Problem& p, const Part& part, int64_t kv_head, float* d_keys) {
  thread_local Keys keys;
  thread_local Block b;
  thread_local std::vector<size_t> path;
  load_keys(p, part, kv_head, keys);
  const int64_t d = p.shape.head_dim, w = p.width;
  float* d_values = d_keys + part.keys() * w;
  std::fill_n(d_keys, 2 * part.keys() * w, 0.0f);
  const int64_t block_rows = std::max<int64_t>(1, kQueryBlock / p.group), most = block_rows * p.group;
  for (auto* v : {&b.q, &b.d_o, &b.dq}) v->assign(static_cast<size_t>(most * w), 0.0f);
  for (auto* v : {&b.p, &b.ds}) v->assign(static_cast<size_t>(most * kKeyBlock), 0.0f);
  b.logsumexp.resize(static_cast<size_t>(most));
  b.delta.resize(static_cast<size_t>(most));
  b.limit.resize(static_cast<size_t>(most));
  b.start.resize(static_cast<size_t>(most));

  const int64_t part_end = part.row + part.count;
  size_t segment = part.first_segment;
  for (int64_t row = part.row, rows; row < part_end; row += rows) {
    while (p.a.segments[segment].row + p.a.segments[segment].count <= row) ++segment;
    const Segment& own = p.a.segments[segment];
    rows = std::min({block_rows, own.row + own.count - row, part_end - row});
    load_queries(p, row, own.position + row - own.row, rows * p.group, kv_head, b);
    path.clear();
    for (auto s = static_cast<int32_t>(segment); s >= 0; s = p.a.segments[static_cast<size_t>(s)].parent) {
      path.push_back(static_cast<size_t>(s));
    }
    for (auto s = path.rbegin(); s != path.rend(); ++s) {
      const Segment& seen = p.a.segments[*s];
      const int64_t end = std::min(seen.row + seen.count, row + rows);
      for (int64_t key = seen.row; key < end; key += kKeyBlock) {
        const int64_t count = std::min(kKeyBlock, end - key), position = seen.position + key - seen.row;
        if (position + count <= b.start[0]) continue;  // before all windows
        backward_block(p, keys, b, rows * p.group, key, position, count, d_keys, d_values);
      }
    }
    for (int64_t i = 0; i < rows * p.group; ++i) {
      const int64_t r = row + i / p.group, head = kv_head * p.group + i % p.group;
      std::copy_n(&b.dq[static_cast<size_t>(i * w)], d, p.a.dq + r * p.a.ld_d + head * d);
    }
  }
}

// The gradients of one row's keys and values: the sum over the parts that see it, in order.
void add_parts(const Problem& p, std::vector<float>& partials, int64_t row) {
  const int64_t d = p.shape.head_dim;
  bool first = true;
  for (const Part& part : p.parts) {
    if (row < part.first_key || row >= part.row + part.count) continue;
    for (int64_t h = 0; h < p.shape.kv_heads; ++h) {
      const float* d_key = p.d_keys(partials, part, h) + (row - part.first_key) * p.width;
      const float* d_value = d_key + part.keys() * p.width;
      float* dk = p.a.dk + row * p.a.ld_d + h * d;
      float* dv = p.a.dv + row * p.a.ld_d + h * d;
      for (int64_t j = 0; j < d; ++j) dk[j] = first ? d_key[j] : dk[j] + d_key[j];
      for (int64_t j = 0; j < d; ++j) dv[j] = first ? d_value[j] : dv[j] + d_value[j];
    }
    first = false;
  }
}

}  // namespace

void attend_backward(const AttentionShape& shape, const AttentionBackward& args, std::vector<float>& partials) {
  const Problem p = divide(shape, args);
  if (p.parts.empty()) return;
  if (partials.size() < p.partial_floats) partials.resize(p.partial_floats);
  const auto tasks = static_cast<int64_t>(p.parts.size()) * shape.kv_heads;
  parallel_for(tasks, 1, [&](int64_t t) {
    const int64_t task = tasks - 1 - t;  // the parts that see the most come last in a long sequence: begin with them
    const Part& part = p.parts[static_cast<size_t>(task / shape.kv_heads)];
    const int64_t kv_head = task % shape.kv_heads;
    backward_part(p, part, kv_head, p.d_keys(partials, part, kv_head));
  });
  const Part& last = p.parts.back();
  parallel_for(last.row + last.count, std::max<int64_t>(1, 8192 / (shape.kv_heads * p.width)),
               [&](int64_t row) { add_parts(p, partials, row); });
}

}  // namespace gyre
