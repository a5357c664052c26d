// Losses, optimizer and generation on every backend against the CPU kernels.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "backend_fixture.h"
#include "engine_fixture.h"
#include "train/adamw.h"
#include "train/passes.h"
#include "train_fixture.h"

namespace gyre::testing {
namespace {

using train_test::OwnedBatch;

using BackendTraining = OnDevice;
GYRE_ON_EVERY_DEVICE(BackendTraining);

constexpr double kTolerance = 1e-5;

gyre_policy_loss ppo_loss() {
  gyre_policy_loss loss{};
  loss.temperature = 0.8;
  loss.task = {.index = 0, .constants = {0.2, 0.3, 3}};
  loss.entropy_coef = 0.05;
  loss.kl = GYRE_KL_K3;
  loss.kl_coef = 0.1;
  return loss;
}

double error(const gyre_gradients& got, const gyre_gradients& want) {
  double difference = 0, norm = 0;
  const auto a = got.set().flats(), b = want.set().flats();
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i].to(at::kCPU) - b[i]).square().sum().item<double>();
    norm += b[i].square().sum().item<double>();
  }
  return std::sqrt(difference / norm);
}

void expect_near(std::span<const float> got, std::span<const float> want) {
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-5) << "token " << i;
}

// A group whose members begin alike, so that several targets share a row, and two others.
OwnedBatch grouped_batch() {
  OwnedBatch b = train_test::random_batch({9, 9, 9, 14, 6});
  for (int member = 1; member < 3; ++member) std::copy_n(b.ids.begin(), 5, b.ids.begin() + member * 9);
  for (int member = 0; member < 3; ++member) b.mask[member * 9 + 5] = 1;
  return b;
}

TEST_P(BackendTraining, ScoresAreTheKernels) {
  Twins twins(train_test::tiny_config(), GetParam());
  const OwnedBatch b = grouped_batch();
  const auto run = [&](Decoder& decoder) {
    std::pair<std::vector<float>, std::vector<float>> out{b.ids.size(), b.ids.size()};
    out.first.resize(b.ids.size()), out.second.resize(b.ids.size());
    evaluate_policy(decoder, b.view(), 0.7, out.first.data(), out.second.data());
    return out;
  };
  const auto want = run(twins.kernels), got = run(*twins.other);
  expect_near(got.first, want.first);
  expect_near(got.second, want.second);
}

TEST_P(BackendTraining, PolicyGradientsAreTheKernels) {
  Twins twins(train_test::tiny_config(), GetParam());
  const OwnedBatch b = grouped_batch();
  struct Result {
    PolicyResult result;
    std::unique_ptr<gyre_gradients> task, entropy, kl;
  };
  const auto run = [&](Decoder& decoder) {
    const auto fresh = [&] { return std::make_unique<gyre_gradients>(decoder.config()); };
    Result r{{}, fresh(), fresh(), fresh()};
    r.result = policy_backward(decoder, b.view(), train_test::inputs_of(b), ppo_loss(),
                               train_test::terms(r.task.get(), r.entropy.get(), r.kl.get()));
    return r;
  };
  const Result want = run(twins.kernels), got = run(*twins.other);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(got.result.terms[i].loss, want.result.terms[i].loss, 1e-5);
    EXPECT_NEAR(got.result.terms[i].value, want.result.terms[i].value, 1e-5);
  }
  EXPECT_LT(error(*got.task, *want.task), kTolerance);
  EXPECT_LT(error(*got.entropy, *want.entropy), kTolerance);
  EXPECT_LT(error(*got.kl, *want.kl), kTolerance);

  // What the analysis does with them.
  const double dot = want.task->dot(*want.kl, {});
  EXPECT_NEAR(got.task->dot(*got.kl, {}), dot, 1e-4 * std::abs(dot));
  const Gradients* buffers[] = {got.task.get(), got.kl.get()};
  const size_t parameters = got.task->set().named.size();
  std::vector<double> products(3 * parameters);
  Gradients::products(buffers, products);
  double total = 0;
  for (size_t i = 0; i < parameters; ++i) total += products[parameters + i];
  EXPECT_NEAR(total, dot, 1e-4 * std::abs(dot));
  std::vector<float> sketch(101), expected(101);
  got.task->sketch(sketch);
  want.task->sketch(expected);
  expect_near(sketch, expected);
}

TEST_P(BackendTraining, DivergencesOverASupportAreTheKernels) {
  Twins policies(train_test::tiny_config(), GetParam());
  const OwnedBatch b = grouped_batch();
  const auto masked = static_cast<size_t>(std::ranges::count(b.mask, 1));
  for (const int64_t k : {int64_t{5}, policies.other->config().vocab_size}) {
    const auto n = static_cast<size_t>(k);
    struct Result {
      std::vector<int32_t> ids;
      std::vector<float> outcomes, logprobs;
      gyre_term_stats stats{};
      std::unique_ptr<gyre_gradients> kl;
    };
    const auto run = [&](Decoder& decoder) {
      Result r{std::vector<int32_t>(masked * n), std::vector<float>(masked * (n + 1)), b.old_logprobs, {}, {}};
      r.kl = std::make_unique<gyre_gradients>(decoder.config());
      gyre_support support{.k = k, .ids = r.ids.data(), .logprobs = r.outcomes.data()};
      evaluate_policy(decoder, b.view(), 0.8, r.logprobs.data(), nullptr, &support);
      // A reference that is another distribution over the same tokens.
      for (size_t i = 0; i < r.outcomes.size(); ++i) r.outcomes[i] = -3.0f - 0.1f * static_cast<float>(i % 7);
      gyre_policy_inputs inputs = train_test::inputs_of(b);
      gyre_policy_loss loss = ppo_loss();
      inputs.support = support, loss.kl = GYRE_KL_SUPPORT;
      r.stats =
          policy_backward(decoder, b.view(), inputs, loss, train_test::terms(nullptr, nullptr, r.kl.get())).terms[2];
      return r;
    };
    const Result want = run(policies.kernels), got = run(*policies.other);
    EXPECT_EQ(got.ids, want.ids);
    EXPECT_NEAR(got.stats.value, want.stats.value, 1e-5);
    EXPECT_LT(error(*got.kl, *want.kl), kTolerance);
  }
}

