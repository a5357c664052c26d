// A mixture of experts against a plain one that lets every expert compute every row.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "backend/cpu/experts.h"
#include "model/routing.h"
#include "tests/model_fixture.h"
#include "tests/reference_decoder.h"
#include "tests/threads.h"

namespace gyre {
namespace {

using testing::random_tensor;
using testing::relative_error;
using testing::same_bits;

gyre_shape shape_of(int64_t experts, int64_t chosen, bool normalized) {
  gyre_shape s{};
  s.experts = experts, s.chosen_experts = chosen, s.normalized_routing = normalized;
  return s;
}

// Few different logits, so that many are equal.
at::Tensor logits_with_ties(int64_t rows, int64_t experts) {
  return at::round(random_tensor({rows, experts}, 3) * 2).contiguous();
}

TEST(Routes, RowsGoToTheLargestLogitsAndTheFirstOfEqualOnes) {
  constexpr int64_t kRows = 131;
  for (const auto& [experts, chosen] : {std::pair<int64_t, int64_t>{7, 3}, {5, 5}, {1, 1}, {64, 8}}) {
    for (const bool normalized : {false, true}) {
      const gyre_shape shape = shape_of(experts, chosen, normalized);
      const at::Tensor logits = logits_with_ties(kRows, experts);
      const Routes routes(shape, floats(logits), kRows);
      const at::Tensor p = logits.to(at::kDouble).softmax(-1);
      std::vector<std::vector<std::pair<int32_t, double>>> expected(static_cast<size_t>(experts));
      for (int32_t r = 0; r < kRows; ++r) {
        const float* row = floats(logits) + r * experts;
        std::vector<int64_t> order(static_cast<size_t>(experts));
        std::iota(order.begin(), order.end(), 0);
        std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return row[a] > row[b]; });
        order.resize(static_cast<size_t>(chosen));
        double sum = 0;
        for (const int64_t e : order) sum += p[r][e].item<double>();
        for (const int64_t e : order) {
          expected[static_cast<size_t>(e)].emplace_back(r, p[r][e].item<double>() / (normalized ? sum : 1));
        }
      }
      ASSERT_EQ(routes.pairs(), kRows * chosen);
      for (size_t e = 0; e < expected.size(); ++e) {
        const auto own = routes.rows_of(e);
        ASSERT_EQ(own.size(), expected[e].size()) << e;
        for (size_t i = 0; i < own.size(); ++i) {
          EXPECT_EQ(own[i], expected[e][i].first);
          EXPECT_NEAR(routes.weights[static_cast<size_t>(routes.first[e]) + i], expected[e][i].second, 1e-7);
        }
      }
    }
  }
}

TEST(Routes, GradientsAreThoseOfTheSoftmax) {
  constexpr int64_t kRows = 70, kExperts = 7, kChosen = 3;
  for (const bool normalized : {false, true}) {
    const gyre_shape shape = shape_of(kExperts, kChosen, normalized);
    const at::Tensor logits = random_tensor({kRows, kExperts}, 5);
    const Routes routes(shape, floats(logits), kRows);
    const at::Tensor d = random_tensor({routes.pairs()}, 6);
    at::Tensor d_logits = at::ones({kRows, kExperts});  // gradients are added
    routes.backward({floats(d), static_cast<size_t>(d.numel())}, floats(d_logits));

    const at::Tensor l = logits.to(at::kDouble).set_requires_grad(true), p = l.softmax(-1);
    at::Tensor loss = at::zeros({}, at::kDouble);
    for (size_t e = 0; e < kExperts; ++e) {
      for (int64_t i = routes.first[e]; i < routes.first[e + 1]; ++i) {
        const int64_t row = routes.rows[static_cast<size_t>(i)];
        at::Tensor weight = p[row][static_cast<int64_t>(e)];
        if (normalized) weight = weight / std::get<0>(p[row].topk(kChosen)).sum();
        loss = loss + d[i] * weight;
      }
    }
    loss.backward();
    EXPECT_LT(relative_error(d_logits - 1, l.grad().to(at::kFloat)), 1e-6);
  }
}

class MixtureTest : public ::testing::TestWithParam<gyre_compute> {
 protected:
  static constexpr int64_t kRows = 53, kHidden = 35, kWidth = 27, kExperts = 7;

  MixtureTest() {
    config_.compute = GetParam();
    config_.hidden_size = kHidden;
    config_.shape = shape_of(kExperts, 3, true);
    config_.shape.expert_size = kWidth;
    weights_ = tensors([](at::IntArrayRef sizes, uint64_t seed) { return random_tensor(sizes, seed) * 0.3; });
    packed_.pack(weights_, config_.precision(), false);
  }
  template <class Make>
  static BlockTensors tensors(Make&& make) {
    BlockTensors b;
    b.router_EH = make({kExperts, kHidden}, 1);
    b.expert_gate_up_XH = make({kExperts * 2 * kWidth, kHidden}, 2);
    b.expert_down_YF = make({kExperts * kHidden, kWidth}, 3);
    return b;
  }
  int64_t pairs(int64_t rows) const { return rows * config_.shape.chosen_experts; }
  double tolerance() const { return GetParam() == GYRE_COMPUTE_BF16 ? 0.02 : 2e-6; }

