#include "engine/speculation.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace gyre {
namespace {

uint64_t mixed(uint64_t a, uint64_t b) {
  const uint64_t h = (a ^ std::rotl(b, 29)) * 0x9E3779B97F4A7C15;
  return h ^ h >> 32;
}

}  // namespace

// Pairs, pairs of pairs and so on, from the last token backwards.
size_t LookUp::hash(std::span<const int32_t> tokens, Hashes& hashes) {
  std::array<uint64_t, kOrders.back()> h;
  const size_t count = std::min(tokens.size(), h.size());
  for (size_t i = 0; i < count; ++i) h[i] = static_cast<uint64_t>(tokens[tokens.size() - 1 - i]) + 1;
  size_t orders = 0;
  for (; orders < kOrders.size() && count >= static_cast<size_t>(kOrders[orders]); ++orders) {
    for (size_t i = 0; i < count >> (orders + 1); ++i) h[i] = mixed(h[2 * i], h[2 * i + 1]);
    hashes[orders] = h[0];
  }
  return orders;
}

void LookUp::learn(std::span<const int32_t> tokens, Share share, bool drawn) {
  Hashes hashes;
  const size_t orders = hash(tokens.first(tokens.size() - 1), hashes);
  for (size_t order = 0; order < orders; ++order) {
    Bucket& bucket = buckets_[hashes[order] % kBuckets];
    const Entry entry{static_cast<uint32_t>(hashes[order] >> 32), tokens.back(), share};
    const auto same = [&](const Entry& e) { return e.check == entry.check && e.token == entry.token; };
    const bool second = !same(bucket[0]);
    if (second) std::swap(bucket[0], bucket[1]);
    if (!same(bucket[0]) || drawn) bucket[0] = entry;
  }
}

std::optional<LookUp::Found> LookUp::find(std::span<const int32_t> tokens, double u,
                                          std::span<const double> rates) const {
  Hashes hashes;
  std::optional<Found> best;
  for (size_t order = hash(tokens, hashes); order-- > 0;) {
    for (const Entry& e : buckets_[hashes[order] % kBuckets]) {
      if (e.token < 0 || e.check != static_cast<uint32_t>(hashes[order] >> 32) || !e.share.holds(u)) continue;
      const bool whole = e.share.low == 0 && e.share.high == 1;
      const int kind = static_cast<int>(2 * order) + (whole ? 1 : 0);
      if (!best || rates[kind] > rates[best->kind]) best = {e.token, kind};
    }
  }
  return best;
}

size_t Pace::group(int64_t sequences) { return std::min<size_t>(std::bit_width(static_cast<uint64_t>(sequences)), 15); }

bool Pace::pays(double probability, int64_t sequences, int64_t extra, double right) const {
  constexpr double kMargin = 1.7;  // 1.3 was 4 % slower than plain decoding for 16 sequences
  const double slope = groups_[group(sequences)].slope, n = static_cast<double>(sequences);
  return probability * (n + slope * static_cast<double>(extra)) > kMargin * slope * (n + right);
}

// A step of least squares towards what was measured, outliers cut off: others may have had the cores.
void Pace::measured(int64_t sequences, int64_t extra, double seconds) {
  auto& [slope, expected, before, tried] = groups_[group(sequences)];
  const double n = static_cast<double>(sequences), more = static_cast<double>(extra) / n;
  if (before == 0) {
    expected = seconds / (1 + slope * more);
  } else {
    expected *= 1 + slope * (n / static_cast<double>(before) - 1);
  }
  before = sequences;
  const double error = std::clamp(seconds / expected - (1 + slope * more), -0.5, 0.5);
  expected *= 1 + (extra > 0 ? 0.05 : tried < kTries ? 0.2 : 0.5) * error;
  tried = extra > 0 ? tried + 1 : 0;
  if (extra == 0) {
    slope += 0.001 * (kFirstSlope - slope);  // tried again one day
  } else {
    slope = std::clamp(slope + 0.2 * error * more / (0.1 + more * more), 0.01, 1.5);
  }
}

