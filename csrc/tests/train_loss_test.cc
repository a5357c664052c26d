#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <stdexcept>
#include <vector>

#include "train/loss.h"

namespace gyre {
namespace {

gyre_policy_loss ppo() {
  gyre_policy_loss loss{};
  loss.objective = GYRE_POLICY_PPO;
  loss.temperature = 1;
  loss.clip_low = 0.2;
  loss.clip_high = 0.28;
  loss.clip_dual = 3;
  return loss;
}

double slope(const std::function<double(double)>& f, double x) {
  const double h = 1e-6;
  return (f(x + h) - f(x - h)) / (2 * h);
}

TEST(PolicyTerm, MatchesWorkedExample) {
  const double logprob[] = {-1, -.2, -2, -.5}, old[] = {-1.2, -.6, -.5, -.5}, advantage[] = {1, 1, -1, -2};
  const double want[] = {-1.2214028, -1.28, .8, 2.0};
  int clipped = 0;
  for (int i = 0; i < 4; ++i) {
    const TokenLoss term = policy_term(ppo(), logprob[i], old[i], advantage[i]);
    EXPECT_NEAR(term.value, want[i], 1e-6) << i;
    EXPECT_FALSE(term.clipped_lower);
    clipped += term.clipped;
  }
  EXPECT_EQ(clipped, 2);
}

TEST(PolicyTerm, DualClipBoundsNegativeAdvantages) {
  const TokenLoss term = policy_term(ppo(), -.1, -1.6, -1);
  EXPECT_DOUBLE_EQ(term.value, 3.0);
  EXPECT_DOUBLE_EQ(term.derivative, 0.0);
  EXPECT_TRUE(term.clipped_lower);
  gyre_policy_loss off = ppo();
  off.clip_dual = 0;
  EXPECT_NEAR(policy_term(off, -.1, -1.6, -1).value, 4.481689, 1e-6);
}

TEST(PolicyTerm, LogRatioIsClamped) {
  gyre_policy_loss off = ppo();
  off.clip_dual = 0;
  const TokenLoss term = policy_term(off, -1, -31, -1);
  EXPECT_NEAR(term.value / std::exp(20.0), 1, 1e-12);
  EXPECT_DOUBLE_EQ(term.derivative, 0.0);
}

TEST(PolicyTerm, DerivativeIsTheSlope) {
  for (double advantage : {-2.0, -0.5, 0.7, 3.0}) {
    for (double old : {-3.0, -1.7, -1.05, -0.97, -0.8, -0.1}) {
      const auto value = [&](double x) { return policy_term(ppo(), x, old, advantage).value; };
      EXPECT_NEAR(policy_term(ppo(), -1, old, advantage).derivative, slope(value, -1), 1e-6) << advantage << " " << old;
    }
  }
}

TEST(PolicyTerm, NegativeLogLikelihood) {
  gyre_policy_loss nll = ppo();
  nll.objective = GYRE_POLICY_NLL;
  const TokenLoss term = policy_term(nll, -1.5, NAN, NAN);
  EXPECT_DOUBLE_EQ(term.value, 1.5);
  EXPECT_DOUBLE_EQ(term.derivative, -1.0);
}

TEST(KlTerm, MatchesWorkedExample) {
  const double x[] = {-1, -.2, -2}, y[] = {-1.5, -.1, -1};
  const struct {
    gyre_kl kl;
    double want[3];
  } cases[] = {{GYRE_KL_K1, {.5, -.1, -1}},
               {GYRE_KL_ABS, {.5, .1, 1}},
               {GYRE_KL_K2, {.125, .005, .5}},
               {GYRE_KL_K3, {.106531, .005171, .718282}}};
  for (const auto& c : cases) {
    gyre_policy_loss loss = ppo();
    loss.kl = c.kl;
    for (int i = 0; i < 3; ++i) {
      EXPECT_NEAR(kl_term(loss, x[i], y[i]).value, c.want[i], 1e-6) << c.kl << " " << i;
      const auto value = [&](double at) { return kl_term(loss, at, y[i]).value; };
      EXPECT_NEAR(kl_term(loss, x[i], y[i]).derivative, slope(value, x[i]), 1e-6) << c.kl << " " << i;
    }
  }
}

TEST(KlTerm, ClampsK3) {
  gyre_policy_loss loss = ppo();
  loss.kl = GYRE_KL_K3;
  EXPECT_DOUBLE_EQ(kl_term(loss, -9, -1).value, 10.0);
  EXPECT_DOUBLE_EQ(kl_term(loss, -9, -1).derivative, 0.0);
  EXPECT_DOUBLE_EQ(kl_term(loss, -1, -40).derivative, 0.0);
}

TEST(KlTerm, StraightThroughKeepsTheValueAndTakesK2sSlope) {
  for (gyre_kl kl : {GYRE_KL_K1, GYRE_KL_ABS, GYRE_KL_K3}) {
    gyre_policy_loss plain = ppo();
    plain.kl = kl;
    gyre_policy_loss straight = plain;
    straight.kl_straight_through = 1;
    EXPECT_DOUBLE_EQ(kl_term(straight, -2, -1.2).value, kl_term(plain, -2, -1.2).value);
    EXPECT_DOUBLE_EQ(kl_term(straight, -2, -1.2).derivative, -0.8);
  }
}

TEST(ValueTerm, TakesTheLargerBranch) {
  const TokenLoss inside = value_term(1.3, 2, 1, 0.5);
  EXPECT_DOUBLE_EQ(inside.value, 0.5 * 0.7 * 0.7);
  EXPECT_NEAR(inside.derivative, -0.7, 1e-12);
  const TokenLoss clipped = value_term(1.9, 2, 1, 0.5);  // clipped to 1.5: the larger error
  EXPECT_DOUBLE_EQ(clipped.value, 0.125);
  EXPECT_DOUBLE_EQ(clipped.derivative, 0.0);
  EXPECT_TRUE(clipped.clipped);
  EXPECT_DOUBLE_EQ(value_term(1.9, 2, NAN, 0).value, 0.5 * (1.9 - 2) * (1.9 - 2));
}

TEST(PolicyLoss, RejectsFieldsOutOfRange) {
  const std::vector<std::function<void(gyre_policy_loss&)>> breaks = {
      [](auto& l) { l.temperature = 0; }, [](auto& l) { l.clip_low = -1; }, [](auto& l) { l.clip_high = NAN; },
      [](auto& l) { l.clip_dual = 0.5; }, [](auto& l) { l.kl = 9; },        [](auto& l) { l.objective = 7; }};
  EXPECT_NO_THROW(validate(ppo()));
  for (const auto& change : breaks) {
    gyre_policy_loss loss = ppo();
    change(loss);
    EXPECT_THROW(validate(loss), std::invalid_argument);
  }
}

}  // namespace
}  // namespace gyre
