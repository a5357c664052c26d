#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention_tile.h"
#include "kernels/buffer.h"
#include "kernels/panel.h"
#include "kernels/parallel.h"

namespace gyre {
namespace {

constexpr int64_t kTaskRows = 16;

// The same rows, at most kTaskRows at a time.
std::vector<PagedRows> cut(std::span<const PagedRows> sequences) {
  std::vector<PagedRows> tasks;
  for (const PagedRows& rows : sequences) {
    for (int64_t first = 0; first < rows.count; first += kTaskRows) {
      tasks.push_back({rows.row + first, std::min(kTaskRows, rows.count - first), rows.position + first, rows.pages});
    }
  }
  return tasks;
}

// Turns the first n scores into exp(score - max) in place. Returns the sum; `max` is the largest score.
float exponentiate(float* scores, int64_t n, float* max) {
  const vf lowest = splat(-std::numeric_limits<float>::infinity());
  const int64_t whole = n / kLanes * kLanes;
  vf best = lowest;
  for (int64_t j = 0; j < whole; j += kLanes) best = maximum(load(scores + j), best);
  if (whole < n) {  // scores past n belong to keys that this row must not see
    const vi past = lane_index() >= static_cast<int32_t>(n - whole);
    store(scores + whole, past ? lowest : load(scores + whole));
    best = maximum(load(scores + whole), best);
  }
  *max = reduce_max(best);
  vf sum{};
  for (int64_t j = 0; j < n; j += kLanes) {
    const vf p = exponential(load(scores + j) - *max);
    store(scores + j, p);
    sum += p;
  }
  return reduce_sum(sum);
}

struct Call {
  AttentionShape shape;
  const float* q;
  int64_t ld_q;
  const PageMemory& pages;
  float* o;
  int64_t ld_o;
  float* logsumexp;
};

// A register tile of queries that share one key/value head: consecutive (row, head of the group) pairs.
struct Queries {
  int64_t count;
  int64_t row[kTileRows], head[kTileRows];
  int64_t limit[kTileRows];  // keys each may see, ascending
};

template <class T>
void attend_tile(const Call& c, const int32_t* pages, int64_t kv_head, const Queries& queries) {
  thread_local Buffer scratch;
  const int64_t d = c.shape.head_dim, padded = round_up(d, kLanes);
  const ptrdiff_t page_numbers = c.shape.kv_heads * d * kPageTokens, at = kv_head * d * kPageTokens;
  const int64_t n = queries.count, shared = queries.limit[0];
  const int64_t num_pages = ceil_div(queries.limit[n - 1], kPageTokens), ld = num_pages * kPageTokens;
  scratch.reserve(n * (ld + 2 * padded));
  float* scores = scratch.data();
  float* sums = scores + n * ld;
  float* q = sums + n * padded;

  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  for (int64_t i = 0; i < n; ++i) {
    const float* from = c.q + queries.row[i] * c.ld_q + queries.head[i] * d;
    for (int64_t j = 0; j < d; ++j) q[i * padded + j] = from[j] * scale;
  }
  score_keys(n, q, padded, d, HeadPages<T>{static_cast<const T*>(c.pages.keys) + at, page_numbers, pages}, num_pages,
             scores, ld);
  float max[kTileRows], total[kTileRows];
  for (int64_t i = 0; i < n; ++i) total[i] = exponentiate(scores + i * ld, queries.limit[i], &max[i]);

  std::fill(sums, sums + n * padded, 0.0f);
  const HeadPages<T> values{static_cast<const T*>(c.pages.values) + at, page_numbers, pages};
  add_values(n, scores, ld, values, 0, shared, d, sums, padded);  // keys that every query sees, then each query's own
  for (int64_t i = 0; i < n; ++i) {
    add_values(1, scores + i * ld, ld, values, shared, queries.limit[i], d, sums + i * padded, padded);
  }
  for (int64_t i = 0; i < n; ++i) {
    float* to = c.o + queries.row[i] * c.ld_o + queries.head[i] * d;
    const float inverse = 1.0f / total[i];
    for (int64_t j = 0; j < d; ++j) to[j] = sums[i * padded + sum_place<T>(j, d)] * inverse;
    if (c.logsumexp) c.logsumexp[queries.row[i] * c.shape.heads + queries.head[i]] = max[i] + std::log(total[i]);
  }
}

template <class T>
void store_rows(const AttentionShape& shape, std::span<const PagedRows> sequences, const float* k, int64_t ld_k,
                const float* v, int64_t ld_v, T* key_pages, T* value_pages) {
  constexpr int64_t kWord = components_per_word<T>;
  const int64_t d = shape.head_dim, page_numbers = shape.kv_heads * d * kPageTokens;
  const std::vector<PagedRows> tasks = cut(sequences);
  const int64_t grain = std::max<int64_t>(1, 8192 / (shape.kv_heads * d));
  const auto stored = [](float x) {
    if constexpr (sizeof(T) == 2) {
      return to_bf16(x);
    } else {
      return x;
    }
  };
  parallel_for(static_cast<int64_t>(tasks.size()), grain, [&](int64_t t) {
    const PagedRows& rows = tasks[static_cast<size_t>(t)];
    for (int64_t i = 0; i < rows.count; ++i) {
      const int64_t position = rows.position + i, slot = position % kPageTokens;
      const int64_t page = rows.pages[position / kPageTokens] * page_numbers;
      const float* from_k = k + (rows.row + i) * ld_k;
      const float* from_v = v + (rows.row + i) * ld_v;
      for (int64_t h = 0; h < shape.kv_heads; ++h) {
        T* to_k = key_pages + page + h * d * kPageTokens + slot * kWord;
        T* to_v = value_pages + page + (h * kPageTokens + slot) * d;
        for (int64_t j = 0; j < d; ++j) to_k[j / kWord * kWord * kPageTokens + j % kWord] = stored(from_k[h * d + j]);
        for (int64_t j = 0; j < d; ++j) to_v[j] = stored(from_v[h * d + j]);
      }
    }
  });
}

}  // namespace

void store_kv(const AttentionShape& shape, std::span<const PagedRows> sequences, const float* k, int64_t ld_k,
              const float* v, int64_t ld_v, const PageMemory& pages) {
  if (pages.precision == Precision::kBfloat16) {
    store_rows(shape, sequences, k, ld_k, v, ld_v, static_cast<uint16_t*>(pages.keys),
               static_cast<uint16_t*>(pages.values));
  } else {
    store_rows(shape, sequences, k, ld_k, v, ld_v, static_cast<float*>(pages.keys), static_cast<float*>(pages.values));
  }
}

void attend(const AttentionShape& shape, std::span<const PagedRows> sequences, const float* q, int64_t ld_q,
            const PageMemory& pages, float* o, int64_t ld_o, float* logsumexp) {
  const Call call{shape, q, ld_q, pages, o, ld_o, logsumexp};
  const auto tile = pages.precision == Precision::kBfloat16 ? attend_tile<uint16_t> : attend_tile<float>;
  const std::vector<PagedRows> tasks = cut(sequences);
  int64_t keys = 0;
  for (const PagedRows& rows : sequences) keys += rows.count * (rows.position + rows.count);
  if (tasks.empty()) return;
  const int64_t group = shape.heads / shape.kv_heads, num_tasks = static_cast<int64_t>(tasks.size()) * shape.kv_heads;
  const int64_t task_work = std::max<int64_t>(1, 4 * keys * shape.heads * shape.head_dim / num_tasks);
  parallel_for(num_tasks, std::max<int64_t>(1, 200000 / task_work), [&](int64_t t) {
    const PagedRows& rows = tasks[static_cast<size_t>(t / shape.kv_heads)];
    const int64_t kv_head = t % shape.kv_heads, total = rows.count * group;
    for (int64_t first = 0; first < total; first += kTileRows) {
      Queries queries;
      queries.count = std::min<int64_t>(kTileRows, total - first);
      for (int64_t i = 0; i < queries.count; ++i) {
        const int64_t row = (first + i) / group;
        queries.row[i] = rows.row + row;
        queries.head[i] = kv_head * group + (first + i) % group;
        queries.limit[i] = rows.position + row + 1;
      }
      tile(call, rows.pages, kv_head, queries);
    }
  });
}

}  // namespace gyre
