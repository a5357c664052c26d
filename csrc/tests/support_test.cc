// Distributions over a support of some tokens and one outcome beside it, held against definitions in float64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "backend/decoder.h"
#include "tests/threads.h"
#include "tests/train_fixture.h"
#include "train/losses/loss.h"
#include "train/passes.h"

namespace gyre {
namespace {

using train_test::OwnedBatch;
using train_test::random_batch;
using train_test::relative_distance;
using train_test::tiny_decoder;

constexpr double kTemperature = 0.9;

std::unique_ptr<Decoder> decoder_of(int64_t vocab, uint32_t seed, float deviation) {
  ModelConfig config = train_test::tiny_config();
  config.vocab_size = vocab;
  return testing::normal_decoder(config, seed, deviation);
}

// What a reference finds likely at the masked tokens of a batch.
struct Likeliest {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  gyre_support view;

  Likeliest(Decoder& reference, const OwnedBatch& b, int64_t k)
      : ids(static_cast<size_t>(k) * std::accumulate(b.mask.begin(), b.mask.end(), size_t{0})),
        logprobs(ids.size() + ids.size() / static_cast<size_t>(k)),
        view{.k = k, .ids = ids.data(), .logprobs = logprobs.data()} {
    std::vector<float> own(b.ids.size()), again(b.ids.size());
    evaluate_policy(reference, b.view(), kTemperature, own.data(), nullptr, &view);
    evaluate_policy(reference, b.view(), kTemperature, again.data(), nullptr);
    EXPECT_EQ(own, again);
  }
};

// All log-probs of the masked tokens' distributions in float64.
at::Tensor distributions(Decoder& decoder, const OwnedBatch& b) {
  std::vector<at::Tensor> rows;
  const at::Tensor hidden_NH = decoder.forward(pack(b.ids, b.offsets), nullptr);
  at::Tensor logits_NV = at::empty({hidden_NH.size(0), decoder.config().vocab_size});
  decoder.logits(hidden_NH, logits_NV);
  const Packing packing = pack(b.ids, b.offsets);
  for (const Target& t : predicted(b.view(), packing).targets) rows.push_back(logits_NV[t.row]);
  return at::log_softmax(at::stack(rows).to(at::kDouble) / kTemperature, 1);
}

// The divergence of each row by its definition: over the support's tokens and the sum of all others.
at::Tensor divergence(const at::Tensor& policy_RV, const at::Tensor& reference_RV, const at::Tensor& ids_RK) {
  const auto outcomes = [&](const at::Tensor& logp_RV) {
    at::Tensor own = logp_RV.gather(1, ids_RK);
    if (ids_RK.size(1) == logp_RV.size(1)) return own;
    const at::Tensor outside = at::ones_like(logp_RV, at::kBool).scatter(1, ids_RK, 0);
    const at::Tensor others = logp_RV.masked_fill(outside.logical_not(), -INFINITY).logsumexp(1, true);
    return at::cat({own, others}, 1);
  };
  const at::Tensor p = outcomes(policy_RV), q = outcomes(reference_RV);
  return (p.exp() * (p - q)).sum(1);
}

gyre_policy_loss kl_loss() {
  gyre_policy_loss loss = train_test::ppo_loss();
  loss.temperature = kTemperature, loss.kl = GYRE_KL_SUPPORT, loss.kl_coef = 0.7;
  return loss;
}

PolicyResult backward(Decoder& policy, const OwnedBatch& b, const gyre_support& support, gyre_gradients* kl,
                      gyre_gradients* others = nullptr) {
  gyre_policy_inputs inputs = train_test::inputs_of(b);
  inputs.ref_logprobs = nullptr, inputs.support = support;
  return policy_backward(policy, b.view(), inputs, kl_loss(), train_test::terms(others, others, kl));
}

struct Size {
  int64_t vocab, k;
};
void PrintTo(const Size& size, std::ostream* out) { *out << size.k << " of " << size.vocab; }

class SupportKl : public ::testing::TestWithParam<Size> {};

// Support, outcomes, value, and the gradient of logits by autograd in float64, whose way to the parameters is that of
// the entropy's gradient.
TEST_P(SupportKl, IsItsDefinition) {
  const auto [vocab, k] = GetParam();
  const auto policy = decoder_of(vocab, 11, 0.4f), teacher = decoder_of(vocab, 12, 0.4f);
  const OwnedBatch b = random_batch({9, 5, 12});
  const Likeliest found(*teacher, b, k);
  const at::Tensor p_RV = distributions(*policy, b), q_RV = distributions(*teacher, b);
  const int64_t rows = p_RV.size(0);
  const auto [top, ids_RK] = at::topk(q_RV, k, 1);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < k; ++j) {
      EXPECT_EQ(found.ids[r * k + j], ids_RK[r][j].item<int64_t>());
      EXPECT_NEAR(found.logprobs[r * (k + 1) + j], top[r][j].item<double>(), 1e-5);
    }
    const double others = std::exp(found.logprobs[r * (k + 1) + k]);
    EXPECT_NEAR(others, 1 - top[r].exp().sum().item<double>(), 1e-6);
  }

