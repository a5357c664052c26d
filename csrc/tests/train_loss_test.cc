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
  gyre_policy_loss loss = ppo();
  loss.clip_low = loss.clip_high = 0;  // the ratio of equal policies lies on both edges
  for (double advantage : {-1.5, 1.5}) {
    const TokenLoss term = policy_term(loss, -1, -1, advantage);
    EXPECT_FALSE(term.clipped);
    EXPECT_DOUBLE_EQ(term.derivative, -advantage);
  }
  loss = ppo();
  loss.clip_dual = std::exp(1.5);  // the ratio itself
  TokenLoss term = policy_term(loss, -0.5, -2, -2);
  EXPECT_FALSE(term.clipped_lower);
  EXPECT_DOUBLE_EQ(term.derivative, 2 * std::exp(1.5));
  term = policy_term(loss, -0.4, -2, -2);
  EXPECT_TRUE(term.clipped_lower);
  EXPECT_DOUBLE_EQ(term.value, 2 * std::exp(1.5));
  loss = ppo();
  loss.clip_dual = 0;
  EXPECT_DOUBLE_EQ(policy_term(loss, -1, -21, -1).derivative, std::exp(20.0));
  EXPECT_DOUBLE_EQ(policy_term(loss, -1, -21.001, -1).derivative, 0);
  EXPECT_NEAR(policy_term(loss, -41, -1, -1).value, 0.8, 1e-12);  // clamped below, then clipped
  EXPECT_DOUBLE_EQ(policy_term(loss, -41, -1, 1).value, -std::exp(-20.0));
  EXPECT_FALSE(policy_term(loss, -1, -1, 0).clipped);
}

TEST(KlTerm, EdgesAndDefaults) {
  gyre_policy_loss loss = ppo();
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
  EXPECT_TRUE(has_kl(loss));
  loss.objective = GYRE_POLICY_NLL;
  EXPECT_FALSE(has_kl(loss));
  loss.objective = GYRE_POLICY_PPO, loss.kl = GYRE_KL_NONE;
  EXPECT_FALSE(has_kl(loss));
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

TEST(PolicyLoss, RejectsFieldsOutOfRange) {
  const std::vector<std::function<void(gyre_policy_loss&)>> breaks = {[](auto& l) { l.temperature = 0; },
                                                                      [](auto& l) { l.clip_low = -1; },
                                                                      [](auto& l) { l.clip_high = NAN; },
                                                                      [](auto& l) { l.clip_dual = 0.5; },
                                                                      [](auto& l) { l.kl = 5; },
                                                                      [](auto& l) { l.objective = 7; },
                                                                      [](auto& l) { l.clip_low = 1.5; },
                                                                      [](auto& l) { l.clip_dual = 1; },
                                                                      [](auto& l) { l.entropy_coef = NAN; },
                                                                      [](auto& l) { l.kl_coef = NAN; },
                                                                      [](auto& l) { l.kl = -1; },
                                                                      [](auto& l) { l.objective = -1; },
                                                                      [](auto& l) { l.clip_high = -1; },
                                                                      [](auto& l) { l.clip_low = NAN; },
                                                                      [](auto& l) { l.temperature = INFINITY; },
                                                                      [](auto& l) { l.clip_dual = INFINITY; },
                                                                      [](auto& l) { l.clip_high = INFINITY; }};
  const std::vector<std::function<void(gyre_policy_loss&)>> edges = {[](auto& l) { l.clip_low = l.clip_high = 0; },
                                                                     [](auto& l) { l.clip_low = 1; },
                                                                     [](auto& l) { l.clip_dual = 0; },
                                                                     [](auto& l) { l.clip_dual = 1.001; },
                                                                     [](auto& l) { l.kl = GYRE_KL_K3; },
                                                                     [](auto& l) { l.objective = GYRE_POLICY_NLL; },
                                                                     [](auto& l) { l.entropy_coef = -1; },
                                                                     [](auto& l) { l.temperature = 1e-3; }};
  for (const auto& change : edges) {
    gyre_policy_loss loss = ppo();
    change(loss);
    EXPECT_NO_THROW(validate(loss));
  }
  for (const auto& change : breaks) {
    gyre_policy_loss loss = ppo();
    change(loss);
    EXPECT_THROW(validate(loss), std::invalid_argument) << &change - breaks.data();
  }
}

}  // namespace
}  // namespace gyre
