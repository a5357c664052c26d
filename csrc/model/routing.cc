#include "model/routing.h"

#include <algorithm>
#include <cmath>

#include "kernels/parallel.h"

namespace gyre {
namespace {

constexpr int64_t kRoutedRows = 64;  // least worth handing to a thread

}  // namespace

void softmax_row(std::span<const float> logits, std::span<double> probabilities) {
  const double most = std::ranges::max(logits);
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) sum += probabilities[i] = std::exp(logits[i] - most);
  for (double& p : probabilities) p /= sum;
}

void choose_experts(std::span<const float> logits, std::span<int32_t> chosen) {
  for (size_t n = 0; n < chosen.size(); ++n) {
    const auto before = chosen.first(n);
    int32_t best = -1;
    for (int32_t e = 0; e < std::ssize(logits); ++e) {
      if (std::ranges::find(before, e) != before.end()) continue;
      if (best < 0 || logits[static_cast<size_t>(e)] > logits[static_cast<size_t>(best)]) best = e;
    }
    chosen[n] = best;
  }
  std::ranges::sort(chosen);
}

std::span<const float> Routes::logits_of(int64_t row) const {
  return {logits_ + row * shape_.experts, static_cast<size_t>(shape_.experts)};
}

Routes::Routes(const gyre_shape& shape, const float* logits, int64_t count) : shape_(shape), logits_(logits) {
  const int64_t k = shape.chosen_experts;
  const auto all = static_cast<size_t>(count * k);
  chosen.resize(all), places.resize(all), rows.resize(all), weights.resize(all);
  std::vector<float> by_row(all);
  parallel_for(count, kRoutedRows, [&](int64_t r) {
    const std::span own = std::span(chosen).subspan(static_cast<size_t>(r * k), static_cast<size_t>(k));
    choose_experts(logits_of(r), own);
    std::vector<double> p(static_cast<size_t>(shape.experts));
    softmax_row(logits_of(r), p);
    double sum = 0;
    for (const int32_t e : own) sum += p[static_cast<size_t>(e)];
    for (size_t j = 0; j < own.size(); ++j) {
      by_row[static_cast<size_t>(r * k) + j] =
          static_cast<float>(p[static_cast<size_t>(own[j])] / (shape.normalized_routing ? sum : 1));
    }
  });
  first.resize(static_cast<size_t>(shape.experts) + 1);
  for (const int32_t e : chosen) ++first[static_cast<size_t>(e) + 1];
  for (size_t e = 1; e < first.size(); ++e) first[e] += first[e - 1];
  std::vector<int64_t> next = first;
  for (size_t i = 0; i < all; ++i) {
    const auto pair = static_cast<size_t>(next[static_cast<size_t>(chosen[i])]++);
    places[i] = static_cast<int32_t>(pair);
    rows[pair] = static_cast<int32_t>(static_cast<int64_t>(i) / k);
    weights[pair] = by_row[i];
  }
}

// With p = softmax over the experts S that the weights are of, d l = p (d w - Σ p d w) in S; d w is 0 where an expert
// is not chosen.
void Routes::backward(std::span<const float> d_weights, float* d_logits) const {
  const int64_t k = shape_.chosen_experts;
  parallel_for(pairs() / std::max<int64_t>(k, 1), kRoutedRows, [&](int64_t r) {
    const int32_t *experts = chosen.data() + r * k, *own = places.data() + r * k;
    float* d = d_logits + r * shape_.experts;
    double mean = 0;
    for (int64_t j = 0; j < k; ++j) {
      const auto pair = static_cast<size_t>(own[j]);
      mean += static_cast<double>(weights[pair]) * d_weights[pair];
      d[experts[j]] += weights[pair] * d_weights[pair];
    }
    if (shape_.normalized_routing) {
      for (int64_t j = 0; j < k; ++j) d[experts[j]] -= static_cast<float>(weights[static_cast<size_t>(own[j])] * mean);
      return;
    }
    std::vector<double> p(static_cast<size_t>(shape_.experts));
    softmax_row(logits_of(r), p);
    for (size_t e = 0; e < p.size(); ++e) d[e] -= static_cast<float>(p[e] * mean);
  });
}

}  // namespace gyre
