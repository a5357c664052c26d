#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>

#include "kernels/tile.h"
#include "model_fixture.h"
#include "threads.h"

namespace gyre {
namespace {

using testing::random_tensor;
using testing::same_bits;

struct Shape {
  int64_t out, in;
  Precision precision = Precision::kFloat32;
};

PackedMatrix pack(const at::Tensor& weight, Precision precision = Precision::kFloat32) {
  PackedMatrix packed;
  packed.pack(weight.data_ptr<float>(), weight.size(0), weight.size(1), precision);
  return packed;
}

at::Tensor in_precision(const at::Tensor& t, Precision precision) {
  return precision == Precision::kBfloat16 ? t.to(at::kBFloat16).to(at::kFloat) : t;
}

at::Tensor multiply(const PackedMatrix& w, const at::Tensor& x, const float* bias = nullptr) {
  at::Tensor y = at::full({x.size(0), w.out()}, 1e30f);
  w.multiply(x.data_ptr<float>(), x.stride(0), x.size(0), bias, y.data_ptr<float>(), w.out());
  return y;
}

class GemmTest : public ::testing::TestWithParam<Shape> {};

TEST_P(GemmTest, MatchesMm) {
  const auto [out, in, precision] = GetParam();
  const at::Tensor weight = random_tensor({out, in}, 1), x = random_tensor({19, in}, 2), bias = random_tensor({out}, 3);
  const PackedMatrix packed = pack(weight, precision);
  const at::Tensor product =
      at::mm(in_precision(x, precision).to(at::kDouble), in_precision(weight, precision).to(at::kDouble).t());
  EXPECT_LT(testing::relative_error(multiply(packed, x).to(at::kDouble), product), 1e-6);
  EXPECT_LT(testing::relative_error(multiply(packed, x, bias.data_ptr<float>()).to(at::kDouble), product + bias), 1e-6);
}

// Every row is the same bits whatever the number of rows around it and the number of threads.
TEST_P(GemmTest, RowsDoNotDependOnTheirCompany) {
  const auto [out, in, precision] = GetParam();
  constexpr int64_t kRows = 150;
  const at::Tensor x = random_tensor({kRows, in}, 4), bias = random_tensor({out}, 5);
  const PackedMatrix packed = pack(random_tensor({out, in}, 6), precision);
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

// A matrix without padding gives the same product, and rows that do not depend on their company either.
TEST_P(GemmTest, NarrowMatrices) {
  const auto [out, in, precision] = GetParam();
  const at::Tensor weight = random_tensor({out, in}, 1), x = random_tensor({40, in}, 2);
  PackedMatrix narrow;
  narrow.pack(weight.data_ptr<float>(), out, in, precision, /*narrow=*/true);
  const at::Tensor y = multiply(narrow, x);
  EXPECT_LT(testing::relative_error(y.to(at::kDouble), multiply(pack(weight, precision), x).to(at::kDouble)), 1e-6);
  for (int64_t r = 0; r < 40; ++r) {
    ASSERT_TRUE(same_bits(multiply(narrow, x.narrow(0, r, 1)), y.narrow(0, r, 1))) << r;
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

// A quantised matrix multiplies as one packed of the numbers that its codes stand for, bit for bit.
TEST_P(GemmTest, QuantisedIsThePackOfItsNumbers) {
  const auto [out, in, precision] = GetParam();
  at::Tensor weight = random_tensor({out, in}, 1) * random_tensor({out, 1}, 2).exp();
  weight[out / 2].zero_();
  const at::Tensor scale = weight.abs().amax(1, true) / 127, codes = (weight / scale).round().nan_to_num(0);
  EXPECT_EQ(codes.abs().amax().item<float>(), out == 1 ? 0 : 127);
  const at::Tensor x = random_tensor({230, in}, 3), bias = random_tensor({out}, 4);
  const PackedMatrix packed = pack((codes * scale).contiguous(), precision);
  PackedMatrix quantised;
  quantised.quantize(weight.data_ptr<float>(), out, in, precision);
  for (const int threads : {1, 3}) {
    const Threads some(threads);
    for (const int64_t rows : {1, 2, 7, 17, 96, 97, 230}) {
      const at::Tensor some_x = x.narrow(0, 0, rows);
      ASSERT_TRUE(same_bits(multiply(quantised, some_x, bias.data_ptr<float>()),
                            multiply(packed, some_x, bias.data_ptr<float>())))
          << rows << " rows";
    }
  }
  if (out <= kPanel) return;
  at::Tensor part = at::empty({3, out - kPanel});
  quantised.multiply_columns(kPanel, out - kPanel, x.data_ptr<float>(), in, 3, nullptr, part.data_ptr<float>(),
                             out - kPanel);
  EXPECT_TRUE(same_bits(part, multiply(packed, x.narrow(0, 0, 3)).narrow(1, kPanel, out - kPanel).contiguous()));
}

TEST(Gemm, QuantisedRowsKeepWhatIsNotFinite) {
  at::Tensor weight = random_tensor({3, 8}, 1);
  weight[1][5] = std::nanf("");
  weight[2][0] = INFINITY;
  PackedMatrix quantised;
  quantised.quantize(weight.data_ptr<float>(), 3, 8, Precision::kFloat32);
  const at::Tensor y = multiply(quantised, at::ones({1, 8})).isfinite();
  EXPECT_TRUE(y[0][0].item<bool>());
  EXPECT_FALSE(y[0][1].item<bool>() || y[0][2].item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Shapes, GemmTest,
                         ::testing::Values(Shape{48, 64}, Shape{96, 400}, Shape{33, 77}, Shape{1, 40}, Shape{130, 1},
                                           Shape{49, 769}, Shape{160, 96}, Shape{48, 64, Precision::kBfloat16},
                                           Shape{33, 77, Precision::kBfloat16}, Shape{130, 1, Precision::kBfloat16},
                                           Shape{49, 1601, Precision::kBfloat16}, Shape{96, 400, Precision::kBfloat16}),
                         [](const auto& info) {
                           return std::to_string(info.param.out) + "x" + std::to_string(info.param.in) +
                                  (info.param.precision == Precision::kBfloat16 ? "bf16" : "");
                         });

// What VDPBF16PS and AMX add to c for one inner position: one rounding with unbounded exponent, then denormals to zero.
float add_flushed(float a, float b, float c) {
  const auto flush = [](float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; };
  a = flush(a), b = flush(b), c = flush(c);
  const float sum = std::fma(a, b, c);
  // std::fma rounds results in the denormal range to fewer bits and may so arrive at the smallest normal number.
  if (std::fabs(sum) != 0x1p-126f) return flush(sum);
  if (std::fabs(a) > std::fabs(b)) std::swap(a, b);
  return std::fabs(std::fma(a * 0x1p64f, b, c * 0x1p64f)) < 0x1p-62f ? std::copysign(0.0f, sum) : sum;
}

// The inner product of `in` numbers as VDPBF16PS takes it.
float paired(const float* a, const float* b, int64_t in) {
  float sum = 0;
  for (int64_t i = 0; i < in; i += 2) {
    if (i + 1 < in) sum = add_flushed(from_bf16(to_bf16(a[i + 1])), from_bf16(to_bf16(b[i + 1])), sum);
    sum = add_flushed(from_bf16(to_bf16(a[i])), from_bf16(to_bf16(b[i])), sum);
  }
  return sum;
}

// As TDPBF16PS does: of 32 numbers the even ones and the odd ones in a chain of their own.
float blocked(const float* a, const float* b, int64_t in) {
  float sum = 0;
  for (int64_t block = 0; block < in; block += 32) {
    float chains[2] = {};
    for (int64_t i = block; i < std::min(in, block + 32); ++i) {
      chains[i % 2] = add_flushed(from_bf16(to_bf16(a[i])), from_bf16(to_bf16(b[i])), chains[i % 2]);
    }
    sum = add_flushed(1.0f, add_flushed(1.0f, chains[0], chains[1]), sum);
  }
  return sum;
}

// Ordinary numbers, and some around the ends of the range.
at::Tensor mixed_numbers(at::IntArrayRef shape, uint64_t seed) {
  at::Tensor t = random_tensor(shape, seed);
  float* x = t.data_ptr<float>();
  std::mt19937 generator(static_cast<uint32_t>(seed));
  for (int64_t i = 0; i < t.numel(); ++i) {
    const uint32_t kind = generator() % 12;
    if (kind == 0) x[i] *= 1e-38f;
    if (kind == 1) x[i] *= 0x1p-63f;
    if (kind == 2) x[i] = -0.0f;
  }
  return t;
}

// The bits of every variant that this processor has are those of the rule, for few rows and many.
TEST(Gemm, Bf16IsTheInstructionsRule) {
  const std::string before = variant_in_use().name;
  for (const auto& [out, in] : {std::pair{int64_t{50}, int64_t{64}}, {48, 385}, {7, 2}, {97, 1600}}) {
    const at::Tensor weight = mixed_numbers({out, in}, 21), x = mixed_numbers({40, in}, 22);
    at::Tensor in_pairs = at::zeros({40, out}), in_blocks = at::zeros({40, out});
    for (int64_t r = 0; r < 40; ++r) {
      for (int64_t j = 0; j < out; ++j) {
        const float *a = x.data_ptr<float>() + r * in, *b = weight.data_ptr<float>() + j * in;
        in_pairs.data_ptr<float>()[r * out + j] = paired(a, b, in);
        in_blocks.data_ptr<float>()[r * out + j] = blocked(a, b, in);
      }
    }
    for (const Variant& variant : variants()) {
      // Without fused operations a product below the range is lost before it is added.
      if (!variant.runs_here || std::string(variant.name) == "portable") continue;
      use_variant(variant.name);
      const at::Tensor& want = std::string(variant.name).starts_with("amx") ? in_blocks : in_pairs;
      const PackedMatrix packed = pack(weight, Precision::kBfloat16);
      for (const int64_t rows : {1, 2, 5, 12, 13, 31, 40}) {
        EXPECT_TRUE(same_bits(multiply(packed, x.narrow(0, 0, rows)), want.narrow(0, 0, rows)))
            << variant.name << ": " << out << "x" << in << ", " << rows << " rows";
      }
      at::Tensor embedding = at::empty({2, in});
      const std::vector<int32_t> columns{static_cast<int32_t>(out - 1), 0};
      gather_columns(packed.panels(), columns.data(), 2, embedding.data_ptr<float>());
      for (int64_t i = 0; i < in; ++i) {
        EXPECT_EQ(embedding.data_ptr<float>()[i], from_bf16(to_bf16(weight.data_ptr<float>()[(out - 1) * in + i])));
      }
    }
  }
  use_variant(before);
}

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
  packed.pack(b.data_ptr<float>(), 70, 30, Precision::kFloat32);
  EXPECT_TRUE(same_bits(multiply(packed, x), multiply(pack(b), x)));
}

TEST(Gemm, UnpackedIsWhatWasPacked) {
  for (const auto& [out, in] : {std::pair<int64_t, int64_t>{113, 67}, {96, 64}, {5, 3}, {240, 129}}) {
    const at::Tensor weight = random_tensor({out, in}, 3);
    for (const Precision p : {Precision::kFloat32, Precision::kBfloat16}) {
      const PackedMatrix packed = pack(weight, p);
      for (int64_t first = 0; first < out; first += kPanel) {
        const int64_t count = std::min<int64_t>(60, out - first);
        at::Tensor rows = at::empty({count, operand_width(p, in)}, at::kFloat), expected = at::empty_like(rows);
        packed.unpack(first, count, rows.data_ptr<float>());
        to_operands(weight.data_ptr<float>() + first * in, in, count, in, p, expected.data_ptr<float>());
        EXPECT_TRUE(same_bits(rows, expected)) << out << "x" << in;
      }
    }
  }
}

// A product that goes on from y, in parts and for any rows: the chain of one product over both.
TEST(Gemm, AddingGoesOnWithTheChain) {
  const at::Tensor weight = random_tensor({113, 96}, 3), x = random_tensor({37, 96}, 4);
  for (const Precision p : {Precision::kFloat32, Precision::kBfloat16}) {
    const at::Tensor whole = multiply(pack(weight, p), x);
    const PackedMatrix left = pack(weight.narrow(1, 0, 64).contiguous(), p),
                       right = pack(weight.narrow(1, 64, 32).contiguous(), p);
    at::Tensor y = multiply(left, x);
    const float* from = x.data_ptr<float>() + 64;
    right.add(from, 96, 5, y.data_ptr<float>(), 113);
    right.add(from + 5 * 96, 96, 32, y.data_ptr<float>() + 5 * 113, 113);
    EXPECT_TRUE(same_bits(y, whole));
  }
}

}  // namespace
}  // namespace gyre
