#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "train/losses/loss.h"

namespace gyre {
namespace {

constexpr double kClips[] = {0.2, 0.28, 3}, kNoDual[] = {0.2, 0.28, 0};

TokenLoss ppo(double logprob, double old_logprob, double advantage, const double* constants = kClips) {
  return policy_loss(0).token({.logprob = logprob, .old_logprob = old_logprob, .advantage = advantage}, constants);
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
    const TokenLoss term = ppo(logprob[i], old[i], advantage[i]);
    EXPECT_NEAR(term.value, want[i], 1e-6) << i;
    EXPECT_FALSE(term.clipped_lower);
    clipped += term.clipped;
  }
  EXPECT_EQ(clipped, 2);
}

TEST(PolicyTerm, DualClipBoundsNegativeAdvantages) {
  const TokenLoss term = ppo(-.1, -1.6, -1);
  EXPECT_DOUBLE_EQ(term.value, 3.0);
  EXPECT_DOUBLE_EQ(term.derivative, 0.0);
  EXPECT_TRUE(term.clipped_lower);
  EXPECT_NEAR(ppo(-.1, -1.6, -1, kNoDual).value, 4.481689, 1e-6);
}

TEST(PolicyTerm, LogRatioIsClamped) {
  const TokenLoss term = ppo(-1, -31, -1, kNoDual);
  EXPECT_NEAR(term.value / std::exp(20.0), 1, 1e-12);
  EXPECT_DOUBLE_EQ(term.derivative, 0.0);
}

TEST(PolicyTerm, DerivativeIsTheSlope) {
  for (double advantage : {-2.0, -0.5, 0.7, 3.0}) {
    for (double old : {-3.0, -1.7, -1.05, -0.97, -0.8, -0.1}) {
      const auto value = [&](double x) { return ppo(x, old, advantage).value; };
      EXPECT_NEAR(ppo(-1, old, advantage).derivative, slope(value, -1), 1e-6) << advantage << " " << old;
    }
  }
}

TEST(PolicyTerm, NegativeLogLikelihood) {
  const TokenLoss term = policy_loss(1).token({.logprob = -1.5, .old_logprob = NAN, .advantage = NAN}, nullptr);
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
    gyre_policy_loss loss{};
    loss.kl = c.kl;
    for (int i = 0; i < 3; ++i) {
      EXPECT_NEAR(kl_term(loss, x[i], y[i]).value, c.want[i], 1e-6) << c.kl << " " << i;
      const auto value = [&](double at) { return kl_term(loss, at, y[i]).value; };
      EXPECT_NEAR(kl_term(loss, x[i], y[i]).derivative, slope(value, x[i]), 1e-6) << c.kl << " " << i;
    }
  }
}

TEST(KlTerm, ClampsK3) {
  gyre_policy_loss loss{};
  loss.kl = GYRE_KL_K3;
  EXPECT_DOUBLE_EQ(kl_term(loss, -9, -1).value, 10.0);
  EXPECT_DOUBLE_EQ(kl_term(loss, -9, -1).derivative, 0.0);
  EXPECT_DOUBLE_EQ(kl_term(loss, -1, -40).derivative, 0.0);
}

