#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/tile.h"
#include "model_fixture.h"
#include "reference_decoder.h"
#include "threads.h"

namespace gyre {
namespace {

using testing::random_tensor;
using testing::same_bits;

at::Tensor rounded(const at::Tensor& t) { return t.to(at::kBFloat16).to(t.scalar_type()); }

struct Case {
  AttentionShape shape;
  int64_t length;
  Precision precision = Precision::kFloat32;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.shape.heads << "/" << c.shape.kv_heads << "x" << c.shape.head_dim << " len " << c.length
       << (c.precision == Precision::kBfloat16 ? " bf16" : "");
}

// One sequence of rows and the pages it lives in. Unwritten page memory is NaN: no result may depend on it. Queries,
// keys and values are numbers of the pages' precision, so that rounding them changes nothing.
struct Sequence {
  explicit Sequence(const Case& c, uint64_t seed = 1)
      : shape(c.shape),
        length(c.length),
        precision(c.precision),
        q(random_tensor({length, shape.heads * shape.head_dim}, seed, 2.0f)),
        k(random_tensor({length, shape.kv_heads * shape.head_dim}, seed + 1, 2.0f)),
        v(random_tensor({length, shape.kv_heads * shape.head_dim}, seed + 2)) {
    const int64_t count = ceil_div(length, kPageTokens);
    for (int64_t i = 0; i < count; ++i) pages.push_back(static_cast<int32_t>(count - 1 - i));
    const int64_t numbers = count * shape.kv_heads * shape.head_dim * kPageTokens + kPageMargin;
    const bool half = precision == Precision::kBfloat16;
    if (half) q = rounded(q), k = rounded(k), v = rounded(v);
    key_pages = at::full({numbers}, std::numeric_limits<float>::quiet_NaN(), half ? at::kBFloat16 : at::kFloat);
    value_pages = key_pages.clone();
  }

  // Stores and attends rows first .. first+count-1.
  void step(int64_t first, int64_t count, at::Tensor& o, at::Tensor& lse) {
    const int64_t wq = q.size(1), wk = k.size(1);
    const std::vector<PagedRows> rows{{0, count, first, pages.data()}};
    const PageMemory memory{key_pages.data_ptr(), value_pages.data_ptr(), precision};
    store_kv(shape, rows, k.data_ptr<float>() + first * wk, wk, v.data_ptr<float>() + first * wk, wk, memory);
    attend(shape, rows, q.data_ptr<float>() + first * wq, wq, memory, o.data_ptr<float>() + first * wq, wq,
           lse.data_ptr<float>() + first * shape.heads);
  }

  at::Tensor heads(const at::Tensor& t) const { return t.view({length, -1, shape.head_dim}).transpose(0, 1); }

