#include "kernels/product.h"

#include <gtest/gtest.h>

#include "kernels/gemm.h"
#include "model_fixture.h"
#include "threads.h"

namespace gyre {
namespace {

using testing::random_tensor;
using testing::relative_error;
using testing::same_bits;

struct Shape {
  int64_t m, n, k;
  Precision precision = Precision::kFloat32;
};

class ProductTest : public ::testing::TestWithParam<Shape> {
 protected:
  // a · b, or start + a · b. a lies in memory as it is or transposed.
  at::Tensor product(bool transposed, bool add) const {
    const auto [m, n, k, precision] = GetParam();
    const at::Tensor memory = transposed ? a.t().contiguous() : a;
    const Strided view = transposed ? Strided{memory.data_ptr<float>(), 1, m} : Strided{memory.data_ptr<float>(), k, 1};
    at::Tensor c = start.clone();
    multiply(precision, m, n, k, view, b.data_ptr<float>(), n, add, c.data_ptr<float>(), n);
    return c;
  }

  at::Tensor a = random_tensor({GetParam().m, GetParam().k}, 1), b = random_tensor({GetParam().k, GetParam().n}, 2),
             start = random_tensor({GetParam().m, GetParam().n}, 3);
};

TEST_P(ProductTest, MatchesDoublePrecision) {
  const auto rounded = [](const at::Tensor& t) {
    return (GetParam().precision == Precision::kBfloat16 ? t.to(at::kBFloat16) : t).to(at::kDouble);
  };
  const at::Tensor expected = rounded(a).mm(rounded(b));
  for (bool transposed : {false, true}) {
    EXPECT_LT(relative_error(product(transposed, false), expected), 2e-6);
    EXPECT_LT(relative_error(product(transposed, true), expected + start), 2e-6);
  }
}

// One chain per element: neither threads nor the layout of a change a bit.
TEST_P(ProductTest, HasOneOrderOfOperations) {
  const Threads one(1);
  const at::Tensor expected = product(false, true);
  for (int threads : {1, 2, 3}) {
    const Threads several(threads);
    for (bool transposed : {false, true}) EXPECT_TRUE(same_bits(product(transposed, true), expected)) << threads;
  }
}

// Factors that are operands already give the same bits, and so do some of the numbers of their rows.
TEST_P(ProductTest, TakesOperands) {
  const auto [m, n, k, precision] = GetParam();
  constexpr int64_t kBefore = 6;
  const auto operands = [p = precision](const at::Tensor& rows) {
    const at::Tensor longer = at::cat({at::ones({rows.size(0), kBefore}), rows}, 1);
    at::Tensor to = at::empty({rows.size(0), operand_width(p, longer.size(1))});
    to_operands(longer.data_ptr<float>(), longer.size(1), rows.size(0), longer.size(1), p, to.data_ptr<float>());
    return to;
  };
  const at::Tensor expected = product(false, true), b_operands = at::empty({k, operand_width(precision, n)}),
                   rows = operands(a), columns = operands(a.t().contiguous());
  to_operands(b.data_ptr<float>(), n, k, n, precision, b_operands.data_ptr<float>());
  const Factor of_b{b_operands.data_ptr<float>(), b_operands.size(1), 1, true};
  const Factor as_rows{rows.data_ptr<float>(), rows.size(1), 1, true, kBefore},
      as_columns{columns.data_ptr<float>(), 1, columns.size(1), true, kBefore};
  for (const Factor& of_a : {Factor{a.data_ptr<float>(), k, 1}, as_rows, as_columns}) {
    for (const Factor& right : {Factor{b.data_ptr<float>(), n, 1}, of_b}) {
      at::Tensor c = start.clone();
      multiply_factors(precision, m, n, k, of_a, right, true, c.data_ptr<float>(), n);
      EXPECT_TRUE(same_bits(c, expected)) << of_a.operands << of_a.row << right.operands;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ProductTest,
                         ::testing::Values(Shape{1, 1, 1}, Shape{8, 48, 384}, Shape{13, 50, 7}, Shape{96, 96, 900},
                                           Shape{250, 130, 401}, Shape{9, 31, 1}, Shape{300, 577, 65},
                                           Shape{1, 1, 1, Precision::kBfloat16}, Shape{13, 50, 7, Precision::kBfloat16},
                                           Shape{96, 96, 900, Precision::kBfloat16},
                                           Shape{250, 130, 1601, Precision::kBfloat16}),
                         [](const auto& info) {
                           return std::to_string(info.param.m) + "x" + std::to_string(info.param.n) + "x" +
                                  std::to_string(info.param.k) +
                                  (info.param.precision == Precision::kBfloat16 ? "bf16" : "");
                         });

}  // namespace
}  // namespace gyre
