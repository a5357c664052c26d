#include "backend/cpu/support.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/softmax.h"

namespace gyre {
namespace {

using Logit = std::pair<float, int32_t>;  // a logit and its token

bool larger(const Logit& a, const Logit& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; }

}  // namespace

float& KeptLogits::at(int64_t row, int64_t token) {
  return logits_[(token / kSoftmaxBlock * rows_ + row) * kSoftmaxBlock + token % kSoftmaxBlock];
}

void KeptLogits::likeliest(int64_t row, std::span<int32_t> ids) {
  const auto last = static_cast<ptrdiff_t>(ids.size()) - 1;
  std::vector<Logit> best;
  float least = -std::numeric_limits<float>::infinity();  // of the k best so far: less is not among the best of all
  const auto cut = [&] {
    if (best.size() > ids.size()) std::ranges::nth_element(best, best.begin() + last, larger);
    best.resize(ids.size());
    least = best.back().first;
  };
  for (int64_t first = 0; first < vocab_; first += kSoftmaxBlock) {
    const float* block = &at(row, first);
    for (int64_t j = 0, n = std::min(kSoftmaxBlock, vocab_ - first); j < n; ++j) {
      if (!(block[j] >= least)) continue;  // nor is what is no number
      best.emplace_back(block[j], static_cast<int32_t>(first + j));
      if (best.size() == 2 * ids.size() + 16) cut();
    }
  }
  cut();
  std::ranges::sort(best, larger);
  std::ranges::transform(best, ids.begin(), &Logit::second);
}

// The mass of the other tokens is summed by itself: 1 less that of the support's would be rounding where it is small.
void KeptLogits::outcomes(int64_t row, float logsumexp, std::span<const int32_t> ids, std::span<float> out) {
  std::vector<float> own(ids.size());
  for (size_t j = 0; j < ids.size(); ++j) {
    own[j] = std::exchange(at(row, ids[j]), -std::numeric_limits<float>::infinity());
    out[j] = logprob_of(&own[j], 0, inverse_, logsumexp);
  }
  SoftmaxRow others;
  for (int64_t first = 0; first < vocab_; first += kSoftmaxBlock) {
    add_logits(others, &at(row, first), std::min(kSoftmaxBlock, vocab_ - first), inverse_, false);
  }
  out[ids.size()] = others.logsumexp() - logsumexp;
  for (size_t j = 0; j < ids.size(); ++j) at(row, ids[j]) = own[j];
}

void KeptLogits::take(std::span<const int32_t> ids, Scores& scores) {
  scores.support.assign(ids.begin(), ids.end());
  const size_t k = ids.size() / static_cast<size_t>(rows_);
  scores.outcomes.resize(static_cast<size_t>(rows_) * (k + 1));
  parallel_for(rows_, 1, [&](int64_t row) {
    const auto r = static_cast<size_t>(row);
    outcomes(row, scores.logsumexp[r], ids.subspan(r * k, k), std::span(scores.outcomes).subspan(r * (k + 1), k + 1));
  });
}

void KeptLogits::take_likeliest(int64_t k, Scores& scores) {
  std::vector<int32_t> ids(static_cast<size_t>(rows_ * k));
  parallel_for(rows_, 1, [&](int64_t row) {
    likeliest(row, std::span(ids).subspan(static_cast<size_t>(row * k), static_cast<size_t>(k)));
  });
  take(ids, scores);
}

void append(const Scores& chunk, Scores& all) {
  const auto add = [](const auto& from, auto& to) { to.insert(to.end(), from.begin(), from.end()); };
  add(chunk.logprobs, all.logprobs), add(chunk.entropies, all.entropies), add(chunk.logsumexp, all.logsumexp);
  add(chunk.mean_logit, all.mean_logit), add(chunk.support, all.support), add(chunk.outcomes, all.outcomes);
}

}  // namespace gyre