TEST_P(BackendTraining, ValueGradientsAreTheKernels) {
  Twins twins(train_test::tiny_config(GYRE_HEAD_VALUE), GetParam());
  const OwnedBatch b = grouped_batch();
  const auto run = [&](Decoder& critic, gyre_gradients& into, std::vector<float>& values) {
    values.resize(b.ids.size());
    return value_backward(critic, b.view(), b.returns.data(), b.old_values.data(), b.weights.data(), 0.2, into,
                          values.data());
  };
  gyre_gradients want(twins.kernels.config()), got(twins.other->config());
  std::vector<float> want_values, got_values, evaluated(b.ids.size());
  const gyre_value_stats stats = run(twins.kernels, want, want_values);
  EXPECT_NEAR(run(*twins.other, got, got_values).loss, stats.loss, 1e-5);
  expect_near(got_values, want_values);
  EXPECT_LT(error(got, want), kTolerance);
  evaluate_critic(*twins.other, b.view(), evaluated.data());
  expect_near(evaluated, want_values);
}

TEST_P(BackendTraining, AdamWMovesLikeTheKernels) {
  Twins twins(train_test::tiny_config(), GetParam());
  const gyre_adamw_config config{.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.01};
  AdamW cpu(twins.kernels, config), device(*twins.other, config);
  const uint64_t version = twins.other->version();
  for (uint64_t step = 0; step < 3; ++step) {
    gyre_gradients gradients(twins.kernels.config()), copy(twins.other->config());
    const auto from = gradients.set().flats(), to = copy.set().flats();
    for (size_t i = 0; i < from.size(); ++i) {
      fill(from[i], step * 10 + i, 0.1f);
      to[i].copy_(from[i]);
    }
    const StepOutcome want = cpu.step(gradients, 1e-2, 0.5), got = device.step(copy, 1e-2, 0.5);
    EXPECT_NEAR(got.grad_norm, want.grad_norm, 1e-9 * want.grad_norm);
    EXPECT_TRUE(got.applied);
  }
  EXPECT_GT(twins.other->version(), version);
  const auto want = twins.kernels.parameters().flats(), got = twins.other->parameters().flats();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_LT(error_on_host(got[i], want[i]), 1e-6);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_LT(error_on_host(device.second_moment().flats()[i], cpu.second_moment().flats()[i]), 1e-6);
  }
}

// Greedy tokens, with prompts in chunks, sequences that wait, a prefix cache and a pool small enough for preemption.
TEST_P(BackendTraining, EngineDrawsTheSameGreedyTokens) {
  Twins twins(engine_test::tiny_config(), GetParam());
  engine_test::randomize(twins.kernels, 7);
  twins.copy_weights();
  std::vector<Request> requests = engine_test::varied_requests(12);
  // Some begin alike and part in the middle of a page, which copies it.
  const std::vector<int32_t> common = random_ids(21, 101, 6);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].sampling.temperature = 0;
    if (i % 2 == 0) requests[i].prompt.insert(requests[i].prompt.begin(), common.begin(), common.end());
  }
  gyre_engine_config config = engine_test::with_pages(14);
  config.max_batch_tokens = 24;
  const auto want = engine_test::generate(twins.kernels, config, requests);
  config.kv_bytes = 14 * twins.other->backend().bytes_per_page();
  const auto got = engine_test::generate(*twins.other, config, requests);
  ASSERT_EQ(got.size(), want.size());
  int64_t cached = 0;
  for (const auto& [id, output] : want) {
    cached += got.at(id).cached_tokens;
    ASSERT_EQ(got.at(id).tokens, output.tokens) << "request " << id;
    expect_near(got.at(id).logprobs, output.logprobs);
  }
  EXPECT_GT(cached % kPageTokens, 0);  // a page was shared in part
}

// The trainer recomputes log-probs where sampler and training differ; here they may, but not by more than rounding.
TEST_P(BackendTraining, SampledLogProbsAreThoseOfTheTrainingForward) {
  Twins twins(engine_test::tiny_config(), GetParam());
  for (const auto& [id, output] :
       engine_test::generate(*twins.other, engine_test::roomy(), engine_test::varied_requests(6))) {
    const Request request = engine_test::varied_requests(6)[id - 100];
    std::vector<int32_t> ids = request.prompt;
    ids.insert(ids.end(), output.tokens.begin(), output.tokens.end());
    const std::vector<int64_t> offsets{0, static_cast<int64_t>(ids.size())};
    std::vector<uint8_t> mask(ids.size(), 1);
    mask[0] = 0;
    std::vector<float> logprobs(ids.size());
    const double temperature = request.sampling.temperature == 0 ? 1 : request.sampling.temperature;
    evaluate_policy(*twins.other, {offsets, ids, mask}, temperature, logprobs.data(), nullptr);
    expect_near(output.logprobs, std::span(logprobs).subspan(request.prompt.size()));
  }
}

}  // namespace
}  // namespace gyre::testing
