// attend_tile<uint16_t> by the matrix unit.
//
// The order of a score: 32 components at a time, as of any product (precision.h). Of a sum of values: for every page
// the same. Pages after a query's own last one add zeros.
#if defined(__AMX_BF16__)
#include <algorithm>
#include <utility>

#include "kernels/attention_tile.h"
#include "kernels/buffer.h"
#include "kernels/matrix_unit.h"

namespace gyre {
namespace {

constexpr int64_t kPageWords = kPageTokens / 2;  // of a row of probabilities
static_assert(kPageWords <= kChainSteps && kMostQueries == 16);

// Keys and values as the products take them: words, 16 of a page's keys or `depth` components of two keys in a row.
struct Words {
  const HeadPages<uint16_t>& pages;
  int64_t count;
  const float* last;  // stands for the last page; null: it stands for itself
  const float* page(int64_t i) const {
    return last && i == count - 1 ? last : reinterpret_cast<const float*>(pages.page(i));
  }
};

constexpr int64_t kPagesAhead = 4;  // pages between what is multiplied and what is fetched

// The next lines from `words` on: a few after each product, as many at once would be waited for.
[[gnu::always_inline]] inline void fetch(const float*& words, int64_t lines) {
  for (int64_t i = 0; i < lines; ++i, words += 16) __builtin_prefetch(words, 0, 3);
}

// Scores of one or two pages by `blocks` blocks of `steps` words each.
template <int kPages>
void score_pages(const float* q, ptrdiff_t ldq, int64_t steps, int64_t blocks, const float* first, const float* second,
                 bool resume, float* scores, ptrdiff_t ldc, const float* first_ahead, const float* second_ahead) {
  const float *const pages[] = {first, second}, *ahead[] = {first_ahead, second_ahead};
  unrolled<kPages>([&](auto i) {
    if (resume) {
      load_matrix<i>(scores + i * kPageTokens, ldc);
    } else {
      clear_matrix<i>();
    }
  });
  for (int64_t at = 0; at < blocks * steps; at += steps) {
    load_matrix<4>(q + at, ldq);
    unrolled<kPages>([&](auto i) {
      load_matrix<6 + i>(pages[i] + at * kPageTokens, kPageTokens);
      multiply_matrices<i, 4, 6 + i>();
      fetch(ahead[i], steps);
    });
  }
  unrolled<kPages>([&](auto i) { store_matrix<i>(scores + i * kPageTokens, ldc); });
}

void score_words(int64_t rows, const float* q, ptrdiff_t ldq, int64_t words, const Words& keys, const Words& values,
                 float* scores, ptrdiff_t ldc) {
  const PairsScope registers;
  const int64_t whole = words / kChainSteps, rest = words % kChainSteps;
  for (int64_t begin = 0; begin < words; begin = begin == 0 && whole > 0 ? whole * kChainSteps : words) {
    const bool blocks = begin == 0 && whole > 0;
    const int64_t steps = blocks ? kChainSteps : rest, count = blocks ? whole : 1;
    const auto page = [&](int64_t p) {
      return p < keys.count ? keys.page(p) + begin * kPageTokens
                            : values.page(std::min(p - keys.count, keys.count - 1));
    };
    set_shapes({rows, steps, 4, 2});
    for (int64_t p = 0; p < keys.count; p += 2) {
      const auto score = p + 1 < keys.count ? score_pages<2> : score_pages<1>;
      score(q + begin, ldq, steps, count, page(p), page(p + 1), begin > 0, scores + p * kPageTokens, ldc,
            page(p + kPagesAhead), page(p + kPagesAhead + 1));
    }
  }
}

// kVectors vectors of columns of the sums over all pages, from column `at` on. p: words, `row` of them from one query's
// to the next's.
template <int kVectors>
void sum_pages(const float* p, ptrdiff_t row, const Words& values, int64_t depth, int64_t at, float* sums,
               ptrdiff_t ldc) {
  unrolled<kVectors>([&](auto i) { clear_matrix<i>(); });
  for (int64_t i = 0; i < values.count; ++i) {
    const float *v = values.page(i) + at,
                *ahead = values.page(std::min(i + kPagesAhead, values.count - 1)) + at * kPageWords;
    load_matrix<4>(p + i * kPageWords, row);
    unrolled<kVectors>([&](auto k) {  // two registers in turn
      load_matrix<6 + k % 2>(v + k * kLanes, depth);
      multiply_matrices<k, 4, 6 + k % 2>();
      fetch(ahead, 8);
    });
  }
  unrolled<kVectors>([&](auto i) { store_matrix<i>(sums + i * kLanes, ldc); });
}

void sum_words(int64_t rows, const float* p, ptrdiff_t row, const Words& values, int64_t depth, float* sums,
               ptrdiff_t ldc) {
  constexpr void (*kByVectors[])(const float*, ptrdiff_t, const Words&, int64_t, int64_t, float*, ptrdiff_t) = {
      sum_pages<1>, sum_pages<2>, sum_pages<3>, sum_pages<4>};
  const PairsScope registers;
  set_shapes({rows, kPageWords, 4, 2});
  for (int64_t at = 0; at < depth; at += 4 * kLanes) {
    const int64_t vectors = std::min<int64_t>(4, ceil_div(depth - at, kLanes));
    kByVectors[vectors - 1](p, row, values, depth, at, sums + at, ldc);
  }
}

// A copy of a page of values in which keys from `limit` on are zeros: nobody may have written them yet.
void copy_first_values(const float* page, int64_t limit, int64_t depth, float* to) {
  std::fill(std::copy_n(page, ceil_div(limit, 2) * depth, to), to + kPageWords * depth, 0.0f);
  if (limit % 2 == 0) return;
  uint16_t* row = reinterpret_cast<uint16_t*>(to + limit / 2 * depth);
  for (int64_t j = 0; j < depth; ++j) row[2 * j + 1] = 0;
}

thread_local Buffer page_scratch;  // of the function below

}  // namespace

template <>
bool attend_tile<uint16_t>(const QueryTile& queries, int64_t depth, const HeadPages<uint16_t>& keys,
                           const HeadPages<uint16_t>& values) {
  const int64_t n = queries.count, num_pages = queries.pages(), ld = round_up(num_pages * kPageTokens, 2 * kLanes);
  const int64_t padded = round_up(depth, 2 * kLanes), words = padded / 2;
  page_scratch.reserve(n * (ld + padded + words) + kPageWords * depth + kPageMargin);
  float* at = page_scratch.data();
  const auto take = [&](int64_t floats) { return std::exchange(at, at + floats); };
  float *scores = take(n * ld), *sums = take(n * padded), *q = take(n * words);
  float* last = take(kPageWords * depth + kPageMargin);

  for (int64_t i = 0; i < n; ++i) to_operand(queries.q[i], depth, q + i * words);
  score_words(n, q, words, depth / 2, {keys, num_pages, nullptr}, {values, num_pages, nullptr}, scores, ld);

  float max[kMostQueries], total[kMostQueries];
  for (int64_t i = 0; i < n; ++i) {
    float* own = scores + i * ld;
    for (int64_t j = 0; j < queries.limit[i]; j += kLanes) store(own + j, load(own + j) * queries.scale);
    shape_scores(queries, i, own);
    max[i] = largest_score(own, queries.limit[i]);
    total[i] = exponentiate<uint16_t>(own, queries.limit[i], ld, max[i]);
  }

  const int64_t used = queries.limit[n - 1] % kPageTokens;
  const float* last_page = reinterpret_cast<const float*>(values.page(num_pages - 1));
  if (used > 0) copy_first_values(last_page, used, depth, last);
  sum_words(n, scores, ld, {values, num_pages, used > 0 ? last : nullptr}, depth, sums, padded);
  vf zeros{};
  for (int64_t i = 0; i < n; ++i) zeros += store_output(queries, i, sums + i * padded, depth, max[i], total[i]);
  return reduce_sum(zeros) == 0;
}

}  // namespace gyre
#endif
