// Which tokens the filters leave.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "engine/sampler.h"
#include "kernels/vec.h"

namespace gyre {
namespace {

constexpr int64_t kBlock = 64;  // tokens; a multiple of kLanes

bool likelier(const Candidate& a, const Candidate& b) {
  return a.scaled != b.scaled ? a.scaled > b.scaled : a.token < b.token;
}

// The largest value of each block of logits.
std::vector<float> block_maxima(std::span<const float> logits) {
  const int64_t vocab = static_cast<int64_t>(logits.size());
  std::vector<float> maxima(ceil_div(vocab, kBlock));
  for (int64_t begin = 0; begin < vocab; begin += kBlock) {
    float& max = maxima[begin / kBlock];
    if (begin + kBlock > vocab) {
      max = *std::max_element(logits.begin() + begin, logits.end());
      continue;
    }
    vf lanes = load(&logits[begin]);
    for (int64_t i = kLanes; i < kBlock; i += kLanes) lanes = maximum(lanes, load(&logits[begin + i]));
    max = reduce_max(lanes);
  }
  return maxima;
}

// A threshold of scaled logits that at least k tokens reach: the k-th largest of the blocks' maxima.
float reached_by(int64_t k, std::vector<float> maxima, float inverse_temperature) {
  if (k > static_cast<int64_t>(maxima.size())) return -INFINITY;
  std::nth_element(maxima.begin(), maxima.begin() + (k - 1), maxima.end(), std::greater<>());
  return maxima[k - 1] * inverse_temperature;
}

// A threshold of scaled logits above which there is at least this mass: the highest of a few.
float holding(double mass, std::span<const float> logits, float inverse_temperature, float top) {
  constexpr std::array<float, 6> kBelowTop = {1, 2, 4, 6, 9, 13};
  constexpr double kRounding = 1e-5;  // of sums of millions of floats in lanes, at most
  std::array<vf, kBelowTop.size()> sums{};
  const vf scale = splat(inverse_temperature), shift = splat(-top);
  const int64_t vocab = static_cast<int64_t>(logits.size()), whole = vocab / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {  // what is left out only makes the sums smaller
    const vf y = load(&logits[i]) * scale + shift;
    const vf weight = exponential(y);
    for (size_t t = 0; t < sums.size(); ++t) sums[t] += y >= splat(-kBelowTop[t]) ? weight : vf{};
  }
  for (size_t t = 0; t < sums.size(); ++t)
    if (reduce_sum(sums[t]) > mass * (1 + kRounding)) return top - kBelowTop[t];
  return -INFINITY;
}

// The tokens whose scaled logits reach the threshold, with their weights.
std::vector<Candidate> collect(std::span<const float> logits, std::span<const float> maxima, float inverse_temperature,
                               float threshold, float top) {
  std::vector<Candidate> found;
  for (size_t block = 0; block < maxima.size(); ++block) {
    if (maxima[block] * inverse_temperature < threshold) continue;
    const size_t begin = block * kBlock, end = std::min(begin + kBlock, logits.size());
    for (size_t i = begin; i < end; ++i)
      if (const float scaled = logits[i] * inverse_temperature; scaled >= threshold)
        found.push_back({static_cast<int32_t>(i), scaled, 0});
  }
  for (size_t begin = 0; begin < found.size(); begin += kLanes) {
    const size_t n = std::min<size_t>(kLanes, found.size() - begin);
    float lanes[kLanes] = {};
    for (size_t i = 0; i < n; ++i) lanes[i] = found[begin + i].scaled - top;
    store(lanes, exponential(load(lanes)));
    for (size_t i = 0; i < n; ++i) found[begin + i].weight = lanes[i];
  }
  return found;
}

// Shortens the list to the smallest set of its likeliest tokens that holds `mass`, in any order: halves the part in
// which the last of them must be, as quickselect does.
void keep_mass(std::vector<Candidate>& list, double mass) {
  auto low = list.begin(), high = list.end();  // the set ends behind low and not behind high
  for (double held = 0; high - low > 1;) {
    const auto middle = low + (high - low) / 2;
    std::nth_element(low, middle, high, likelier);
    double sum = held;
    for (auto c = low; c != middle; ++c) sum += c->weight;
    if (sum >= mass) {
      high = middle;
    } else {
      low = middle;
      held = sum;
    }
  }
  list.erase(high, list.end());
}

}  // namespace

std::vector<Candidate> likeliest(std::span<const float> logits, float inverse_temperature,
                                 const gyre_sampling& sampling, const RowScore& score, double mass) {
  const std::vector<float> maxima = block_maxima(logits);
  const int64_t k = sampling.top_k;
  float threshold = sampling.min_p > 0 ? score.max + static_cast<float>(std::log(sampling.min_p)) : -INFINITY;
  const bool whole = k == 0 && threshold == -INFINITY;  // top-p is a share of the whole distribution
  if (k > 0) threshold = std::max(threshold, reached_by(k, maxima, inverse_temperature));
  if (whole && sampling.top_p < 1) threshold = holding(sampling.top_p * mass, logits, inverse_temperature, score.max);
  std::vector<Candidate> found = collect(logits, maxima, inverse_temperature, threshold, score.max);

  std::vector<Candidate> kept = found;
  if (k > 0 && k < static_cast<int64_t>(kept.size())) {
    std::nth_element(kept.begin(), kept.begin() + k, kept.end(), likelier);
    kept.resize(k);
  }
  if (sampling.top_p < 1) {
    if (!whole) {
      mass = 0;
      for (const Candidate& c : kept) mass += c.weight;
    }
    keep_mass(kept, sampling.top_p * mass);
  }
  if (kept.size() < found.size()) {
    const Candidate last = *std::ranges::max_element(kept, likelier);
    std::erase_if(found, [&](const Candidate& c) { return likelier(last, c); });
  }
  return found;
}

}  // namespace gyre
