#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/vec.h"
#include "model/config.h"

namespace gyre {
namespace {

// The share of the whole between two sums of weights.
Share share_of(double below, double with, double total) {
  return {static_cast<float>(below / total), static_cast<float>(with / total)};
}

// The token at which the sum of the weights, in order of ids, passes u times the whole: `running` says in which block,
// and only that block's weights are computed again.
int32_t draw_unfiltered(std::span<const float> logits, float inverse_temperature, const RowScore& score,
                        std::span<const float> running, double u, Share& share) {
  const double goal = u * running.back();
  const auto block = std::ranges::upper_bound(running, goal, {}, [](float sum) { return static_cast<double>(sum); });
  const int64_t begin = std::min(block, running.end() - 1) - running.begin();
  double cumulative = begin == 0 ? 0 : running[begin - 1];
  int64_t last = begin * kSoftmaxBlock;  // the last token of positive weight, should
                                         // rounding keep the sum below the goal
  for (int64_t i = last, end = std::min<int64_t>(i + kSoftmaxBlock, logits.size()); i < end; i += kLanes) {
    const int64_t lanes = std::min<int64_t>(kLanes, end - i);
    float weights[kLanes];
    store(weights, exponential(load_first(&logits[i], lanes) * inverse_temperature - score.max));
    for (int64_t lane = 0; lane < lanes; ++lane) {
      if (weights[lane] > 0) last = i + lane;
      const double below = cumulative;
      if ((cumulative += weights[lane]) <= goal) continue;
      share = share_of(below, cumulative, running.back());
      return static_cast<int32_t>(i + lane);
    }
  }
  return static_cast<int32_t>(last);
}

// The same among candidates.
const Candidate& draw_candidate(const std::vector<Candidate>& candidates, double total, double u, Share& share) {
  double cumulative = 0;
  const Candidate* last = &candidates.front();
  for (const Candidate& c : candidates) {
    const double below = cumulative;
    cumulative += c.weight;
    if (c.weight > 0) last = &c;
    if (cumulative <= u * total) continue;
    share = share_of(below, cumulative, total);
    break;
  }
  return *last;
}

// The `count` likeliest tokens under the policy, in order of likelihood, lower ids first on ties.
std::vector<gyre_alternative> alternatives_of(std::span<const float> logits, float inverse_temperature, int64_t count,
                                              const RowScore& policy, double mass) {
  const gyre_sampling only{.top_k = count};
  std::vector<Candidate> kept = likeliest(logits, inverse_temperature, only, policy, mass);
  std::ranges::stable_sort(kept, std::ranges::greater(), &Candidate::scaled);
  std::vector<gyre_alternative> all;
  all.reserve(kept.size());
  for (const Candidate& c : kept)
    all.push_back({c.token, logprob_of(logits.data(), c.token, inverse_temperature, policy.logsumexp)});
  return all;
}

}  // namespace

Draw draw_token(std::span<const float> logits_V, const gyre_sampling& sampling, int64_t position,
                std::span<const int32_t> banned) {
  const auto vocab = static_cast<int64_t>(logits_V.size());
  const bool greedy = sampling.temperature == 0;
  const float inverse_temperature = greedy ? 1.0f : static_cast<float>(1.0 / sampling.temperature);
  std::vector<float> running(ceil_div(vocab, kSoftmaxBlock));
  const RowScore policy = score_row(logits_V.data(), vocab, inverse_temperature, false, running.data());
  require<NotFiniteError>(std::isfinite(policy.logsumexp), "the logits of output token ", position,
                          " are not finite: the model has diverged or its weights are damaged");

  Draw draw;
  if (sampling.alternatives > 0) {
    draw.alternatives = alternatives_of(logits_V, inverse_temperature, sampling.alternatives, policy, running.back());
  }
  std::vector<float> masked;
  std::span<const float> logits = logits_V;
  RowScore score = policy;
  if (!banned.empty()) {
    masked.assign(logits_V.begin(), logits_V.end());
    for (const int32_t id : banned)
      if (id >= 0 && id < vocab) masked[id] = -std::numeric_limits<float>::infinity();
    logits = masked;
    score = score_row(masked.data(), vocab, inverse_temperature, false, running.data());
    require(std::isfinite(score.logsumexp), "min_tokens: every token of the vocabulary is a stop id");
  }

  const double u = uniform(sampling.seed, static_cast<uint64_t>(position));
  if (greedy) {
    draw.token = static_cast<int32_t>(std::ranges::find(logits, score.max) - logits.begin());
  } else if (sampling.top_k > 0 || sampling.top_p < 1 || sampling.min_p > 0) {
    const std::vector<Candidate> kept = likeliest(logits, inverse_temperature, sampling, score, running.back());
    double total = 0;
    for (const Candidate& c : kept) total += c.weight;
    const Candidate& drawn = draw_candidate(kept, total, u, draw.share);
    draw.token = drawn.token;
    draw.sampling_logprob = static_cast<float>(drawn.scaled - score.max - std::log(total));
  } else {
    draw.token = draw_unfiltered(logits, inverse_temperature, score, running, u, draw.share);
    draw.sampling_logprob = logprob_of(logits.data(), draw.token, inverse_temperature, score.logsumexp);
  }
  draw.logprob = logprob_of(logits_V.data(), draw.token, inverse_temperature, policy.logsumexp);
  return draw;
}

}  // namespace gyre
