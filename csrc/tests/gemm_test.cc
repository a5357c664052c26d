#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include "kernels/tile.h"
#include "model_fixture.h"
#include "threads.h"

namespace gyre {
namespace {

using testing::random_tensor;
using testing::same_bits;

struct Shape {
  int64_t out, in;
};

PackedMatrix pack(const at::Tensor& weight) {
  PackedMatrix packed;
  packed.pack(weight.data_ptr<float>(), weight.size(0), weight.size(1));
  return packed;
}

at::Tensor multiply(const PackedMatrix& w, const at::Tensor& x, const float* bias = nullptr) {
  at::Tensor y = at::full({x.size(0), w.out()}, 1e30f);
  w.multiply(x.data_ptr<float>(), x.stride(0), x.size(0), bias, y.data_ptr<float>(), w.out());
  return y;
}

class GemmTest : public ::testing::TestWithParam<Shape> {};

TEST_P(GemmTest, MatchesMm) {
  const auto [out, in] = GetParam();
  const at::Tensor weight = random_tensor({out, in}, 1), x = random_tensor({19, in}, 2), bias = random_tensor({out}, 3);
  const PackedMatrix packed = pack(weight);
  const at::Tensor product = at::mm(x.to(at::kDouble), weight.to(at::kDouble).t());
  EXPECT_LT(testing::relative_error(multiply(packed, x).to(at::kDouble), product), 1e-6);
  EXPECT_LT(testing::relative_error(multiply(packed, x, bias.data_ptr<float>()).to(at::kDouble), product + bias), 1e-6);
}

// Every row is the same bits whatever the number of rows around it and the number of threads.
TEST_P(GemmTest, RowsDoNotDependOnTheirCompany) {
  const auto [out, in] = GetParam();
  constexpr int64_t kRows = 150;
  const at::Tensor x = random_tensor({kRows, in}, 4), bias = random_tensor({out}, 5);
  const PackedMatrix packed = pack(random_tensor({out, in}, 6));
  const Threads one(1);
  at::Tensor single = at::empty({kRows, out});
  for (int64_t r = 0; r < kRows; ++r) single[r].copy_(multiply(packed, x.narrow(0, r, 1), bias.data_ptr<float>())[0]);
  for (int t : {1, 2, 3}) {
    const Threads several(t);
    for (int64_t rows = 1; rows <= 130; ++rows) {
      const int64_t first = rows % (kRows - 130 + 1);
      ASSERT_TRUE(
          same_bits(multiply(packed, x.narrow(0, first, rows), bias.data_ptr<float>()), single.narrow(0, first, rows)))
          << rows << " rows, " << t << " threads";
    }
  }
}

TEST(Gemm, ColumnsEqualThoseOfTheWholeProduct) {
  const int64_t out = 3 * kPanel + 5, in = 70, rows = 11;
  const at::Tensor x = random_tensor({rows, in}, 7), bias = random_tensor({out}, 8);
  const PackedMatrix packed = pack(random_tensor({out, in}, 9));
  const at::Tensor whole = multiply(packed, x, bias.data_ptr<float>());
  for (const auto& [first, count] : {std::pair{int64_t{0}, kPanel}, {kPanel, 2 * kPanel}, {2 * kPanel, kPanel + 5}}) {
    at::Tensor part = at::empty({rows, count});
    packed.multiply_columns(first, count, x.data_ptr<float>(), in, rows, bias.data_ptr<float>(), part.data_ptr<float>(),
                            count);
    EXPECT_TRUE(same_bits(part, whole.narrow(1, first, count).contiguous()));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, GemmTest,
                         ::testing::Values(Shape{48, 64}, Shape{96, 400}, Shape{33, 77}, Shape{1, 40}, Shape{130, 1},
                                           Shape{49, 769}, Shape{160, 96}),
                         [](const auto& info) {
                           return std::to_string(info.param.out) + "x" + std::to_string(info.param.in);
                         });

TEST(Gemm, StridedRows) {
  const at::Tensor weight = random_tensor({50, 24}, 1), wide = random_tensor({9, 40}, 2);
  at::Tensor y = at::zeros({9, 64});
  pack(weight).multiply(wide.data_ptr<float>() + 8, 40, 9, nullptr, y.data_ptr<float>() + 4, 64);
  EXPECT_LT(testing::relative_error(y.narrow(1, 4, 50), at::mm(wide.narrow(1, 8, 24), weight.t())), 1e-6);
  EXPECT_EQ(y.narrow(1, 0, 4).abs().max().item<float>(), 0.0f);  // nothing outside the row is written
  EXPECT_EQ(y.narrow(1, 54, 10).abs().max().item<float>(), 0.0f);
}

TEST(Gemm, RepacksInPlace) {
  const at::Tensor a = random_tensor({70, 30}, 1), b = random_tensor({70, 30}, 2), x = random_tensor({3, 30}, 3);
  PackedMatrix packed = pack(a);
  packed.pack(b.data_ptr<float>(), 70, 30);
  EXPECT_TRUE(same_bits(multiply(packed, x), multiply(pack(b), x)));
}

}  // namespace
}  // namespace gyre
