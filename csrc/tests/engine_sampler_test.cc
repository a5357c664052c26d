#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "engine/sampler.h"
#include "model/config.h"

namespace gyre {
namespace {

std::vector<float> random_logits(int count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, 1.5f);
  std::vector<float> logits(count);
  for (float& z : logits) z = normal(generator);
  return logits;
}

// The distribution that the sampling parameters ask for, by definition: sort everything, cut, renormalise, in f64.
std::vector<double> reference_distribution(const std::vector<float>& logits, const gyre_sampling& s,
                                           const std::set<int>& banned = {}) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int i) { return banned.contains(i); });
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  std::vector<double> p(logits.size(), 0.0);
  const auto normalise = [&] {
    double total = 0;
    for (int i : order) total += p[i];
    for (int i : order) p[i] /= total;
  };
  const auto cut = [&](size_t keep) {
    for (size_t r = keep; r < order.size(); ++r) p[order[r]] = 0;
    order.resize(std::min(keep, order.size()));
    normalise();
  };
  for (int i : order) p[i] = std::exp((logits[i] - logits[order[0]]) / s.temperature);
  normalise();
  if (s.min_p > 0) cut(std::count_if(order.begin(), order.end(), [&](int i) { return p[i] >= s.min_p * p[order[0]]; }));
  if (s.top_k > 0) cut(s.top_k);
  if (s.top_p < 1) {
    double mass = 0;
    size_t keep = 0;
    while (keep < order.size() && mass < s.top_p) mass += p[order[keep++]];
    cut(keep);
  }
  return p;
}

// Draws many times and compares the frequencies with the reference by a chi-square test at about five sigma; every
// token drawn must have positive probability and the reference's log-prob.
void expect_distribution(const std::vector<float>& logits, gyre_sampling s, const std::vector<int32_t>& banned = {},
                         int draws = 10000) {
  const std::vector<double> p = reference_distribution(logits, s, {banned.begin(), banned.end()});
  const gyre_sampling plain{.temperature = s.temperature};
  const std::vector<double> policy = reference_distribution(logits, plain);
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) {
    s.seed = 1000 + i;
    const Draw d = draw_token(logits, s, i % 7, banned);
    ASSERT_GT(p[d.token], 0.0) << "token " << d.token << " was filtered out";
    ASSERT_NEAR(d.sampling_logprob, std::log(p[d.token]), 2e-5);
    ASSERT_NEAR(d.logprob, std::log(policy[d.token]), 2e-5);
    ++counts[d.token];
  }
  double chi2 = 0, rest_expected = 0, rest_seen = 0;
  int cells = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double expected = p[i] * draws;
    if (expected < 5) {
      rest_expected += expected;
      rest_seen += counts[i];
      continue;
    }
    chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
    ++cells;
  }
  if (rest_expected >= 5) {
    chi2 += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
    ++cells;
  }
  const double freedom = std::max(cells - 1, 1);
  EXPECT_LT(chi2, freedom + 5 * std::sqrt(2 * freedom) + 5) << cells << " cells";
}

