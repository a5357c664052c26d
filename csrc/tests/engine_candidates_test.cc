#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "kernels/vec.h"

namespace gyre {
namespace {

struct Row {
  explicit Row(std::vector<float> logits, double temperature)
      : z(std::move(logits)),
        inverse(static_cast<float>(1 / temperature)),
        running(ceil_div(static_cast<int64_t>(z.size()), kSoftmaxBlock)),
        score(score_row(z.data(), static_cast<int64_t>(z.size()), inverse, false, running.data())) {}

  std::vector<float> z;
  float inverse;
  std::vector<float> running;
  RowScore score;
};

// What min-p and top-k leave, by definition, the likeliest first.
std::vector<int32_t> by_definition(const Row& row, const gyre_sampling& s) {
  std::vector<int32_t> order;
  for (size_t i = 0; i < row.z.size(); ++i)
    if (s.min_p == 0 || row.z[i] * row.inverse >= row.score.max + static_cast<float>(std::log(s.min_p)))
      order.push_back(static_cast<int32_t>(i));
  std::ranges::stable_sort(order,
                           [&](int32_t a, int32_t b) { return row.z[a] * row.inverse > row.z[b] * row.inverse; });
  if (s.top_k > 0 && s.top_k < static_cast<int64_t>(order.size())) order.resize(s.top_k);
  return order;
}

TEST(Candidates, AreThoseOfTheDefinition) {
  std::mt19937 generator(3);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  for (const int vocab : {1, 5, 64, 130, 1000, 5000})
    for (const float spread : {0.2f, 1.5f, 6.0f})
      for (const bool ties : {false, true}) {
        std::vector<float> z(vocab);
        for (float& x : z) x = ties ? std::round(spread * normal(generator)) : spread * normal(generator);
        const Row row(z, 0.9);
        for (const int64_t top_k : {0, 1, 7, 40, 1000})
          for (const double top_p : {1.0, 0.05, 0.6, 0.95})
            for (const double min_p : {0.0, 0.01, 0.3, 1.0}) {
              const gyre_sampling s{.temperature = 0.9, .top_k = top_k, .top_p = top_p, .min_p = min_p};
              const std::string what = "vocabulary " + std::to_string(vocab) + ", spread " + std::to_string(spread) +
                                       ", k " + std::to_string(top_k) + ", p " + std::to_string(top_p) + ", min-p " +
                                       std::to_string(min_p);
              const auto kept = likeliest(row.z, row.inverse, s, row.score, row.running.back());
              ASSERT_FALSE(kept.empty()) << what;
              std::vector<int32_t> order = by_definition(row, s);
              const auto weight = [&](int32_t id) { return std::exp(double{row.z[id] * row.inverse - row.score.max}); };
              double total = 0, held = 0;
              for (const int32_t id : order) total += weight(id);
              // The smallest beginning of the order that holds top_p of it, up to rounding; all of it without top-p.
              ASSERT_LE(kept.size(), order.size()) << what;
              ASSERT_TRUE(top_p < 1 || kept.size() == order.size()) << what;
              order.resize(kept.size());
              for (const int32_t id : order) held += weight(id);
              EXPECT_GE(held, top_p * total * (1 - 1e-5)) << what;
              EXPECT_LT(held - weight(order.back()), top_p * total * (1 + 1e-5)) << what;
              std::ranges::sort(order);
              for (size_t i = 0; i < kept.size(); ++i) {
                ASSERT_EQ(kept[i].token, order[i]) << what;
                EXPECT_NEAR(kept[i].weight, weight(order[i]), 1e-6) << what;
              }
            }
      }
}

TEST(Candidates, ForbiddenTokensHaveNoWeight) {
  std::vector<float> z(200, -std::numeric_limits<float>::infinity());
  z[7] = z[150] = 1;
  const Row row(z, 1.0);
  for (const gyre_sampling& s : {gyre_sampling{.top_k = 5}, gyre_sampling{.top_p = 0.9}, gyre_sampling{.min_p = 0.5}}) {
    double mass = 0;
    for (const Candidate& c : likeliest(row.z, row.inverse, s, row.score, row.running.back())) {
      mass += c.weight;
      EXPECT_EQ(c.weight, c.token == 7 || c.token == 150 ? 1 : 0);
    }
    EXPECT_EQ(mass, 2);
  }
}

}  // namespace
}  // namespace gyre
