// The elementwise and row kernels against ATen and its autograd.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/buffer.h"
#include "kernels/gemm.h"
#include "kernels/rope.h"
#include "kernels/rowwise.h"
#include "kernels/vec.h"
#include "model_fixture.h"
#include "reference_decoder.h"

namespace gyre {
namespace {

using testing::random_tensor;
using testing::relative_error;

const float* data(const at::Tensor& t) { return t.data_ptr<float>(); }
float* mutable_data(at::Tensor& t) { return t.data_ptr<float>(); }

TEST(Exponential, IsAccurateEverywhere) {
  double worst = 0;
  for (double x = -87.3; x < 88.37; x += 0.00917) {
    const auto f = static_cast<float>(x);
    const double expected = std::exp(static_cast<double>(f));
    worst = std::max(worst, std::abs(exponential(splat(f))[0] - expected) / expected);
  }
  EXPECT_LT(worst, 1.5e-7);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exponential(splat(0.0f))[0], 1.0f);
  EXPECT_EQ(exponential(splat(-infinity))[0], 0.0f);
  EXPECT_EQ(exponential(splat(-1e4f))[0], 0.0f);
  EXPECT_EQ(exponential(splat(infinity))[0], infinity);
  EXPECT_TRUE(std::isnan(exponential(splat(std::nanf("")))[0]));
}

TEST(RmsNorm, ForwardAndBackward) {
  for (int64_t width : {1, 7, 16, 48, 100}) {
    constexpr int64_t kRows = 130;
    const at::Tensor x = random_tensor({kRows, width}, 1).set_requires_grad(true);
    const at::Tensor weight = random_tensor({width}, 2).set_requires_grad(true);
    const at::Tensor dy = random_tensor({kRows, width}, 3);
    at::Tensor y = at::empty({kRows, width}), rstd = at::empty({kRows});
    rms_norm(data(x), kRows, width, data(weight), 1e-5f, Precision::kFloat32, mutable_data(y), mutable_data(rstd));
    const at::Tensor expected = reference::rms_norm(x, weight, 1e-5);
    EXPECT_LT(relative_error(y, expected.detach()), 1e-6) << width;
    (expected * dy).sum().backward();
    at::Tensor dx = at::ones({kRows, width}), dweight = at::ones({width});  // gradients are added to what is there
    rms_norm_backward(data(x), data(rstd), data(weight), data(dy), kRows, width, mutable_data(dx),
                      mutable_data(dweight));
    EXPECT_LT(relative_error(dx, x.grad() + 1), 2e-6) << width;
    EXPECT_LT(relative_error(dweight, weight.grad() + 1), 2e-6) << width;
  }
}

TEST(RmsNorm, AddingFirstIsTheSame) {
  const at::Tensor x = random_tensor({5, 37}, 1), delta = random_tensor({5, 37}, 2), weight = random_tensor({37}, 3);
  at::Tensor sum = at::empty_like(x), y = at::empty_like(x), expected = at::empty_like(x);
  add_rms_norm(data(x), data(delta), 5, 37, data(weight), 1e-6f, Precision::kFloat32, mutable_data(sum),
               mutable_data(y), nullptr);
  EXPECT_TRUE(testing::same_bits(sum, x + delta));
  rms_norm(data(sum), 5, 37, data(weight), 1e-6f, Precision::kFloat32, mutable_data(expected), nullptr);
  EXPECT_TRUE(testing::same_bits(y, expected));
}

// Rows that become operands where they are made give the products of rows that are converted later.
TEST(Operands, MultiplyLikeTheirRows) {
  for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
    for (const int64_t width : {1, 37, 64}) {
      const at::Tensor gate_up = random_tensor({7, 2 * width}, 1), scale = random_tensor({width}, 2),
                       weight = random_tensor({20, width}, 3);
      const at::Tensor x = gate_up.narrow(1, 0, width).contiguous();
      PackedMatrix packed;
      packed.pack(data(weight), 20, width, precision);
      at::Tensor rows = at::empty({7, width}), operands = at::empty({7, operand_width(precision, width)}),
                 want = at::empty({7, 20}), got = at::empty({7, 20});
      const auto expect_same = [&] {
        packed.multiply(data(rows), width, 7, nullptr, mutable_data(want), 20);
        packed.multiply(data(operands), 0, 7, nullptr, mutable_data(got), 20);
        EXPECT_TRUE(testing::same_bits(got, want)) << width;
      };
      rms_norm(data(x), 7, width, data(scale), 1e-6f, Precision::kFloat32, mutable_data(rows), nullptr);
      rms_norm(data(x), 7, width, data(scale), 1e-6f, precision, mutable_data(operands), nullptr);
      expect_same();
      glu(GYRE_SILU, data(gate_up), 7, width, Precision::kFloat32, mutable_data(rows), Precision::kFloat32, nullptr);
      glu(GYRE_SILU, data(gate_up), 7, width, precision, mutable_data(operands), Precision::kFloat32, nullptr);
      expect_same();
    }
  }
}