// Known answers published with Random123.
TEST(Random, PhiloxKnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, UniformIsKeyedBySeedAndPosition) {
  std::set<double> seen;
  double sum = 0;
  for (uint64_t seed = 0; seed < 100; ++seed)
    for (uint64_t position = 0; position < 100; ++position) {
      const double u = uniform(seed, position);
      EXPECT_GE(u, 0.0);
      EXPECT_LT(u, 1.0);
      EXPECT_EQ(u, uniform(seed, position));
      seen.insert(u);
      sum += u;
    }
  EXPECT_EQ(seen.size(), 10000u);
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

TEST(Sampler, Temperature) {
  for (const double t : {0.5, 1.0, 2.0}) expect_distribution(random_logits(300, 1), {.temperature = t});
}
TEST(Sampler, TopK) { expect_distribution(random_logits(300, 2), {.temperature = 0.9, .top_k = 12}); }
TEST(Sampler, TopKLargerThanVocabulary) { expect_distribution(random_logits(30, 2), {.top_k = 64}); }
TEST(Sampler, TopP) {
  for (const double top_p : {0.05, 0.6, 0.95, 0.9999})
    expect_distribution(random_logits(300, 3), {.temperature = 1.2, .top_p = top_p});
}
TEST(Sampler, MinP) { expect_distribution(random_logits(300, 4), {.min_p = 0.08}); }
TEST(Sampler, AllFilters) {
  expect_distribution(random_logits(300, 5), {.temperature = 1.4, .top_k = 40, .top_p = 0.9, .min_p = 0.02});
}
// Vocabularies of many blocks, where only likely tokens are looked at: every parameter and their combinations.
TEST(Sampler, LargeVocabulary) {
  const std::vector<float> logits = random_logits(1501, 7);
  const std::vector<gyre_sampling> cases = {
      {.temperature = 1.3},
      {.temperature = 0.7, .top_k = 30},
      {.top_k = 24},  // as many as there are blocks
      {.top_k = 600},
      {.temperature = 0.4, .top_p = 0.5},
      {.top_p = 0.97},
      {.min_p = 0.05},
      {.top_k = 30, .top_p = 0.8},
      {.top_k = 900, .top_p = 0.8},
      {.top_k = 30, .min_p = 0.1},
      {.top_p = 0.8, .min_p = 0.02},
      {.temperature = 1.5, .top_k = 200, .top_p = 0.9, .min_p = 0.01},
  };
  for (const gyre_sampling& s : cases)
    for (const std::vector<int32_t>& banned : {std::vector<int32_t>{}, {3, 64, 1500, -1, 1501, 9999}})
      expect_distribution(logits, s, banned, 1500);
}

TEST(Sampler, BannedTokensAreNotDrawnButCountInTheLogprob) {
  const std::vector<float> logits = random_logits(50, 6);
  const auto best = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  expect_distribution(logits, {.temperature = 0.8}, {best, 3, 49});
  expect_distribution(logits, {.top_k = 5}, {best, 3, 49});
}

TEST(Sampler, GreedyTakesTheLowestIdOnTies) {
  const std::vector<float> logits = {0.5f, 2.0f, -1.0f, 2.0f, 2.0f};
  EXPECT_EQ(draw_token(logits, {.temperature = 0}, 0, {}).token, 1);
  const std::vector<int32_t> banned = {1};
  const Draw d = draw_token(logits, {.temperature = 0}, 0, banned);
  EXPECT_EQ(d.token, 3);
  EXPECT_EQ(d.sampling_logprob, 0.0f);
  const std::vector<double> p = reference_distribution(logits, {.temperature = 1});
  EXPECT_NEAR(d.logprob, std::log(p[3]), 1e-6) << "greedy log-probs are those of temperature 1";
}

TEST(Sampler, TopKKeepsLowerIdsOnTies) {
  const std::vector<float> logits(20, 1.0f);
  std::set<int32_t> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) seen.insert(draw_token(logits, {.top_k = 3, .seed = seed}, 0, {}).token);
  EXPECT_EQ(seen, (std::set<int32_t>{0, 1, 2}));
}

TEST(Sampler, ReachesBothEndsOfTheVocabulary) {
  const std::vector<float> logits(131, 0.0f);
  std::set<int32_t> seen;
  for (uint64_t seed = 0; seed < 3000; ++seed) seen.insert(draw_token(logits, {.seed = seed}, 0, {}).token);
  EXPECT_EQ(seen.size(), 131u);
}

// The blocks' sums are floats: where they round above the sum of the weights, a draw next to 1 finds no token there.
TEST(Sampler, DrawsBeyondTheSumAreTheLastLikelyToken) {
  constexpr uint64_t kNextToOne = 67750675;
  ASSERT_GT(uniform(kNextToOne, 0), 1 - 1e-9);
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::vector<float> logits = random_logits(90, seed);
    logits[89] = 0;
    logits.resize(100, -std::numeric_limits<float>::infinity());
    logits.resize(128, 9.0f);  // none of its business
    const Draw d = draw_token(std::span(logits).first(100), {.seed = kNextToOne}, 0, {});
    EXPECT_EQ(d.token, 89) << "seed " << seed;
  }
}

TEST(Sampler, LogitsThatAreNotFiniteAreAnError) {
  std::vector<float> logits = random_logits(40, 8);
  logits[20] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(draw_token(logits, {}, 0, {}), NotFiniteError);
  EXPECT_THROW(draw_token(logits, {.temperature = 0}, 0, {}), NotFiniteError);
}

TEST(Sampler, BanningEverythingIsAnError) {
  const std::vector<float> logits = {0, 1};
  const std::vector<int32_t> banned = {0, 1};
  EXPECT_THROW(draw_token(logits, {}, 0, banned), std::invalid_argument);
}

}  // namespace
}  // namespace gyre