  gyre_gradients g(policy->config());
  const PolicyResult result = backward(*policy, b, found.view, &g);
  at::Tensor weights_R = at::empty({rows}, at::kDouble);
  const std::vector<int64_t> tokens = masked_tokens(b.view());
  for (int64_t r = 0; r < rows; ++r) weights_R[r] = static_cast<double>(b.weights[tokens[r]]);
  const double want = (divergence(p_RV, q_RV, ids_RK) * weights_R).sum().item<double>();
  EXPECT_NEAR(result.terms[2].value, want, 2e-6);
  EXPECT_NEAR(result.terms[2].loss, 0.7 * want, 2e-6);

  // The head's gradient, and with it that of the hidden states, without the rest of the network.
  const Packing packing = pack(b.ids, b.offsets);
  const Predicted targets = predicted(b.view(), packing);
  const at::Tensor hidden_NH = policy->forward(packing, nullptr), d_hidden_NH = at::zeros_like(hidden_NH);
  Gradients head(policy->config());
  policy->score_backward(hidden_NH, targets.targets, kTemperature,
                         [&](size_t first, const Scores& chunk) {
                           static std::vector<float> slopes;
                           slopes.clear();
                           std::vector<double> of(k + 1);
                           for (size_t i = 0; i < chunk.logprobs.size(); ++i) {
                             const size_t from = (first + i) * (k + 1);
                             outcomes_kl(std::span(chunk.outcomes).subspan(i * (k + 1), k + 1),
                                         std::span(found.logprobs).subspan(from, k + 1), of);
                             for (const double slope : of)
                               slopes.push_back(static_cast<float>(slope * b.weights[tokens[first + i]]));
                           }
                           return std::vector<ScoreGradient>{{{}, {}, d_hidden_NH, &head.set(), slopes}};
                         },
                         {.k = k, .ids = found.ids});
  const at::Tensor x = hidden_NH.to(at::kDouble).detach().set_requires_grad(true);
  const at::Tensor w = policy->parameters().root.head_VH.to(at::kDouble).detach().set_requires_grad(true);
  std::vector<at::Tensor> picked;
  for (const Target& t : targets.targets) picked.push_back(x[t.row]);
  const at::Tensor logp_RV = at::log_softmax(at::matmul(at::stack(picked), w.t()) / kTemperature, 1);
  (divergence(logp_RV, q_RV, ids_RK) * weights_R).sum().backward();
  EXPECT_TRUE(at::allclose(d_hidden_NH.to(at::kDouble), x.grad(), 1e-4, 1e-6));
  EXPECT_TRUE(at::allclose(head.set().root.head_VH.to(at::kDouble), w.grad(), 1e-4, 1e-6));
}

// A vocabulary within one block of the softmax and one across two; one token, some, and all.
INSTANTIATE_TEST_SUITE_P(Sizes, SupportKl,
                         ::testing::Values(Size{37, 1}, Size{37, 6}, Size{37, 36}, Size{37, 37}, Size{3100, 40}));