TEST(Swiglu, ForwardAndBackward) {
  for (int64_t width : {1, 16, 45}) {
    const at::Tensor gate_up = random_tensor({9, 2 * width}, 1, 6.0f).set_requires_grad(true),
                     dy = random_tensor({9, width}, 2);
    at::Tensor y = at::empty({9, width}), d = at::empty({9, 2 * width});
    glu(GYRE_SILU, data(gate_up), 9, width, Precision::kFloat32, mutable_data(y), Precision::kFloat32, nullptr);
    const at::Tensor expected = at::silu(gate_up.narrow(1, 0, width)) * gate_up.narrow(1, width, width);
    EXPECT_LT(relative_error(y, expected.detach()), 1e-6);
    (expected * dy).sum().backward();
    glu_backward(GYRE_SILU, data(gate_up), data(dy), 9, width, Precision::kFloat32, nullptr, mutable_data(d));
    EXPECT_LT(relative_error(d, gate_up.grad()), 1e-6);
  }
}

TEST(Rope, RotatesHeadsWithAndWithoutNorm) {
  constexpr int64_t kRows = 70, kHeads = 3, kKvHeads = 2, kHeadDim = 20, kWidth = (kHeads + kKvHeads) * kHeadDim;
  ModelConfig config;
  config.head_dim = kHeadDim;
  std::vector<float> frequencies = inverse_frequencies(config);
  RopeTable table(frequencies);
  table.reserve(kRows);
  const at::Tensor angles = at::from_blob(frequencies.data(), {kHeadDim / 2}).clone();
  std::vector<int32_t> positions;
  for (int32_t i = 0; i < kRows; ++i) positions.push_back(i);
  for (bool norm : {false, true}) {
    const at::Tensor x = random_tensor({kRows, kWidth}, 1).set_requires_grad(true),
                     dy = random_tensor({kRows, kWidth}, 2);
    const at::Tensor wq = random_tensor({kHeadDim}, 3).set_requires_grad(true),
                     wk = random_tensor({kHeadDim}, 4).set_requires_grad(true);
    const HeadLayout layout{kHeads, kKvHeads, kHeadDim, norm ? data(wq) : nullptr, norm ? data(wk) : nullptr, 1e-6f};
    at::Tensor y = at::empty({kRows, kWidth});
    rotate_heads(layout, &table, positions.data(), kRows, data(x), kWidth, mutable_data(y), kWidth);
    at::Tensor heads = x.view({kRows, kHeads + kKvHeads, kHeadDim}).transpose(0, 1);
    if (norm) {
      heads = at::cat({reference::rms_norm(heads.narrow(0, 0, kHeads), wq, 1e-6),
                       reference::rms_norm(heads.narrow(0, kHeads, kKvHeads), wk, 1e-6)});
    }
    const at::Tensor expected = reference::rope(heads, angles).transpose(0, 1).reshape({kRows, kWidth});
    EXPECT_LT(relative_error(y, expected.detach()), 1e-6);
    (expected * dy).sum().backward();
    at::Tensor d = dy.clone(), dwq = at::zeros({kHeadDim}), dwk = at::zeros({kHeadDim});
    rotate_heads_backward(layout, &table, positions.data(), kRows, data(x), kWidth, mutable_data(d), kWidth,
                          mutable_data(dwq), mutable_data(dwk));
    EXPECT_LT(relative_error(d, x.grad()), 2e-6);
    if (norm) {
      EXPECT_LT(relative_error(dwq, wq.grad()), 2e-6);
      EXPECT_LT(relative_error(dwk, wk.grad()), 2e-6);
    }
  }
}

// Divisors are the caller's: those of transformers' scalings are made, and tested, where config.json is read.
TEST(Rope, ScaledFrequencies) {
  ModelConfig c;
  c.head_dim = 8;
  c.rope_theta = 500000.0;
  const std::vector<float> plain = inverse_frequencies(c);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(plain[i], static_cast<float>(1 / std::pow(500000.0f, i / 4.0f))) << i;
  const double divisors[] = {0, 1, 3.3, 32};
  std::ranges::copy(divisors, c.shape.rope.divisors);
  c.shape.local_theta = 1e4, c.shape.local_rope.divisors[1] = 4;
  const std::vector<float> scaled = inverse_frequencies(c), local = inverse_frequencies(c, true);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(scaled[i], static_cast<float>(plain[i] / std::max(divisors[i], 1.0))) << i;
  EXPECT_EQ(local, (std::vector<float>{1, 0.1f / 4, 0.01f, 0.001f}));
}

