#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "model/config.h"
#include "tests/threads.h"
#include "tests/train_fixture.h"
#include "train/passes.h"

namespace gyre {
namespace {

using train_test::OwnedBatch;
using train_test::random_batch;
using train_test::tiny_decoder;

gyre_value_stats run(Decoder& critic, const OwnedBatch& b, double clip, Gradients& into, float* out = nullptr) {
  return value_backward(critic, b.view(), b.returns.data(), b.old_values.data(), b.weights.data(), clip, into, out);
}

TEST(ValueBackward, GradientIsTheSlopeOfTheLoss) {
  auto critic = tiny_decoder(GYRE_HEAD_VALUE);
  OwnedBatch b = random_batch({9, 5, 7});
  train_test::share_prefix(b, 0, 2, 6);
  for (double clip : {0.0, 0.5}) {
    Gradients g(critic->config());
    run(*critic, b, clip, g);
    const double norm = std::sqrt(g.dot(g, {})), step = 1e-3;
    ASSERT_GT(norm, 0);
    const auto loss_at = [&](double distance) {
      auto moved = tiny_decoder(GYRE_HEAD_VALUE);
      const auto to = moved->parameters().flats(), along = g.set().flats();
      for (size_t k = 0; k < to.size(); ++k) to[k].add_(along[k], distance / norm);
      moved->touch();
      Gradients unused(critic->config());
      return run(*moved, b, clip, unused).loss;
    };
    EXPECT_NEAR((loss_at(step) - loss_at(-step)) / (2 * step), norm, 5e-3 * norm) << clip;
  }
}

TEST(ValueBackward, SharedPrefixesChangeRoundingOnly) {
  auto critic = tiny_decoder(GYRE_HEAD_VALUE);
  OwnedBatch b = random_batch({30, 41, 25, 30});
  for (int64_t s : {1, 2, 3}) train_test::share_prefix(b, 0, s, 18);
  Gradients whole(critic->config()), parts(critic->config());
  std::vector<float> together(b.ids.size()), alone(b.ids.size());
  run(*critic, b, 0.5, whole, together.data());
  for (int64_t s = 0; s < 4; ++s) {
    const OwnedBatch one = train_test::slice(b, s, s + 1);
    run(*critic, one, 0.5, parts, &alone[b.offsets[s]]);
  }
  EXPECT_EQ(together, alone);
  EXPECT_LT(train_test::relative_distance(whole, parts), 1e-5);
}

TEST(ValueBackward, ValuesSeeOnlyEarlierTokens) {
  auto critic = tiny_decoder(GYRE_HEAD_VALUE);
  OwnedBatch b = random_batch({8});
  std::fill(b.mask.begin() + 1, b.mask.end(), 1);
  std::vector<float> before(8), after(8);
  Gradients g(critic->config());
  const gyre_value_stats stats = run(*critic, b, 0, g, before.data());
  EXPECT_EQ(stats.tokens, 7);
  EXPECT_EQ(before[0], 0);
  b.ids[4] = (b.ids[4] + 1) % 37;
  evaluate_critic(*critic, b.view(), after.data());
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 5, after.begin()));  // V[4] is the state before token 4
  EXPECT_NE(before[5], after[5]);
}

TEST(ValueBackward, RejectsThePolicyAndReportsDivergence) {
  auto policy = tiny_decoder();
  Gradients policy_gradients(policy->config());
  EXPECT_THROW(run(*policy, random_batch({4}), 0, policy_gradients), std::invalid_argument);
  auto critic = tiny_decoder(GYRE_HEAD_VALUE);
  EXPECT_THROW(run(*critic, random_batch({4}), 0, policy_gradients), std::invalid_argument);
  critic->parameters().root.score_1H.fill_(INFINITY);
  critic->touch();
  Gradients g(critic->config());
  EXPECT_THROW(run(*critic, random_batch({6}), 0, g), NotFiniteError);
  EXPECT_EQ(g.dot(g, {}), 0);
}

TEST(Gradients, DotIsTheSameForAnyNumberOfThreads) {
  const ModelConfig config = train_test::tiny_config();
  Gradients a(config), b(config);
  testing::fill_normal(a.set().flats(), 1, 1);
  testing::fill_normal(b.set().flats(), 2, 1);
  std::vector<double> parts(a.set().named.size());
  double one = 0;
  {
    const Threads single(1);
    one = a.dot(b, parts);
  }
  for (int threads : {2, 3}) {
    const Threads several(threads);
    EXPECT_EQ(a.dot(b, {}), one);
  }
  double sum = 0, want = 0;
  for (double part : parts) sum += part;
  for (size_t i = 0; i < parts.size(); ++i) {
    want += (a.set().named[i].value.to(at::kDouble) * b.set().named[i].value).sum().item<double>();
  }
  EXPECT_EQ(sum, one);
  EXPECT_NEAR(one, want, 1e-9 * std::abs(want));
}

}  // namespace
}  // namespace gyre
