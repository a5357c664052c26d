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

using train_test::inputs_of;
using train_test::OwnedBatch;
using train_test::random_batch;
using train_test::relative_distance;
using train_test::tiny_decoder;

gyre_policy_loss full_loss() {
  gyre_policy_loss loss = train_test::ppo_loss();
  loss.temperature = 0.9;
  loss.entropy_coef = 0.3;
  loss.kl = GYRE_KL_K3;
  loss.kl_coef = 0.2;
  return loss;
}

PolicyResult run(Decoder& decoder, const OwnedBatch& b, const gyre_policy_loss& loss,
                 const std::vector<gyre_term>& into, float* logprobs = nullptr, float* entropies = nullptr) {
  return policy_backward(decoder, b.view(), inputs_of(b), loss, into, logprobs, entropies);
}

double total(const PolicyResult& r) {
  double sum = 0;
  for (const gyre_term_stats& c : r.terms) sum += c.loss;
  return sum;
}

std::vector<gyre_term> terms(gyre_gradients* task, gyre_gradients* entropy, gyre_gradients* kl) {
  return train_test::terms(task, entropy, kl);
}
std::vector<gyre_term> terms(gyre_gradients* all) { return terms(all, all, all); }

TEST(PolicyBackward, TermsSumToTheWhole) {
  auto decoder = tiny_decoder();
  const OwnedBatch b = random_batch({9, 5, 12});
  gyre_gradients task(decoder->config()), entropy(decoder->config()), kl(decoder->config()), all(decoder->config());
  const PolicyResult parts = run(*decoder, b, full_loss(), terms(&task, &entropy, &kl));
  const PolicyResult whole = run(*decoder, b, full_loss(), terms(&all));
  EXPECT_EQ(total(parts), total(whole));
  for (const gyre_gradients* g : {&task, &entropy, &kl}) EXPECT_GT(g->dot(*g, {}), 0);
  task.add(entropy, 1);
  task.add(kl, 1);
  EXPECT_LT(relative_distance(task, all), 1e-5);
}

// Rewards in parts: the advantages of each give their own gradient, beside entropy and KL, from one forward pass.
TEST(PolicyBackward, EveryTermHasItsOwnAdvantagesWeightsAndBuffer) {
  auto decoder = tiny_decoder();
  const OwnedBatch b = random_batch({9, 5, 12});
  OwnedBatch first = b, second = b, light = b;
  for (size_t t = 0; t < b.ids.size(); ++t) {
    first.advantages[t] = 0.25f * b.advantages[t] + 0.5f;
    second.advantages[t] = b.advantages[t] - first.advantages[t];
    light.weights[t] = 0.5f * b.weights[t];
  }
  const auto buffer = [&] { return gyre_gradients(decoder->config()); };
  gyre_policy_loss loss = full_loss();
  loss.task.constants[0] = 1, loss.task.constants[1] = 1e6,
  loss.task.constants[2] = 0;  // no clip: linear in the advantages
  gyre_gradients one = buffer(), two = buffer(), whole = buffer(), half = buffer(), together = buffer();
  const PolicyResult parts = run(*decoder, b, loss,
                                 {{.name = "first", .advantages = first.advantages.data(), .into = &one},
                                  {.name = "second", .advantages = second.advantages.data(), .into = &two},
                                  {.name = "task", .into = &whole},
                                  {.name = "light", .weights = light.weights.data(), .into = &half},
                                  {.name = "entropy", .kind = GYRE_TERM_ENTROPY, .into = &together},
                                  {.name = "again", .into = &together}});
  ASSERT_EQ(parts.terms.size(), 6u);
  EXPECT_NEAR(parts.terms[0].loss + parts.terms[1].loss, parts.terms[2].loss, 1e-6);
  EXPECT_NEAR(parts.terms[3].loss, 0.5 * parts.terms[2].loss, 1e-9);
  EXPECT_EQ(parts.terms[5].loss, parts.terms[2].loss);

  // Each is the gradient that it would have alone.
  gyre_gradients alone = buffer(), both = buffer();
  run(*decoder, first, loss, {{.name = "alone", .into = &alone}});
  EXPECT_EQ(relative_distance(one, alone), 0);
  run(*decoder, b, loss,
      {{.name = "task", .into = &both}, {.name = "entropy", .kind = GYRE_TERM_ENTROPY, .into = &both}});
  EXPECT_LT(relative_distance(together, both), 1e-6);
  one.add(two, 1);
  EXPECT_LT(relative_distance(one, whole), 1e-5);
  half.add(half, 1);
  EXPECT_LT(relative_distance(half, whole), 1e-6);
}

