#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "backend/decoder.h"
#include "tests/train_fixture.h"

namespace gyre {
namespace {

using train_test::tiny_config;
using train_test::tiny_decoder;

at::Tensor normal(at::IntArrayRef shape, float deviation, uint32_t seed) {
  at::Tensor out = at::empty(shape);
  testing::fill_normal({out}, seed, deviation);
  return out;
}

std::vector<Target> some_targets() { return {{0, 3}, {2, 36}, {3, 0}, {5, 17}, {6, 8}}; }

TEST(Score, IsTheSameBitsForAnyCompany) {
  auto decoder = tiny_decoder();
  const at::Tensor hidden_NH = normal({8, 16}, 1, 2);
  const std::vector<Target> targets = some_targets();
  const Scores together = decoder->score(hidden_NH, targets, 0.8, true);
  for (size_t i = 0; i < targets.size(); ++i) {
    const Scores alone = decoder->score(hidden_NH, std::span(targets).subspan(i, 1), 0.8, true);
    EXPECT_EQ(alone.logprobs[0], together.logprobs[i]);
    EXPECT_EQ(alone.entropies[0], together.entropies[i]);
  }
}

struct Size {
  int64_t vocab, targets;
};
void PrintTo(const Size& size, std::ostream* out) { *out << size.targets << " targets of " << size.vocab; }

class ScoreBackward : public ::testing::TestWithParam<Size> {};

TEST_P(ScoreBackward, MatchesAutograd) {
  const auto [vocab, count] = GetParam();
  ModelConfig config = train_test::tiny_config();
  config.vocab_size = vocab;
  Decoder decoder(config);
  testing::randomize_normal(decoder, 11, 0.4f);
  const int64_t rows = count + 3;
  const at::Tensor hidden_NH = normal({rows, 16}, 1, 2);
  std::vector<Target> targets;
  std::vector<float> d_logprob, d_entropy;
  for (int64_t i = 0; i < count; ++i) {
    targets.push_back({.row = (i * 7) % rows, .token = static_cast<int32_t>((i * 31 + vocab - 1) % vocab)});
    d_logprob.push_back(static_cast<float>(i % 5) - 1.5f);
    d_entropy.push_back(0.1f * static_cast<float>(i % 3));
  }
  const double temperature = 0.8;

  const Scores scores = decoder.score(hidden_NH, targets, temperature, true);
  Gradients gradients(decoder.config());
  const at::Tensor d_hidden_NH = at::zeros_like(hidden_NH);
  decoder.score_backward(hidden_NH, targets, temperature, [&](size_t first, const Scores& chunk) {
    for (size_t i = 0; i < chunk.logprobs.size(); ++i) {
      EXPECT_EQ(chunk.logprobs[i], scores.logprobs[first + i]);
      EXPECT_EQ(chunk.entropies[i], scores.entropies[first + i]);
    }
    return std::vector<ScoreGradient>{{std::span(d_logprob).subspan(first, chunk.logprobs.size()),
                                       std::span(d_entropy).subspan(first, chunk.logprobs.size()), d_hidden_NH,
                                       &gradients.set()}};
  });

  const at::Tensor x = hidden_NH.detach().clone().set_requires_grad(true);
  const at::Tensor w = decoder.parameters().root.head_VH.detach().clone().set_requires_grad(true);
  const at::Tensor logp_NV = at::log_softmax(at::matmul(x, w.t()) / temperature, 1);
  const at::Tensor entropy_N = -(logp_NV.exp() * logp_NV).sum(1);
  at::Tensor objective = at::zeros({});
  for (size_t i = 0; i < targets.size(); ++i) {
    const at::Tensor logprob = logp_NV[targets[i].row][targets[i].token];
    EXPECT_NEAR(scores.logprobs[i], logprob.item<float>(), 1e-5);
    EXPECT_NEAR(scores.entropies[i], entropy_N[targets[i].row].item<float>(), 1e-5);
    objective = objective + d_logprob[i] * logprob + d_entropy[i] * entropy_N[targets[i].row];
  }
  objective.backward();
  EXPECT_TRUE(at::allclose(d_hidden_NH, x.grad(), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(gradients.set().root.head_VH, w.grad(), 1e-4, 1e-5));
}

// A vocabulary within one block of the softmax and one across two; one chunk of targets and two.
INSTANTIATE_TEST_SUITE_P(Sizes, ScoreBackward, ::testing::Values(Size{37, 5}, Size{3100, 5}, Size{37, 700}));

TEST(Score, RejectsATemperatureThatIsNotPositive) {
  auto decoder = tiny_decoder();
  const at::Tensor hidden_NH = normal({8, 16}, 1, 2);
  for (double temperature : {0.0, -1.0, std::nan("")}) {
    EXPECT_THROW(decoder->score(hidden_NH, some_targets(), temperature, false), std::invalid_argument);
  }
}

}  // namespace
}  // namespace gyre
