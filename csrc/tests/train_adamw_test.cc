#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/train_fixture.h"
#include "train/adamw.h"

namespace gyre {
namespace {

using train_test::tiny_decoder;

constexpr gyre_adamw_config kConfig{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01};

TEST(AdamW, TenStepsMatchTorch) {
  auto decoder = tiny_decoder();
  AdamW adamw(*decoder, kConfig);
  std::vector<at::Tensor> p, m, v, steps;
  for (const at::Tensor& flat : decoder->parameters().flats()) {
    p.push_back(flat.clone());
    m.push_back(at::zeros_like(flat));
    v.push_back(at::zeros_like(flat));
    steps.push_back(at::zeros({}));
  }
  Gradients gradients(decoder->config());
  const double lr = 1e-2, max_norm = 1.0;
  for (uint32_t step = 1; step <= 10; ++step) {
    // Through the named tensors, so that the padding between parameters stays zero as in a backward pass.
    for (NamedTensor& named : gradients.set().named)
      named.value.copy_(at::empty_like(named.value).normal_(0, 0.2 * step));
    std::vector<at::Tensor> g;
    double squares = 0;
    for (const at::Tensor& flat : gradients.set().flats())
      squares += flat.to(at::kDouble).square().sum().item<double>();
    const double norm = std::sqrt(squares);
    for (const at::Tensor& flat : gradients.set().flats()) g.push_back(flat * std::min(1.0, max_norm / (norm + 1e-6)));
    for (at::Tensor& s : steps) s.add_(1);
    at::_fused_adamw_(p, g, m, v, {}, steps, lr, kConfig.beta1, kConfig.beta2, kConfig.weight_decay, kConfig.eps, false,
                      false);

    const StepOutcome outcome = adamw.step(gradients, lr, max_norm);
    EXPECT_TRUE(outcome.applied);
    EXPECT_NEAR(outcome.grad_norm, norm, 1e-9 * norm);
  }
  EXPECT_EQ(adamw.steps(), 10);
  const auto got = decoder->parameters().flats();
  for (size_t k = 0; k < got.size(); ++k) {
    EXPECT_TRUE(at::allclose(got[k], p[k], 1e-6, 1e-6));
    EXPECT_TRUE(at::allclose(adamw.first_moment().flats()[k], m[k], 1e-5, 1e-9));
    EXPECT_TRUE(at::allclose(adamw.second_moment().flats()[k], v[k], 1e-5, 1e-12));
  }
}

TEST(AdamW, NonFiniteGradientChangesNothing) {
  auto decoder = tiny_decoder();
  AdamW adamw(*decoder, kConfig);
  const uint64_t version = decoder->version();
  const at::Tensor before = decoder->parameters().root.flat_P.clone();
  for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Gradients gradients(decoder->config());
    gradients.set().named.back().value.view(-1)[0] = bad;
    const StepOutcome outcome = adamw.step(gradients, 1e-2, 1);
    EXPECT_FALSE(outcome.applied);
    EXPECT_FALSE(std::isfinite(outcome.grad_norm));
  }
  EXPECT_EQ(adamw.steps(), 0);
  EXPECT_EQ(decoder->version(), version);
  EXPECT_TRUE(at::equal(before, decoder->parameters().root.flat_P));
  EXPECT_EQ(adamw.first_moment().root.flat_P.abs().max().item<float>(), 0);
}

}  // namespace
}  // namespace gyre
