#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/random.h"
#include "kernels/vec.h"
#include "model/errors.h"
#include "model/score.h"

namespace gyre {
namespace {

struct Candidate {
  int32_t token;
  float scaled;  // logit / temperature
};

bool likelier(const Candidate& a, const Candidate& b) {
  return a.scaled != b.scaled ? a.scaled > b.scaled : a.token < b.token;
}

bool contains(std::span<const int32_t> ids, int32_t id) { return std::ranges::find(ids, id) != ids.end(); }

int32_t argmax(std::span<const float> logits, std::span<const int32_t> banned) {
  int32_t best = -1;
  for (int32_t i = 0; i < static_cast<int32_t>(logits.size()); ++i)
    if ((best < 0 || logits[i] > logits[best]) && !contains(banned, i)) best = i;
  return best;
}

// The whole vocabulary: probabilities exp(z - logsumexp) are summed until they pass u, block by block.
int32_t draw_unfiltered(std::span<const float> logits, float inverse_temperature, float logsumexp, double u) {
  constexpr int64_t kBlock = 8 * kLanes;
  const int64_t vocab = static_cast<int64_t>(logits.size());
  float p[kBlock];
  double cumulative = 0;
  int64_t last = 0;  // the last token of positive probability, should rounding keep the sum below u
  for (int64_t begin = 0; begin < vocab; begin += kBlock) {
    const int64_t n = std::min(kBlock, vocab - begin);
    vf sum{};
    for (int64_t i = 0; i < n; i += kLanes) {
      const int64_t lanes = std::min<int64_t>(kLanes, n - i);
      store_first(p + i, exponential(load_first(&logits[begin + i], lanes) * inverse_temperature - logsumexp), lanes);
      sum += load_first(p + i, lanes);
    }
    const double before = cumulative;
    cumulative += reduce_sum(sum);
    if (cumulative <= u && begin + n < vocab) continue;
    double walked = before;
    for (int64_t i = 0; i < n; ++i) {
      if (p[i] > 0) last = begin + i;
      if ((walked += p[i]) > u) return static_cast<int32_t>(begin + i);
    }
    if (cumulative > u) return static_cast<int32_t>(last);
  }
  return static_cast<int32_t>(last);
}

// Shortens `kept` to the smallest set of likeliest candidates whose mass is at least top_p of the whole.
void keep_nucleus(std::vector<Candidate>& kept, double top_p, float top) {
  double total = 0;
  for (const Candidate& c : kept) total += std::exp(c.scaled - top);
  double mass = 0;
  size_t sorted = 0;
  for (size_t goal = std::min<size_t>(64, kept.size());; goal = std::min(2 * goal, kept.size())) {
    // Sort only as many of the likeliest as the mass asks for.
    if (goal < kept.size()) std::nth_element(kept.begin() + sorted, kept.begin() + goal, kept.end(), likelier);
    std::sort(kept.begin() + sorted, kept.begin() + goal, likelier);
    for (; sorted < goal; ++sorted) {
      mass += std::exp(kept[sorted].scaled - top);
      if (mass >= top_p * total) {
        kept.resize(sorted + 1);
        return;
      }
    }
    if (goal == kept.size()) return;
  }
}

std::vector<Candidate> filter(std::span<const float> logits, float inverse_temperature, const Sampling& sampling,
                              std::span<const int32_t> banned, float top) {
  std::vector<Candidate> kept;
  const float floor = sampling.min_p > 0 ? top + static_cast<float>(std::log(sampling.min_p)) : -INFINITY;
  for (int32_t i = 0; i < static_cast<int32_t>(logits.size()); ++i) {
    const float scaled = logits[i] * inverse_temperature;
    if (scaled >= floor && !contains(banned, i)) kept.push_back({i, scaled});
  }
  if (sampling.top_k > 0 && sampling.top_k < static_cast<int64_t>(kept.size())) {
    std::nth_element(kept.begin(), kept.begin() + sampling.top_k, kept.end(), likelier);
    kept.resize(sampling.top_k);
  }
  if (sampling.top_p < 1) keep_nucleus(kept, sampling.top_p, top);
  std::ranges::sort(kept, {}, &Candidate::token);
  return kept;
}

}  // namespace

Draw draw_token(std::span<const float> logits_V, const Sampling& sampling, int64_t position,
                std::span<const int32_t> banned) {
  const bool greedy = sampling.temperature == 0;
  const float inverse_temperature = greedy ? 1.0f : static_cast<float>(1.0 / sampling.temperature);
  const float logsumexp =
      score_row(logits_V.data(), static_cast<int64_t>(logits_V.size()), inverse_temperature, false).logsumexp;
  if (!std::isfinite(logsumexp))
    throw NotFiniteError("the logits of output token " + std::to_string(position) +
                         " are not finite: the model has diverged or its weights are damaged");

  Draw draw;
  const double u = uniform(sampling.seed, static_cast<uint64_t>(position));
  const bool filtered = sampling.top_k > 0 || sampling.top_p < 1 || sampling.min_p > 0 || !banned.empty();
  if (!filtered && !greedy) {
    draw.token = draw_unfiltered(logits_V, inverse_temperature, logsumexp, u);
    draw.logprob = draw.sampling_logprob = logprob_of(logits_V.data(), draw.token, inverse_temperature, logsumexp);
    return draw;
  }
  const int32_t best = argmax(logits_V, banned);
  if (best < 0) throw std::invalid_argument("min_tokens: every token of the vocabulary is a stop id");
  draw.token = best;
  if (!greedy) {
    const float top = logits_V[best] * inverse_temperature;
    const std::vector<Candidate> kept = filter(logits_V, inverse_temperature, sampling, banned, top);
    double total = 0;
    for (const Candidate& c : kept) total += std::exp(c.scaled - top);
    double cumulative = 0;
    for (const Candidate& c : kept) {
      const double weight = std::exp(c.scaled - top);
      cumulative += weight;
      if (weight > 0) {
        draw.token = c.token;
        draw.sampling_logprob = static_cast<float>(c.scaled - top - std::log(total));
      }
      if (cumulative > u * total) break;
    }
  }
  draw.logprob = logprob_of(logits_V.data(), draw.token, inverse_temperature, logsumexp);
  return draw;
}

}  // namespace gyre