TEST(Rows, GatherScatterAndColumnSums) {
  const at::Tensor table = random_tensor({10, 70}, 1), d = random_tensor({300, 70}, 2);
  const std::vector<int32_t> ids = testing::random_ids(300, 10, 3);
  at::Tensor index = at::empty({300}, at::kLong);
  for (int64_t i = 0; i < 300; ++i) index.data_ptr<int64_t>()[i] = ids[static_cast<size_t>(i)];
  at::Tensor gathered = at::empty({300, 70});
  gather_rows(data(table), 70, ids.data(), 300, Precision::kFloat32, mutable_data(gathered));
  EXPECT_TRUE(testing::same_bits(gathered, table.index_select(0, index)));
  at::Tensor scattered = table.clone();
  scatter_add_rows(data(d), 70, ids.data(), 300, mutable_data(scattered));
  EXPECT_LT(relative_error(scattered, table.index_add(0, index, d)), 1e-6);
  at::Tensor sums = at::ones({70});
  add_column_sums(data(d), 300, 70, mutable_data(sums));
  EXPECT_LT(relative_error(sums, d.sum(0) + 1), 1e-6);
  at::Tensor total = at::empty({9001});
  const at::Tensor a = random_tensor({9001}, 4), b = random_tensor({9001}, 5);
  add(data(a), data(b), 9001, mutable_data(total));
  EXPECT_TRUE(testing::same_bits(total, a + b));
}

// From gates and values that were kept in the products' type, as operands: what floats of the same numbers give.
TEST(Glu, OfKeptGatesAsOperands) {
  for (const int64_t width : {5, 16, 100}) {
    const at::Tensor gate_up = random_tensor({9, 2 * width}, 1), d_act = random_tensor({9, width}, 2);
    for (const Precision p : {Precision::kFloat32, Precision::kBfloat16}) {
      at::Tensor kept = at::zeros_like(gate_up), rows = kept.clone(), act = at::empty({9, width}), d = kept.clone(),
                 d_rows = kept.clone();
      at::Tensor act_operands = at::empty({9, operand_width(p, width)});
      glu(GYRE_SILU, data(gate_up), 9, width, p, mutable_data(act_operands), Precision::kFloat32, mutable_data(kept));
      if (p == Precision::kBfloat16) {
        widen(reinterpret_cast<uint16_t*>(mutable_data(kept)), gate_up.numel(), mutable_data(rows));
        EXPECT_TRUE(testing::same_bits(rows, gate_up.to(at::kBFloat16).to(at::kFloat)));
      } else {
        EXPECT_TRUE(testing::same_bits(kept, gate_up));
        rows = kept;
      }
      const auto operands = [&](const at::Tensor& x) {
        at::Tensor to = at::empty({9, operand_width(p, x.size(1))});
        to_operands(data(x), x.size(1), 9, x.size(1), p, mutable_data(to));
        return to;
      };
      glu(GYRE_SILU, data(rows), 9, width, Precision::kFloat32, mutable_data(act), Precision::kFloat32, nullptr);
      glu_backward(GYRE_SILU, data(rows), data(d_act), 9, width, Precision::kFloat32, nullptr, mutable_data(d));
      at::Tensor d_operands = at::empty_like(operands(d));
      glu(GYRE_SILU, data(kept), 9, width, p, mutable_data(act_operands), p, nullptr);
      glu_backward(GYRE_SILU, data(kept), data(d_act), 9, width, p, mutable_data(d_rows), mutable_data(d_operands));
      EXPECT_TRUE(testing::same_bits(act_operands, operands(act))) << width;
      EXPECT_TRUE(testing::same_bits(d_operands, operands(d))) << width;
      EXPECT_TRUE(testing::same_bits(d_rows, d)) << width;
    }
  }
}

// Freed memory serves buffers of other sizes, and is whole again when they are freed. The system maps none anew.
TEST(Buffer, MemoryIsDividedAndJoinedAgain) {
  constexpr int64_t kFloats = 8 << 20;
  release_idle_memory();
  const auto all = std::make_unique<Buffer>();
  all->reserve(kFloats);
  const auto memory = [](const auto& buffer) { return reinterpret_cast<uintptr_t>(buffer->data()); };
  const uintptr_t begin = memory(all), end = begin + sizeof(float) * kFloats;
  *all = Buffer();
  std::vector<std::unique_ptr<Buffer>> parts;
  for (const int64_t share : {5, 3, 4}) {  // of 16
    parts.push_back(std::make_unique<Buffer>());
    parts.back()->reserve(kFloats * share / 16 - 100);
    EXPECT_EQ(memory(parts.back()) % 64, 0);
    EXPECT_TRUE(memory(parts.back()) >= begin && memory(parts.back()) < end);
    *parts.back()->data() = static_cast<float>(share);
  }
  EXPECT_EQ(*parts[0]->data(), 5.0f);
  EXPECT_EQ(*parts[1]->data(), 3.0f);
  for (const size_t i : {1, 0, 2}) *parts[i] = Buffer();
  all->reserve(kFloats);
  EXPECT_EQ(memory(all), begin);
}

}  // namespace
}  // namespace gyre