// However many terms there are, the forward pass runs once and every buffer costs one backward pass.
TEST(PolicyBackward, TermsShareTheForwardPassAndBuffersTheBackwardPass) {
  auto decoder = tiny_decoder();
  const OwnedBatch b = random_batch({9, 5, 12});
  gyre_gradients one(decoder->config()), two(decoder->config());
  const auto flops = [&](const std::vector<gyre_term>& list) {
    const double before = decoder->work().flops;
    run(*decoder, b, full_loss(), list);
    return decoder->work().flops - before;
  };
  const double forward = flops({}), backward = flops({{.name = "task", .into = &one}}) - forward;
  ASSERT_GT(backward, 0);
  EXPECT_EQ(flops(terms(&one)), forward + backward);
  EXPECT_EQ(flops(terms(&one, &two, &one)), forward + 2 * backward);
  EXPECT_EQ(flops(terms(nullptr)), forward);
}

TEST(PolicyBackward, RefusesTermsThatMakeNoSense) {
  auto decoder = tiny_decoder();
  const OwnedBatch b = random_batch({4, 6});
  const auto message = [&](const std::vector<gyre_term>& terms, gyre_policy_inputs inputs) -> std::string {
    try {
      policy_backward(*decoder, b.view(), inputs, full_loss(), terms);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "no error";
  };
  const auto expect = [](const std::string& got, const std::string& part) {
    EXPECT_NE(got.find(part), std::string::npos) << got;
  };
  const std::vector<gyre_term> named = {{.name = "format"}};
  EXPECT_EQ(message(named, inputs_of(b)), "no error");
  expect(message({{.name = "format"}, {.name = "format"}}, inputs_of(b)), "\"format\": the name is given twice");
  expect(message({{.name = "format", .kind = static_cast<gyre_term_kind>(4)}}, inputs_of(b)), "kind is 4");
  gyre_policy_inputs bare = inputs_of(b);
  bare.advantages = nullptr;
  expect(message(named, bare), "\"format\": no advantages");
  EXPECT_EQ(message({{.name = "format", .advantages = b.advantages.data()}}, bare), "no error");
  bare = inputs_of(b);
  bare.weights = nullptr;
  expect(message(named, bare), "\"format\": no weights");
  EXPECT_EQ(message({{.name = "format", .weights = b.weights.data()}}, bare), "no error");
}

TEST(PolicyBackward, MicroBatchesSumToTheBatch) {
  auto decoder = tiny_decoder();
  const OwnedBatch b = random_batch({9, 5, 12, 3});
  gyre_gradients whole(decoder->config()), parts(decoder->config());
  const double want = total(run(*decoder, b, full_loss(), terms(&whole)));
  double got = 0;
  for (const auto& [first, last] : {std::pair{0, 1}, std::pair{1, 3}, std::pair{3, 4}}) {
    got += total(run(*decoder, train_test::slice(b, first, last), full_loss(), terms(&parts)));
  }
  EXPECT_NEAR(got, want, 1e-9);
  EXPECT_LT(relative_distance(parts, whole), 1e-5);
}

// Two groups and a loner: what sequences share is computed once, with the results of every sequence on its own.
TEST(PolicyBackward, SharedPrefixesChangeRoundingOnly) {
  auto decoder = tiny_decoder();
  OwnedBatch b = random_batch({30, 41, 25, 30, 20, 12, 33});
  for (int64_t s : {1, 2, 3}) train_test::share_prefix(b, 0, s, 18);
  train_test::share_prefix(b, 1, 3, 30);  // all of it
  train_test::share_prefix(b, 4, 6, 16);
  ASSERT_LT(pack(b.ids, b.offsets).rows(), 191 - 18 * 2 - 30 - 15);
  gyre_gradients whole(decoder->config()), parts(decoder->config());
  std::vector<float> together(b.ids.size()), alone(b.ids.size());
  const double want = total(run(*decoder, b, full_loss(), terms(&whole), together.data()));
  double got = 0;
  for (int64_t s = 0; s < 7; ++s) {
    const OwnedBatch one = train_test::slice(b, s, s + 1);
    const auto out = std::span(alone).subspan(b.offsets[s], one.ids.size());
    got += total(run(*decoder, one, full_loss(), terms(&parts), out.data()));
  }
  EXPECT_EQ(together, alone);
  EXPECT_NEAR(got, want, 1e-9);
  EXPECT_LT(relative_distance(whole, parts), 1e-5);
  std::vector<float> scored(b.ids.size());
  evaluate_policy(*decoder, b.view(), full_loss().temperature, scored.data(), nullptr);
  EXPECT_EQ(scored, alone);
}

TEST(PolicyBackward, ThreadsDoNotChangeABit) {
  auto decoder = tiny_decoder();
  OwnedBatch b = random_batch({60, 41, 25});
  train_test::share_prefix(b, 0, 1, 18);
  gyre_gradients one(decoder->config()), three(decoder->config());
  for (const auto& [threads, into] : {std::pair{1, &one}, std::pair{3, &three}}) {
    const Threads several(threads);
    run(*decoder, b, full_loss(), terms(into));
  }
  const auto a = one.set().flats(), c = three.set().flats();
  for (size_t k = 0; k < a.size(); ++k) EXPECT_TRUE(at::equal(a[k], c[k])) << k;
}

TEST(PolicyBackward, GradientIsTheSlopeOfTheLoss) {
  auto decoder = tiny_decoder();
  OwnedBatch b = random_batch({9, 5, 12});
  train_test::share_prefix(b, 0, 2, 7);
  gyre_policy_loss loss = full_loss();
  gyre_gradients g(decoder->config());
  run(*decoder, b, loss, terms(&g));
  // Along the gradient itself: every parameter takes part, and the slope is its norm.
  const double norm = std::sqrt(g.dot(g, {})), step = 1e-3;
  const auto loss_at = [&](double distance) {
    auto moved = tiny_decoder();
    const auto to = moved->parameters().flats(), along = g.set().flats();
    for (size_t k = 0; k < to.size(); ++k) to[k].add_(along[k], distance / norm);
    moved->touch();
    return total(run(*moved, b, loss, terms(nullptr)));
  };
  EXPECT_NEAR((loss_at(step) - loss_at(-step)) / (2 * step), norm, 2e-3 * norm);
}

TEST(PolicyBackward, OutputsAndStatsAreThoseOfTheForwardPass) {
  auto decoder = tiny_decoder();
  const OwnedBatch b = random_batch({9, 5, 12});
  std::vector<float> logprobs(b.ids.size(), 7), entropies(b.ids.size(), 7), again(b.ids.size()),
      entropies_again(b.ids.size());
  const PolicyResult result = run(*decoder, b, full_loss(), terms(nullptr), logprobs.data(), entropies.data());
  const gyre_policy_stats& stats = result.stats;
  evaluate_policy(*decoder, b.view(), full_loss().temperature, again.data(), entropies_again.data());
  EXPECT_EQ(logprobs, again);
  EXPECT_EQ(entropies, entropies_again);
  double tokens = 0, entropy = 0, log_ratio = 0, gap = 0;
  for (size_t t = 0; t < b.ids.size(); ++t) {
    if (b.mask[t] == 0) {
      EXPECT_EQ(logprobs[t], 0);
      continue;
    }
    tokens += 1;
    entropy += static_cast<double>(b.weights[t]) * entropies[t];
    log_ratio += static_cast<double>(b.old_logprobs[t]) - logprobs[t];
    gap = std::max(gap, std::abs(static_cast<double>(logprobs[t]) - b.old_logprobs[t]));
  }
  EXPECT_EQ(stats.tokens, tokens);
  EXPECT_NEAR(result.terms[1].value, entropy, 1e-12);
  EXPECT_NEAR(stats.log_ratio, log_ratio, 1e-9);
  EXPECT_EQ(stats.logprob_gap_max, gap);
}

TEST(PolicyBackward, OnPolicyStepIsTheVanillaPolicyGradient) {
  auto decoder = tiny_decoder();
  OwnedBatch b = random_batch({9, 5});
  evaluate_policy(*decoder, b.view(), 0.9, b.old_logprobs.data(), nullptr);
  gyre_policy_loss loss = full_loss();
  loss.entropy_coef = loss.kl_coef = 0;
  gyre_gradients surrogate(decoder->config()), nll(decoder->config());
  const PolicyResult result = run(*decoder, b, loss, terms(&surrogate));
  EXPECT_EQ(result.stats.logprob_gap_max, 0);
  EXPECT_EQ(result.terms[0].clipped, 0);
  for (size_t t = 0; t < b.ids.size(); ++t) b.weights[t] *= b.advantages[t];
  loss.task = train_test::kNllTask;
  run(*decoder, b, loss, terms(&nll, nullptr, nullptr));
  EXPECT_LT(relative_distance(surrogate, nll), 1e-5);
}

TEST(PolicyBackward, NonFiniteModelIsAnError) {
  auto decoder = tiny_decoder();
  decoder->parameters().root.final_norm_H.fill_(NAN);
  decoder->touch();
  gyre_gradients g(decoder->config());
  EXPECT_THROW(run(*decoder, random_batch({6}), full_loss(), terms(&g)), NotFiniteError);
}

TEST(PolicyBackward, NamesTheBadToken) {
  auto decoder = tiny_decoder();
  const auto message = [&](OwnedBatch b) -> std::string {
    try {
      run(*decoder, b, full_loss(), terms(nullptr));
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "no error";
  };
  OwnedBatch b = random_batch({4, 6});
  std::fill(b.mask.begin(), b.mask.end(), 1);
  EXPECT_NE(message(b).find("first token of sequence 0"), std::string::npos);
  b.mask[0] = b.mask[4] = 0;
  EXPECT_EQ(message(b), "no error");
  OwnedBatch id = b;
  id.ids[5] = 37;
  EXPECT_NE(message(id).find("token 1 of sequence 1 has id 37"), std::string::npos) << message(id);
  OwnedBatch weight = b;
  weight.weights[6] = NAN;
  EXPECT_NE(message(weight).find("weight of token 2 of sequence 1"), std::string::npos) << message(weight);
  OwnedBatch offsets = b;
  offsets.offsets = {0, 4, 4, 10};
  EXPECT_NE(message(offsets).find("sequence 1 has length 0"), std::string::npos) << message(offsets);
}

TEST(EvaluatePolicy, GroupingChangesNoBit) {
  auto decoder = tiny_decoder();
  const OwnedBatch b = random_batch(std::vector<int>(300, 40));  // more rows than one pass takes
  std::vector<float> together(b.ids.size()), alone(40);
  evaluate_policy(*decoder, b.view(), 1, together.data(), nullptr);
  for (int64_t s : {0, 101, 102, 299}) {
    const OwnedBatch one = train_test::slice(b, s, s + 1);
    evaluate_policy(*decoder, one.view(), 1, alone.data(), nullptr);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + s * 40)) << s;
  }
}

}  // namespace
}  // namespace gyre