// More tokens tell more apart: up to the divergence of the whole distributions.
TEST(SupportKl, GrowsToTheFullDivergence) {
  const auto policy = decoder_of(37, 11, 0.4f), teacher = decoder_of(37, 12, 0.4f);
  const OwnedBatch b = random_batch({9, 5, 12});
  double before = 0;
  for (const int64_t k : {1, 2, 8, 20, 36, 37}) {
    const Likeliest found(*teacher, b, k);
    const double value = backward(*policy, b, found.view, nullptr).terms[2].value;
    EXPECT_GE(value, before - 1e-6) << k;
    before = value;
  }
  const at::Tensor p_RV = distributions(*policy, b), q_RV = distributions(*teacher, b);
  const at::Tensor kl_R = (p_RV.exp() * (p_RV - q_RV)).sum(1);
  double full = 0;
  const std::vector<int64_t> tokens = masked_tokens(b.view());
  for (size_t r = 0; r < tokens.size(); ++r) {
    full += b.weights[tokens[r]] * kl_R[static_cast<int64_t>(r)].item<double>();
  }
  EXPECT_NEAR(before, full, 1e-6);
  const Likeliest own(*policy, b, 5);
  gyre_gradients g(policy->config());
  EXPECT_NEAR(backward(*policy, b, own.view, &g).terms[2].value, 0, 1e-6);
  EXPECT_LT(std::sqrt(g.dot(g, {})), 1e-4);  // the policy is its own reference
}

// A tail far below the rounding of 1 is still a number: its log-prob, and what it does to the divergence.
TEST(SupportKl, TailsBelowRounding) {
  const auto policy = decoder_of(37, 11, 0.4f), teacher = decoder_of(37, 12, 0.4f);
  teacher->parameters().root.final_norm_H.mul_(20);
  policy->parameters().root.final_norm_H.mul_(15);
  teacher->touch(), policy->touch();
  const OwnedBatch b = random_batch({9, 5, 12});
  const Likeliest found(*teacher, b, 6);
  const at::Tensor q_RV = distributions(*teacher, b);
  const at::Tensor ids_RK = std::get<1>(at::topk(q_RV, 6, 1));
  const at::Tensor others_R = q_RV.scatter(1, ids_RK, -INFINITY).logsumexp(1);
  EXPECT_LT(others_R.min().item<double>(), -25);
  for (int64_t r = 0; r < others_R.size(0); ++r) {
    const double want = others_R[r].item<double>();
    EXPECT_NEAR(found.logprobs[r * 7 + 6], want, 1e-5 * std::abs(want) + 1e-5) << r;
  }
  const std::vector<int64_t> tokens = masked_tokens(b.view());
  const at::Tensor kl_R = divergence(distributions(*policy, b), q_RV, ids_RK);
  double want = 0;
  for (size_t r = 0; r < tokens.size(); ++r) {
    want += b.weights[tokens[r]] * kl_R[static_cast<int64_t>(r)].item<double>();
  }
  EXPECT_NEAR(backward(*policy, b, found.view, nullptr).terms[2].value, want, 1e-5 * want);
}

// Equal logits, as of tokens with equal rows of a tied head: the lower ids come first.
TEST(SupportKl, TiesGoToTheLowerId) {
  const auto teacher = decoder_of(37, 12, 0.4f);
  const at::Tensor head_VH = teacher->parameters().root.head_VH;
  for (int64_t v = 0; v < 37; ++v) head_VH[v].copy_(head_VH[v % 2 == 0 ? 0 : 1]);
  teacher->touch();
  const OwnedBatch b = random_batch({9, 5, 12});
  const Likeliest found(*teacher, b, 5);
  for (size_t i = 0; i < found.ids.size(); ++i) {
    EXPECT_EQ(found.ids[i] / 2, static_cast<int32_t>(i % 5));
    EXPECT_EQ(found.ids[i] % 2, found.ids[i - i % 5]);
  }
}

