#include "kernels/attention.h"

#include <algorithm>
#include <vector>

#include "kernels/attention_tile.h"
#include "kernels/bf16.h"
#include "kernels/parallel.h"

namespace gyre {
namespace {

// The same rows, those of a page at a time.
std::vector<PagedRows> cut(std::span<const PagedRows> sequences) {
  std::vector<PagedRows> tasks;
  for (const PagedRows& rows : sequences) {
    for (int64_t first = 0, count; first < rows.count; first += count) {
      const int64_t position = rows.position + first;
      count = std::min(kPageTokens - position % kPageTokens, rows.count - first);
      tasks.push_back({rows.row + first, count, position, rows.pages});
    }
  }
  return tasks;
}

// Rows of one key/value head in a page of it, from `slot` on.
struct StoredRows {
  const float *k, *v;
  int64_t ld_k, ld_v, count, slot, depth;
};

// Every word of a key goes to a line of its own, which the processor would fetch one after the other.
void fetch_lines(float* to, int64_t lines) {
  for (int64_t i = 0; i < lines; ++i) __builtin_prefetch(to + i * kPageTokens, 1);
}

void store_head(const StoredRows& rows, float* keys, float* values) {
  const int64_t d = rows.depth;
  if (rows.count < kPageTokens) fetch_lines(keys, d);
  int64_t j = 0;
  for (; rows.count == kPageTokens && j + kLanes <= d; j += kLanes) {
    for (int64_t i = 0; i < kPageTokens; i += kLanes) {
      transpose_tile(rows.k + i * rows.ld_k + j, rows.ld_k, keys + j * kPageTokens + i, kPageTokens);
    }
  }
  for (int64_t i = 0; i < rows.count; ++i) {
    for (int64_t c = j; c < d; ++c) keys[c * kPageTokens + rows.slot + i] = rows.k[i * rows.ld_k + c];
    std::copy_n(rows.v + i * rows.ld_v, d, values + (rows.slot + i) * d);
  }
}

void store_head(const StoredRows& rows, uint16_t* keys, uint16_t* values) {
  const int64_t d = rows.depth;
  if (rows.count < kPageTokens) fetch_lines(reinterpret_cast<float*>(keys), d / 2);
  int64_t j = 0;
  for (; rows.count == kPageTokens && j + 2 * kLanes <= d; j += 2 * kLanes) {
    for (int64_t i = 0; i < kPageTokens; i += kLanes) {
      float words[kLanes * kLanes];
      for (int64_t r = 0; r < kLanes; ++r) join_pairs(rows.k + (i + r) * rows.ld_k + j, 2 * kLanes, words + r * kLanes);
      transpose_tile(words, kLanes, reinterpret_cast<float*>(keys) + j / 2 * kPageTokens + i, kPageTokens);
    }
  }
  for (int64_t i = 0; i < rows.count; ++i) {
    uint16_t* key = keys + 2 * (rows.slot + i);
    for (int64_t c = j; c < d; ++c) key[c / 2 * 2 * kPageTokens + c % 2] = to_bf16(rows.k[i * rows.ld_k + c]);
  }
  for (int64_t i = 0; i < rows.count;) {  // values of two rows share words
    const int64_t slot = rows.slot + i;
    const float* v = rows.v + i * rows.ld_v;
    uint16_t* to = values + slot / 2 * 2 * d;
    int64_t c = 0;
    const bool two = slot % 2 == 0 && i + 1 < rows.count;
    for (; two && c + kLanes <= d; c += kLanes) {
      store(reinterpret_cast<float*>(to) + c, joined(load(v + c), load(v + rows.ld_v + c)));
    }
    for (int64_t r = 0; r < (two ? 2 : 1); ++r) {
      for (int64_t at = c; at < d; ++at) to[2 * at + (slot + r) % 2] = to_bf16(v[r * rows.ld_v + at]);
    }
    i += two ? 2 : 1;
  }
}

template <class T>
void store_rows(const AttentionShape& shape, std::span<const PagedRows> sequences, const float* k, int64_t ld_k,
                const float* v, int64_t ld_v, const PageMemory& pages) {
  const int64_t d = shape.head_dim, head_numbers = d * kPageTokens;
  const std::vector<PagedRows> tasks = cut(sequences);
  const int64_t grain = std::max<int64_t>(1, 1536 / (shape.kv_heads * d));  // a line of the cache for each few numbers
  parallel_for(static_cast<int64_t>(tasks.size()), grain, [&](int64_t t) {
    const PagedRows& rows = tasks[static_cast<size_t>(t)];
    const int64_t page = rows.pages[rows.position / kPageTokens] * shape.kv_heads * head_numbers;
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      const int64_t at = page + h * head_numbers;
      store_head({k + rows.row * ld_k + h * d, v + rows.row * ld_v + h * d, ld_k, ld_v, rows.count,
                  rows.position % kPageTokens, d},
                 static_cast<T*>(pages.keys) + at, static_cast<T*>(pages.values) + at);
    }
  });
}

template <class T>
void attend_pages(const AttentionShape& shape, std::span<const PagedRows> sequences, const float* q, int64_t ld_q,
                  const PageMemory& pages, float* o, int64_t ld_o, float* logsumexp) {
  const std::vector<PagedRows> tasks = cut(sequences);
  if (tasks.empty()) return;
  int64_t seen = 0;
  for (const PagedRows& rows : sequences) seen += rows.count * (rows.position + rows.count);
  const int64_t d = shape.head_dim, head_numbers = d * kPageTokens;
  const int64_t group = shape.heads / shape.kv_heads, num_tasks = static_cast<int64_t>(tasks.size()) * shape.kv_heads;
  const int64_t task_work = std::max<int64_t>(1, 4 * seen * shape.heads * d / num_tasks);
  parallel_for(num_tasks, std::max<int64_t>(1, 200000 / task_work), [&](int64_t t) {
    const PagedRows& rows = tasks[static_cast<size_t>(t / shape.kv_heads)];
    const int64_t kv_head = t % shape.kv_heads, total = rows.count * group;
    for (int64_t first = 0; first < total; first += kQueriesAtOnce<T>) {
      QueryTile queries;
      queries.count = std::min(kQueriesAtOnce<T>, total - first);
      for (int64_t i = 0; i < queries.count; ++i) {  // consecutive (row, head of the group) pairs
        const int64_t row = (first + i) / group, head = kv_head * group + (first + i) % group;
        queries.q[i] = q + (rows.row + row) * ld_q + head * d;
        queries.o[i] = o + (rows.row + row) * ld_o + head * d;
        queries.logsumexp[i] = logsumexp ? logsumexp + (rows.row + row) * shape.heads + head : nullptr;
        queries.limit[i] = rows.position + row + 1;
        queries.start[i] = shape.first_seen(rows.position + row);
      }
      // Pages before a window take no part: they would add zeros.
      const int64_t skipped = queries.start[0] / kPageTokens;
      for (int64_t i = 0; i < queries.count; ++i) {
        queries.limit[i] -= skipped * kPageTokens, queries.start[i] -= skipped * kPageTokens;
      }
      queries.scale = shape.score_scale(), queries.cap = shape.cap;
      const auto head_pages = [&](const void* numbers) {
        return HeadPages<T>{static_cast<const T*>(numbers) + kv_head * head_numbers, shape.kv_heads * head_numbers,
                            rows.pages + skipped};
      };
      const HeadPages<T> keys = head_pages(pages.keys), values = head_pages(pages.values);
      if (attend_tile<T>(queries, d, keys, values) || queries.count == 1) continue;
      // Probabilities of keys that a query does not see are zeros, but values there may not be finite.
      for (int64_t i = 0; i < queries.count; ++i) attend_tile<T>(queries.only(i), d, keys, values);
    }
  });
}

}  // namespace

void store_kv(const AttentionShape& shape, std::span<const PagedRows> sequences, const float* k, int64_t ld_k,
              const float* v, int64_t ld_v, const PageMemory& pages) {
  const auto store = pages.precision == Precision::kBfloat16 ? store_rows<uint16_t> : store_rows<float>;
  store(shape, sequences, k, ld_k, v, ld_v, pages);
}

void attend(const AttentionShape& shape, std::span<const PagedRows> sequences, const float* q, int64_t ld_q,
            const PageMemory& pages, float* o, int64_t ld_o, float* logsumexp) {
  const auto attend_all = pages.precision == Precision::kBfloat16 ? attend_pages<uint16_t> : attend_pages<float>;
  attend_all(shape, sequences, q, ld_q, pages, o, ld_o, logsumexp);
}

}  // namespace gyre