void Speculation::read(Sequence& s, int64_t until) {
  for (; s.learned < until; ++s.learned) known_.learn(std::span(s.tokens).first(s.learned + 1), {}, false);
}

Speculation::Chain Speculation::look_up(Sequence& s) {
  read(s, s.length());
  const gyre_sampling& sampling = s.request.sampling;
  const std::vector<int32_t>& stops = s.request.stop_ids;
  const int64_t most = std::min({most_, sampling.max_tokens - s.outputs() - 1, max_length_ - s.length() - 1});
  const int64_t context = std::min(s.length(), LookUp::kOrders.back());
  Chain chain{.tokens = {s.tokens.end() - context, s.tokens.end()}};
  double probability = 1;
  for (int64_t i = 0; i < most; ++i) {
    const auto found = known_.find(chain.tokens, uniform(sampling.seed, s.outputs() + i), rates_);
    if (!found) break;
    if (!sampling.ignore_eos && std::ranges::find(stops, found->token) != stops.end()) break;  // nothing follows it
    chain.tokens.push_back(found->token);
    chain.right.push_back(probability *= rates_[found->kind]);
  }
  chain.tokens.erase(chain.tokens.begin(), chain.tokens.begin() + context);
  return chain;
}

Speculation::Choice Speculation::choose(std::span<const Chain> chains) const {
  Choice choice{.taken = std::vector<int64_t>(chains.size())};
  std::vector<std::pair<double, size_t>> all;  // the probability that a proposal is right, and whose it is
  for (size_t i = 0; i < chains.size(); ++i) {
    for (const double probability : chains[i].right) all.emplace_back(probability, i);
  }
  std::ranges::stable_sort(all, std::ranges::greater(), &std::pair<double, size_t>::first);
  for (const auto& [probability, i] : all) {
    if (!always_ && !pace_.pays(probability, std::ssize(chains), choice.extra, choice.right)) break;
    ++choice.taken[i], ++choice.extra, choice.right += probability;
  }
  return choice;
}

void Speculation::propose(std::span<Sequence* const> sampled, bool alone,
                          const std::function<void(Sequence&, std::span<const int32_t>)>& extend) {
  if (!always_ && (!alone || pace_.unknown(std::ssize(sampled)))) return;
  std::vector<Chain> chains(sampled.size());
  for (size_t i = 0; i < sampled.size(); ++i) {
    if (takes_part(*sampled[i])) chains[i] = look_up(*sampled[i]);
  }
  const Choice choice = choose(chains);
  for (size_t i = 0; i < sampled.size(); ++i) {
    extend(*sampled[i], std::span(chains[i].tokens).first(choice.taken[i]));
  }
  patience_ = choice.extra > 0 ? kPatience : std::max(0, patience_ - 1);
}

void Speculation::learn(Sequence& s, const Draw& draw) {
  if (!takes_part(s)) return;
  read(s, s.length() - 1);
  constexpr double kStep = 1.0 / 32;
  const auto tokens = std::span(s.tokens);
  const auto found =
      known_.find(tokens.first(tokens.size() - 1), uniform(s.request.sampling.seed, s.outputs() - 1), rates_);
  if (found) rates_[found->kind] += kStep * ((found->token == draw.token ? 1 : 0) - rates_[found->kind]);
  known_.learn(tokens, draw.share, true);
  s.learned = s.length();
}

void Speculation::measured(std::span<Sequence* const> sampled, bool alone, double seconds) {
  const int64_t n = std::ssize(sampled);
  if (!alone || n == 0) return;
  int64_t extra = 0;
  for (const Sequence* s : sampled) extra += std::ssize(s->draft);
  cheap_ = seconds > kCheap * static_cast<double>(n);
  pace_.measured(n, extra, seconds);
}

}  // namespace gyre