TEST(SupportKl, NeitherThreadsNorPassesNorCompanyMatter) {
  const auto policy = tiny_decoder(), teacher = decoder_of(37, 12, 0.4f);
  OwnedBatch b = random_batch({60, 41, 25});
  train_test::share_prefix(b, 0, 1, 18);
  const Likeliest found(*teacher, b, 6);
  gyre_gradients one(policy->config()), three(policy->config()), parts(policy->config()), rest(policy->config()),
      all(policy->config());
  double whole = 0, sum = 0;
  for (const auto& [threads, into] : {std::pair{1, &one}, std::pair{3, &three}}) {
    const Threads several(threads);
    const Likeliest again(*teacher, b, 6);
    EXPECT_EQ(again.ids, found.ids);
    EXPECT_EQ(again.logprobs, found.logprobs);
    whole = backward(*policy, b, again.view, into).terms[2].loss;
  }
  const auto x = one.set().flats(), y = three.set().flats();
  for (size_t i = 0; i < x.size(); ++i) EXPECT_TRUE(at::equal(x[i], y[i])) << i;
  for (int64_t s = 0; s < 3; ++s) {
    const OwnedBatch part = train_test::slice(b, s, s + 1);
    const Likeliest alone(*teacher, part, 6);
    sum += backward(*policy, part, alone.view, &parts).terms[2].loss;
  }
  EXPECT_NEAR(sum, whole, 1e-9);
  EXPECT_LT(relative_distance(parts, one), 1e-5);
  backward(*policy, b, found.view, nullptr, &rest);  // in a buffer with the other terms, one pass for all
  backward(*policy, b, found.view, &all, &all);
  rest.add(one, 1);
  EXPECT_LT(relative_distance(all, rest), 1e-5);
}

TEST(SupportKl, GradientIsTheSlopeOfTheLoss) {
  const auto policy = tiny_decoder(), teacher = decoder_of(37, 12, 0.4f);
  const OwnedBatch b = random_batch({9, 5, 12});
  const Likeliest found(*teacher, b, 6);
  gyre_gradients g(policy->config());
  backward(*policy, b, found.view, &g);
  const double norm = std::sqrt(g.dot(g, {})), step = 1e-3;
  const auto loss_at = [&](double distance) {
    const auto moved = tiny_decoder();
    const auto to = moved->parameters().flats(), along = g.set().flats();
    for (size_t i = 0; i < to.size(); ++i) to[i].add_(along[i], distance / norm);
    moved->touch();
    return backward(*moved, b, found.view, nullptr).terms[2].loss;
  };
  EXPECT_NEAR((loss_at(step) - loss_at(-step)) / (2 * step), norm, 2e-3 * norm);
}

TEST(SupportKl, RefusesWhatIsNoSupport) {
  const auto policy = tiny_decoder();
  const OwnedBatch b = random_batch({9, 5});
  const auto message = [&](auto&& spoil) -> std::string {
    Likeliest found(*policy, b, 4);
    spoil(found);
    try {
      backward(*policy, b, found.view, nullptr);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "no error";
  };
  const auto expect = [](const std::string& got, const std::string& part) {
    EXPECT_NE(got.find(part), std::string::npos) << got;
  };
  expect(message([](Likeliest&) {}), "no error");
  expect(message([](Likeliest& l) { l.view.k = 0; }), "support: k is 0, expected 1 to 37");
  expect(message([](Likeliest& l) { l.ids[5] = 37; }), "target 1 has token 37, expected distinct ones from 0 to 36");
  expect(message([](Likeliest& l) { l.ids[6] = l.ids[4]; }), "target 1 has token");
  expect(message([](Likeliest& l) { l.logprobs[9] = -INFINITY; }), "target 1 has a log-prob of -inf");
  gyre_support many{.k = 38, .ids = nullptr, .logprobs = nullptr};
  std::vector<float> out(b.ids.size());
  EXPECT_THROW(evaluate_policy(*policy, b.view(), 1, out.data(), nullptr, &many), std::invalid_argument);
}

}  // namespace
}  // namespace gyre