  // What the experts add to ones.
  at::Tensor forward(const at::Tensor& x, ExpertActivations& kept) const {
    const int64_t rows = x.size(0), floats_of_two = GetParam() == GYRE_COMPUTE_BF16 ? kWidth : 2 * kWidth;
    kept.router_NE = at::empty({rows, kExperts}), kept.gate_up_C2F = at::empty({pairs(rows), floats_of_two});
    at::Tensor y = at::ones({rows, kHidden});
    ExpertWorkspace work;
    Mixture{config_, &packed_}.forward(floats(x), nullptr, rows, true, kept, work, floats(y), kHidden);
    return y;
  }
  at::Tensor backward(const at::Tensor& x, const at::Tensor& dy, const ExpertActivations& kept, BlockTensors& d) const {
    at::Tensor dx = at::zeros_like(x);
    ExpertWorkspace work;
    Mixture{config_, nullptr}.backward(weights_, kept, {}, floats(x), floats(dy), x.size(0), work, d, floats(dx));
    return dx;
  }

  ModelConfig config_;
  BlockTensors weights_;
  PackedExperts packed_;
  const at::Tensor x_ = random_tensor({kRows, kHidden}, 11), dy_ = random_tensor({kRows, kHidden}, 12);
};

TEST_P(MixtureTest, IsTheSumOverExpertsAndHasItsGradients) {
  ExpertActivations kept;
  const at::Tensor y = forward(x_, kept);
  BlockTensors d = tensors([](at::IntArrayRef sizes, uint64_t) { return at::zeros(sizes); });
  const at::Tensor dx = backward(x_, dy_, kept, d);

  reference::Weights w;
  const auto leaf = [&](const std::string& name, const at::Tensor& value) {
    w[name] = value.to(at::kDouble).set_requires_grad(true);
  };
  leaf("gate.weight", weights_.router_EH);
  for (int64_t e = 0; e < kExperts; ++e) {
    const std::string name = "experts." + std::to_string(e) + ".";
    leaf(name + "gate_proj.weight", weights_.expert_gate_up_XH.narrow(0, 2 * e * kWidth, kWidth));
    leaf(name + "up_proj.weight", weights_.expert_gate_up_XH.narrow(0, (2 * e + 1) * kWidth, kWidth));
    leaf(name + "down_proj.weight", weights_.expert_down_YF.narrow(0, e * kHidden, kHidden));
  }
  const at::Tensor x = x_.to(at::kDouble).set_requires_grad(true);
  const at::Tensor expected = reference::experts(config_, w, x, "");
  EXPECT_LT(relative_error(y - 1, expected.detach().to(at::kFloat)), tolerance());
  (expected * dy_).sum().backward();
  const auto near = [&](const at::Tensor& got, const at::Tensor& want, const std::string& name) {
    EXPECT_LT(relative_error(got, want.to(at::kFloat)), 2 * tolerance()) << name;
  };
  near(dx, x.grad(), "x");
  near(d.router_EH, w["gate.weight"].grad(), "router");
  for (int64_t e = 0; e < kExperts; ++e) {
    const std::string name = "experts." + std::to_string(e) + ".";
    near(d.expert_gate_up_XH.narrow(0, 2 * e * kWidth, kWidth), w[name + "gate_proj.weight"].grad(), name);
    near(d.expert_gate_up_XH.narrow(0, (2 * e + 1) * kWidth, kWidth), w[name + "up_proj.weight"].grad(), name);
    near(d.expert_down_YF.narrow(0, e * kHidden, kHidden), w[name + "down_proj.weight"].grad(), name);
  }
}

TEST_P(MixtureTest, ARowHasTheBitsThatItHasAlone) {
  ExpertActivations kept;
  const at::Tensor together = forward(x_, kept);
  for (const int64_t rows : {1, 2, 9}) {
    for (int64_t first = 0; first + rows <= kRows; first += rows) {
      const at::Tensor alone = forward(x_.narrow(0, first, rows).contiguous(), kept);
      EXPECT_TRUE(same_bits(alone, together.narrow(0, first, rows))) << rows << " rows from " << first;
    }
  }
}

TEST_P(MixtureTest, AnyNumberOfThreadsGivesTheSameBits) {
  std::vector<at::Tensor> first;
  for (int count = 1; count <= 4; ++count) {
    const Threads threads(count);
    ExpertActivations kept;
    const at::Tensor y = forward(x_, kept);
    BlockTensors d = tensors([](at::IntArrayRef sizes, uint64_t) { return at::zeros(sizes); });
    const std::vector<at::Tensor> all{y, backward(x_, dy_, kept, d), d.router_EH, d.expert_gate_up_XH,
                                      d.expert_down_YF};
    if (first.empty()) first = all;
    for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(same_bits(all[i], first[i])) << count << " threads, " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MixtureTest, ::testing::Values(GYRE_COMPUTE_F32, GYRE_COMPUTE_BF16));

}  // namespace
}  // namespace gyre