TEST(KlTerm, StraightThroughKeepsTheValueAndTakesK2sSlope) {
  for (gyre_kl kl : {GYRE_KL_K1, GYRE_KL_ABS, GYRE_KL_K3}) {
    gyre_policy_loss plain{};
    plain.kl = kl;
    gyre_policy_loss straight = plain;
    straight.kl_straight_through = true;
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

// Where a clip begins to act and where it does not yet.
TEST(PolicyTerm, EdgesBelongToTheInside) {
  const double none[] = {0, 0, 3};  // the ratio of equal policies lies on both edges
  for (double advantage : {-1.5, 1.5}) {
    const TokenLoss term = ppo(-1, -1, advantage, none);
    EXPECT_FALSE(term.clipped);
    EXPECT_DOUBLE_EQ(term.derivative, -advantage);
  }
  const double dual[] = {0.2, 0.28, std::exp(1.5)};  // the ratio itself
  TokenLoss term = ppo(-0.5, -2, -2, dual);
  EXPECT_FALSE(term.clipped_lower);
  EXPECT_DOUBLE_EQ(term.derivative, 2 * std::exp(1.5));
  term = ppo(-0.4, -2, -2, dual);
  EXPECT_TRUE(term.clipped_lower);
  EXPECT_DOUBLE_EQ(term.value, 2 * std::exp(1.5));
  EXPECT_DOUBLE_EQ(ppo(-1, -21, -1, kNoDual).derivative, std::exp(20.0));
  EXPECT_DOUBLE_EQ(ppo(-1, -21.001, -1, kNoDual).derivative, 0);
  EXPECT_NEAR(ppo(-41, -1, -1, kNoDual).value, 0.8, 1e-12);  // clamped below, then clipped
  EXPECT_DOUBLE_EQ(ppo(-41, -1, 1, kNoDual).value, -std::exp(-20.0));
  EXPECT_FALSE(ppo(-1, -1, 0, kNoDual).clipped);
}

TEST(KlTerm, EdgesAndDefaults) {
  gyre_policy_loss loss{};
  loss.kl = GYRE_KL_ABS;
  EXPECT_DOUBLE_EQ(kl_term(loss, -1, -1).derivative, 0);
  EXPECT_DOUBLE_EQ(kl_term(loss, -1, -2).derivative, 1);
  EXPECT_DOUBLE_EQ(kl_term(loss, -2, -1).derivative, -1);
  loss.kl = GYRE_KL_NONE;
  EXPECT_DOUBLE_EQ(kl_term(loss, -1, -3).value, 0);
  EXPECT_DOUBLE_EQ(kl_term(loss, -1, -3).derivative, 0);
  loss.kl = GYRE_KL_K3;
  EXPECT_DOUBLE_EQ(kl_term(loss, -1, -40).value, 10);  // e^-20 - 1 + 20 and more
  EXPECT_NEAR(kl_term(loss, -1, -11.5).value, std::exp(-10.5) - 1 + 10.5, 1e-12);
  EXPECT_NEAR(kl_term(loss, -1, -11.5).derivative, 1 - std::exp(-10.5), 1e-12);
}

TEST(ValueTerm, EdgesBelongToTheInside) {
  const TokenLoss equal = value_term(1.5, 2, 1, 0.5);  // as far as the clip allows: both branches are the same
  EXPECT_FALSE(equal.clipped);
  EXPECT_DOUBLE_EQ(equal.derivative, -0.5);
  const TokenLoss below = value_term(0.1, 0, 1, 0.5);  // clipped to 0.5
  EXPECT_TRUE(below.clipped);
  EXPECT_DOUBLE_EQ(below.value, 0.125);
  const TokenLoss further = value_term(-3, 2, 1, 0.5);  // clipped to 0.5, where the error is smaller
  EXPECT_FALSE(further.clipped);
  EXPECT_DOUBLE_EQ(further.derivative, -5);
  EXPECT_FALSE(value_term(5, 2, 1, 0).clipped);
}

// The table says of each loss what its constants are, and has names once.
TEST(PolicyLoss, TheTableIsWhole) {
  std::set<std::string> names;
  int32_t count = 0;
  for (gyre_loss loss = gyre_loss_at(0); loss.name != nullptr; loss = gyre_loss_at(++count)) {
    EXPECT_TRUE(names.insert(loss.name).second) << loss.name;
    EXPECT_STREQ(policy_loss(count).name, loss.name);
    for (const gyre_loss_constant& c : loss.constants) EXPECT_EQ(c.name == nullptr, c.range == nullptr) << loss.name;
  }
  EXPECT_TRUE(names.contains("ppo") && names.contains("nll"));
  for (int32_t beside : {-1, count}) EXPECT_THROW(policy_loss(beside), std::invalid_argument);
}

}  // namespace
}  // namespace gyre
