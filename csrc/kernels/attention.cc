#include "kernels/attention.h"

#include <algorithm>
#include <vector>

#include "kernels/attention_tile.h"
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

template <class T>
void store_rows(const AttentionShape& shape, std::span<const PagedRows> sequences, const float* k, int64_t ld_k,
                const float* v, int64_t ld_v, const PageMemory& pages) {
  constexpr int64_t kWord = components_per_word<T>;
  const int64_t d = shape.head_dim, page_numbers = shape.kv_heads * d * kPageTokens;
  const std::vector<PagedRows> tasks = cut(sequences);
  // Every word of a key goes to a cache line of its own: few rows are worth a thread.
  const int64_t grain = std::max<int64_t>(1, 1536 / (shape.kv_heads * d));
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
        T* to_k = static_cast<T*>(pages.keys) + page + h * d * kPageTokens + slot * kWord;
        T* to_v = static_cast<T*>(pages.values) + page + (h * kPageTokens + slot / kWord * kWord) * d + slot % kWord;
        for (int64_t j = 0; j < d; ++j) to_k[j / kWord * kWord * kPageTokens + j % kWord] = stored(from_k[h * d + j]);
        for (int64_t j = 0; j < d; ++j) to_v[j * kWord] = stored(from_v[h * d + j]);
      }
    }
  });
}

bool finite(const QueryTile& queries, int64_t depth) {
  vf zeros{};
  for (int64_t i = 0; i < queries.count; ++i) {
    for (int64_t j = 0; j < depth; j += kLanes) zeros += load_first(queries.o[i] + j, depth - j) * 0.0f;
  }
  return reduce_sum(zeros) == 0;
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
      attend_tile<T>(queries, d, keys, values);
      if (queries.count == 1 || finite(queries, d)) continue;
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