  AttentionShape shape;
  int64_t length;
  Precision precision;
  at::Tensor q, k, v, key_pages, value_pages;
  std::vector<int32_t> pages;
};

// The gradients [rows, q | k | v] of attention over segments. They start as garbage: every element must be written.
at::Tensor backward(const AttentionShape& shape, const std::vector<Segment>& segments, const at::Tensor& q,
                    const at::Tensor& k, const at::Tensor& v, const at::Tensor& o, const at::Tensor& d_o,
                    const at::Tensor& lse, Precision precision = Precision::kFloat32) {
  const int64_t wq = q.size(1), wk = k.size(1);
  at::Tensor d = at::full({q.size(0), wq + 2 * wk}, 1e30f);
  AttentionBackward a{};
  a.precision = precision;
  a.segments = segments;
  a.q = q.data_ptr<float>(), a.k = k.data_ptr<float>(), a.v = v.data_ptr<float>();
  a.ld_q = a.ld_o = wq, a.ld_k = a.ld_v = wk, a.ld_d = wq + 2 * wk;
  a.o = o.data_ptr<float>(), a.d_o = d_o.data_ptr<float>(), a.logsumexp = lse.data_ptr<float>();
  a.dq = d.data_ptr<float>(), a.dk = a.dq + wq, a.dv = a.dk + wk;
  std::vector<float> partials;
  attend_backward(shape, a, partials);
  return d;
}

class AttentionTest : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionTest, MatchesSoftmaxAttention) {
  Sequence s(GetParam());
  at::Tensor o = at::empty_like(s.q), lse = at::empty({s.length, s.shape.heads});
  s.step(0, s.length, o, lse);
  const auto all_heads = [&](const at::Tensor& t) {
    return s.heads(t).repeat_interleave(s.shape.heads / s.shape.kv_heads, 0).to(at::kDouble);
  };
  const at::Tensor scores = at::matmul(s.heads(s.q).to(at::kDouble), all_heads(s.k).transpose(1, 2)) /
                            std::sqrt(static_cast<double>(s.shape.head_dim));
  const at::Tensor seen =
      scores.masked_fill(at::ones({s.length, s.length}, at::kBool).triu(1), -std::numeric_limits<double>::infinity());
  const at::Tensor p = at::exp(seen - seen.amax(-1, true));
  const bool half = GetParam().precision == Precision::kBfloat16;
  const at::Tensor expected = (at::matmul(half ? rounded(p) : p, all_heads(s.v)) / p.sum(-1, true)).transpose(0, 1);
  // A probability in the middle between two numbers of bf16 may be rounded to the other one.
  EXPECT_LT(testing::relative_error(o, expected.reshape_as(o)), half ? 1e-4 : 1e-6);
  EXPECT_LT((lse - at::logsumexp(seen, -1).t()).abs().max().item<double>(), 1e-5);
}

TEST_P(AttentionTest, DecodeAndChunksEqualPrefillBitForBit) {
  Sequence whole(GetParam());
  at::Tensor o = at::empty_like(whole.q), lse = at::empty({whole.length, whole.shape.heads});
  whole.step(0, whole.length, o, lse);
  for (int64_t chunk : {1, 3, 16, 37}) {
    Sequence s(GetParam());
    at::Tensor part_o = at::empty_like(o), part_lse = at::empty_like(lse);
    for (int64_t first = 0; first < s.length; first += chunk)
      s.step(first, std::min(chunk, s.length - first), part_o, part_lse);
    EXPECT_TRUE(same_bits(part_o, o)) << "chunks of " << chunk;
    EXPECT_TRUE(same_bits(part_lse, lse)) << "chunks of " << chunk;
  }
}

TEST_P(AttentionTest, BackwardMatchesAutograd) {
  Sequence s(GetParam());
  at::Tensor o = at::empty_like(s.q), lse = at::empty({s.length, s.shape.heads});
  s.step(0, s.length, o, lse);
  // The sequence twice in one packed batch, with different gradients.
  const int64_t wq = s.q.size(1), wk = s.k.size(1), n = s.length;
  const at::Tensor d_o = random_tensor({2 * n, wq}, 9);
  const at::Tensor q = s.q.repeat({2, 1}), k = s.k.repeat({2, 1}), v = s.v.repeat({2, 1}), o2 = o.repeat({2, 1});
  const at::Tensor lse2 = lse.repeat({2, 1});
  const std::vector<Segment> segments{{0, n, 0, -1}, {n, n, 0, -1}};
  const Precision precision = GetParam().precision;
  const at::Tensor d = backward(s.shape, segments, q, k, v, o2, d_o, lse2, precision);

  // Gradients are those of probabilities that are not rounded.
  const double tolerance = precision == Precision::kBfloat16 ? 2e-3 : 2e-6;
  for (int64_t half : {0, 1}) {
    at::Tensor tq = s.q.clone().set_requires_grad(true), tk = s.k.clone().set_requires_grad(true),
               tv = s.v.clone().set_requires_grad(true);
    const at::Tensor out = reference::attention(s.heads(tq), s.heads(tk), s.heads(tv)).transpose(0, 1).reshape({n, wq});
    (out * d_o.narrow(0, half * n, n)).sum().backward();
    const at::Tensor part = d.narrow(0, half * n, n);
    // A single key has no score gradient: both sides are rounding around zero there.
    const double floor = 1e-5;
    EXPECT_LT((part.narrow(1, 0, wq) - tq.grad()).norm().item<double>(),
              tolerance * tq.grad().norm().item<double>() + floor);
    EXPECT_LT((part.narrow(1, wq, wk) - tk.grad()).norm().item<double>(),
              tolerance * tk.grad().norm().item<double>() + floor);
    EXPECT_LT(testing::relative_error(part.narrow(1, wq + wk, wk), tv.grad()), 2e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest,
                         ::testing::Values(Case{{9, 3, 64}, 70}, Case{{2, 2, 16}, 1}, Case{{4, 1, 8}, 17},
                                           Case{{14, 2, 24}, 33}, Case{{3, 3, 20}, 16}, Case{{5, 1, 2}, 40},
                                           Case{{2, 1, 128}, 131}, Case{{9, 3, 64}, 70, Precision::kBfloat16},
                                           Case{{3, 3, 20}, 33, Precision::kBfloat16},
                                           Case{{5, 1, 2}, 40, Precision::kBfloat16}));

// The matrix unit and what stands in for it. They add up exponentials in other lanes; where all are 1, in none.
TEST(Attention, BlockedVariantsAgree) {
  const std::string before = variant_in_use().name;
  for (const AttentionShape& shape : {AttentionShape{9, 3, 64}, {4, 1, 8}, {6, 2, 96}, {3, 3, 20}, {2, 1, 160}}) {
    for (const bool equal_scores : {false, true}) {
      std::vector<at::Tensor> o, lse;
      for (const Variant& variant : variants()) {
        if (!variant.runs_here || !std::string(variant.name).starts_with("amx")) continue;
        use_variant(variant.name);
        Sequence s({shape, 55, Precision::kBfloat16});
        if (equal_scores) s.q.zero_();
        o.push_back(at::empty_like(s.q)), lse.push_back(at::empty({s.length, shape.heads}));
        s.step(0, s.length, o.back(), lse.back());
      }
      for (size_t i = 1; i < o.size(); ++i) {
        EXPECT_LT(testing::relative_error(o[i], o[0]), 2e-7) << shape.head_dim;
        EXPECT_TRUE(same_bits(lse[i][0], lse[0][0])) << "scores of one key, " << shape.head_dim;
        EXPECT_TRUE(!equal_scores || same_bits(o[i], o[0])) << "values, " << shape.head_dim;
      }
    }
  }
  use_variant(before);
}

// Trees of segments, long enough for several parts. Each path from a root to a leaf is a sequence; a row's output
// counts in the first path that has it.
TEST(Attention, BackwardOverTreesMatchesAutogradForAnyThreads) {
  const AttentionShape shape{6, 2, 12};
  const std::vector<Segment> segments{{0, 150, 0, -1},   {150, 70, 150, 0}, {220, 40, 220, 1}, {260, 33, 220, 1},
                                      {293, 1, 220, 1},  {294, 90, 150, 0}, {384, 20, 0, -1},  {404, 5, 20, 6},
                                      {409, 170, 20, 6}, {579, 300, 0, -1}};
  const int64_t rows = 879, wq = shape.heads * shape.head_dim, wk = shape.kv_heads * shape.head_dim;
  const at::Tensor q = random_tensor({rows, wq}, 1, 2.0f).set_requires_grad(true),
                   k = random_tensor({rows, wk}, 2, 2.0f).set_requires_grad(true),
                   v = random_tensor({rows, wk}, 3).set_requires_grad(true);
  at::Tensor o = at::zeros({rows, wq}), lse = at::zeros({rows, shape.heads});
  const at::Tensor d_o = random_tensor({rows, wq}, 4);
  at::Tensor objective = at::zeros({});
  std::vector<bool> done(static_cast<size_t>(rows));
  for (size_t leaf = 0; leaf < segments.size(); ++leaf) {
    if (leaf + 1 < segments.size() && segments[leaf + 1].parent == static_cast<int32_t>(leaf)) continue;
    std::vector<int64_t> path;
    for (auto s = static_cast<int32_t>(leaf); s >= 0; s = segments[static_cast<size_t>(s)].parent) {
      for (int64_t i = segments[static_cast<size_t>(s)].count - 1; i >= 0; --i) {
        path.insert(path.begin(), segments[static_cast<size_t>(s)].row + i);
      }
    }
    const auto n = static_cast<int64_t>(path.size());
    const at::Tensor index = at::from_blob(path.data(), {n}, at::kLong).clone();
    const auto heads = [&](const at::Tensor& t) {
      return t.index_select(0, index).view({n, -1, shape.head_dim}).transpose(0, 1);
    };
    const at::Tensor out = reference::attention(heads(q), heads(k), heads(v)).transpose(0, 1).reshape({n, wq});
    const at::Tensor scores =
        at::matmul(heads(q), heads(k).repeat_interleave(shape.heads / shape.kv_heads, 0).transpose(1, 2)) /
        std::sqrt(static_cast<double>(shape.head_dim));
    const at::Tensor seen =
        scores.detach().masked_fill(at::ones({n, n}, at::kBool).triu(1), -std::numeric_limits<double>::infinity());
    o.index_copy_(0, index, out.detach());
    lse.index_copy_(0, index, at::logsumexp(seen, -1).t());
    for (int64_t i = 0; i < n; ++i) {
      const auto row = static_cast<size_t>(path[static_cast<size_t>(i)]);
      if (!done[row]) objective = objective + (out[i] * d_o[path[static_cast<size_t>(i)]]).sum();
      done[row] = true;
    }
  }
  objective.backward();

  std::vector<at::Tensor> results;
  for (int threads : {1, 3}) {
    const Threads several(threads);
    results.push_back(backward(shape, segments, q, k, v, o, d_o, lse));
  }
  EXPECT_LT(testing::relative_error(results[0].narrow(1, 0, wq), q.grad()), 2e-6);
  EXPECT_LT(testing::relative_error(results[0].narrow(1, wq, wk), k.grad()), 2e-6);
  EXPECT_LT(testing::relative_error(results[0].narrow(1, wq + wk, wk), v.grad()), 2e-6);
  EXPECT_TRUE(same_bits(results[0], results[1]));
}

TEST(Attention, KeysFarApartInScoreDoNotOverflow) {
  Sequence s(Case{{1, 1, 16}, 20});
  s.q.mul_(100);
  s.k.mul_(100);
  at::Tensor o = at::empty_like(s.q), lse = at::empty({20, 1});
  s.step(0, 20, o, lse);
  const at::Tensor expected =
      reference::attention(s.heads(s.q), s.heads(s.k), s.heads(s.v)).transpose(0, 1).reshape_as(o);
  EXPECT_LT(testing::relative_error(o, expected), 1e-3);
}

}  // namespace
}  // namespace gyre
