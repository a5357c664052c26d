#include "train/gradients.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/train_fixture.h"

namespace gyre {
namespace {

struct Three {
  explicit Three(const ModelConfig& config) : a(config), b(config), c(config) {
    testing::fill_normal(a.set().flats(), 1, 1);
    testing::fill_normal(b.set().flats(), 2, 1);
    b.add(a, 1);
    c.add(a, 1);
    c.add(b, 1);
  }
  Gradients a, b, c;
};

TEST(Gradients, ProductsAreDotsBitForBit) {
  const Three g(train_test::tiny_config());
  const std::vector<const Gradients*> list = {&g.a, &g.b, &g.c, &g.b, &g.a, &g.c, &g.b};
  const size_t n = g.a.set().named.size();
  std::vector<double> products(28 * n), expected(n);
  Gradients::products(list, products);
  size_t pair = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    for (size_t j = i; j < list.size(); ++j, ++pair) {
      list[i]->dot(*list[j], expected);
      for (size_t k = 0; k < n; ++k) EXPECT_EQ(products[pair * n + k], expected[k]) << i << " " << j << " " << k;
    }
  }
}

std::vector<float> sketch(const Gradients& g, size_t dimension) {
  std::vector<float> out(dimension, 1.0f);
  g.sketch(out);
  return out;
}

TEST(Gradients, SketchesKeepInnerProductsAndAddUp) {
  const Three g(train_test::tiny_config());
  // Averaged over dimensions, hence over collisions: the estimates scatter around the inner product.
  double sum = 0, squares = 0;
  int n = 0;
  for (size_t dimension = 97; dimension < 297; dimension += 2, ++n) {
    const std::vector<float> a = sketch(g.a, dimension), b = sketch(g.b, dimension), c = sketch(g.c, dimension);
    double product = 0;
    for (size_t i = 0; i < dimension; ++i) {
      product += static_cast<double>(a[i]) * b[i];
      ASSERT_NEAR(c[i], a[i] + b[i], 1e-3);
    }
    sum += product;
    squares += product * product;
  }
  const double mean = sum / n, deviation = std::sqrt(squares / n - mean * mean);
  EXPECT_NEAR(mean, g.a.dot(g.b, {}), 4 * deviation / std::sqrt(n));
  EXPECT_GT(deviation, 0);
}

TEST(Gradients, ASketchThatHoldsEverythingKeepsNorms) {
  const Three g(train_test::tiny_config());
  double square = 0;
  for (float v : sketch(g.a, 1 << 20)) square += static_cast<double>(v) * v;
  EXPECT_NEAR(square, g.a.dot(g.a, {}), 1e-9 * square);
}

}  // namespace
}  // namespace gyre
