#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

#include "engine/prefix_cache.h"

namespace gyre {
namespace {

constexpr int32_t kNone = PrefixCache::kNone;

std::vector<int32_t> tokens(int count, int first = 0) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

// Computes a whole list of tokens in pages of its own and returns the table.
std::vector<int32_t> fill(PrefixCache& cache, const std::vector<int32_t>& ids, std::vector<int32_t> table = {}) {
  for (size_t begin = table.size() * kPageTokens; begin < ids.size(); begin += kPageTokens) {
    table.push_back(cache.take(table.empty() ? kNone : table.back()));
    const size_t n = std::min<size_t>(kPageTokens, ids.size() - begin);
    table.back() = cache.commit(table.back(), std::span(ids).subspan(begin, n));
  }
  return table;
}

TEST(PrefixCache, FindsTheLongestCommonPrefix) {
  PrefixCache cache(8, true);
  auto table = fill(cache, tokens(40));
  const auto pages = table;
  EXPECT_EQ(cache.cached(), 0);
  cache.release(table);
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(cache.cached(), 3);
  EXPECT_EQ(cache.free(), 5);
  EXPECT_EQ(cache.peak(), 3);

  auto match = cache.find(tokens(60));
  EXPECT_EQ(match.pages, (std::vector<int32_t>{pages[0], pages[1]}));
  EXPECT_EQ(match.partial, pages[2]);
  EXPECT_EQ(match.positions(), 40);
  EXPECT_TRUE(cache.extendable(pages[2], 8));

  auto other = tokens(60);
  other[20] = 99;
  match = cache.find(other);
  EXPECT_EQ(match.pages.size(), 1u);
  EXPECT_EQ(match.partial, pages[1]);
  EXPECT_EQ(match.positions(), 20);
  EXPECT_FALSE(cache.extendable(pages[1], 4)) << "its other positions would be lost";

  EXPECT_EQ(cache.find(tokens(31)).positions(), 31);
  EXPECT_EQ(cache.find(tokens(60, 1)).positions(), 0);
  EXPECT_EQ(cache.find(tokens(60, 1)).partial, kNone);
  EXPECT_EQ(cache.find({}).positions(), 0);
}

TEST(PrefixCache, EqualTokensBehindAnotherPrefixAreNotEqual) {
  PrefixCache cache(8, true);
  const auto first = fill(cache, tokens(32));
  auto other = tokens(32, 16);  // its first page holds what the other's second one does
  EXPECT_EQ(cache.find(other).positions(), 0);
  const auto second = fill(cache, other);
  EXPECT_EQ(cache.find(other).pages, second);
  EXPECT_EQ(cache.find(tokens(32)).pages, first);
}

TEST(PrefixCache, EqualPagesBecomeOne) {
  PrefixCache cache(8, true);
  const auto first = fill(cache, tokens(32));
  std::vector<int32_t> second = fill(cache, tokens(32));  // as if both had been computed in one pass
  EXPECT_EQ(second, first);
  EXPECT_EQ(cache.free(), 6);
  cache.release(second);
  EXPECT_EQ(cache.cached(), 0);
  std::vector<int32_t> twice = {first[1], first[1]};
  EXPECT_THROW(cache.release(twice), std::logic_error);
}

TEST(PrefixCache, AnnouncedPagesArePending) {
  PrefixCache cache(8, true);
  const int32_t page = cache.take(kNone);
  const auto ids = tokens(20);
  EXPECT_FALSE(cache.find(ids).pending);
  cache.announce(page, std::span(ids).first(16));
  EXPECT_TRUE(cache.find(ids).pending);
  cache.withdraw(page);
  EXPECT_FALSE(cache.find(ids).pending);
  cache.announce(page, std::span(ids).first(16));
  EXPECT_EQ(cache.commit(page, std::span(ids).first(16)), page);
  cache.withdraw(page);  // too late: it is computed
  EXPECT_EQ(cache.find(ids).pages, std::vector<int32_t>{page});
}

TEST(PrefixCache, AnnouncedBeginningsOfPagesArePending) {
  PrefixCache cache(8, true);
  const auto ids = tokens(6);
  const int32_t page = cache.take(kNone);
  cache.announce(page, ids);
  EXPECT_TRUE(cache.find(ids).pending);
  EXPECT_TRUE(cache.find(tokens(4)).pending);
  EXPECT_FALSE(cache.find(tokens(7)).pending) << "the coming pass computes less than is missing";
  EXPECT_FALSE(cache.find(tokens(6, 1)).pending);
  const int32_t computed = cache.commit(cache.take(kNone), tokens(4));
  EXPECT_FALSE(cache.find(tokens(4)).pending) << "another page has it all";
  EXPECT_EQ(cache.find(tokens(4)).partial, computed);
  EXPECT_TRUE(cache.find(ids).pending);
  EXPECT_EQ(cache.find(ids).positions(), 4);
}

TEST(PrefixCache, CountsPagesInUse) {
  PrefixCache cache(8, true);
  auto table = fill(cache, tokens(40));
  const auto pages = table;
  EXPECT_EQ(cache.idle(pages), 0);
  cache.release(table);
  EXPECT_EQ(cache.idle(pages), 3);
  EXPECT_EQ(cache.peak(), 3);
  cache.use(pages[0]);
  EXPECT_EQ(cache.idle(pages), 2);
  EXPECT_EQ(cache.peak(), 3);
  std::vector<int32_t> more = {cache.take(kNone), cache.take(kNone)};
  EXPECT_EQ(cache.peak(), 3);
  cache.use(pages[1]);
  EXPECT_EQ(cache.peak(), 4) << "a page that is used again counts";
  EXPECT_EQ(cache.cached(), 1);
  EXPECT_EQ(cache.available(), 4);
}

TEST(PrefixCache, TakesBackWhatWasUsedLongestAgo) {
  PrefixCache cache(4, true);
  auto a = fill(cache, tokens(32, 100)), b = fill(cache, tokens(32, 200));
  cache.release(a);
  cache.release(b);
  auto match = cache.find(tokens(16, 100));
  cache.use(match.pages[0]);  // the first page of `a` is in use again, its second one is the oldest idle
  std::vector<int32_t> table = {cache.take(kNone)};
  EXPECT_EQ(cache.find(tokens(32, 100)).positions(), 16);
  EXPECT_EQ(cache.find(tokens(32, 200)).positions(), 32);
  table.push_back(cache.take(kNone));
  EXPECT_EQ(cache.find(tokens(32, 200)).positions(), 16) << "the end of a prefix goes before its beginning";
  cache.release(match.pages);
  EXPECT_EQ(cache.available(), 2);
  table.push_back(cache.take(kNone));
  EXPECT_EQ(cache.find(tokens(32, 200)).positions(), 0) << "a page counts as used when it was released";
  EXPECT_EQ(cache.find(tokens(32, 100)).positions(), 16);
  table.push_back(cache.take(kNone));
  EXPECT_EQ(cache.take(kNone), kNone);
  cache.release(table);
  EXPECT_EQ(cache.free(), 4) << "pages without anything computed are not kept";
}

TEST(PrefixCache, SwitchedOffItKeepsNothing) {
  PrefixCache cache(4, false);
  auto table = fill(cache, tokens(40));
  EXPECT_EQ(cache.find(tokens(40)).positions(), 0);
  cache.release(table);
  EXPECT_EQ(cache.free(), 4);
}

// Random histories against a plain list of everything that was computed.
TEST(PrefixCache, AgreesWithAListOfAllPrefixes) {
  std::mt19937 generator(5);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator); };
  PrefixCache cache(400, true);
  std::vector<std::vector<int32_t>> known;
  for (int round = 0; round < 60; ++round) {
    std::vector<int32_t> ids;
    if (!known.empty() && pick(0, 3) > 0) {
      const auto& base = known[pick(0, static_cast<int>(known.size()) - 1)];
      ids.assign(base.begin(), base.begin() + pick(0, static_cast<int>(base.size())));
    }
    for (int n = pick(1, 40); n > 0; --n) ids.push_back(pick(0, 1));
    size_t longest = 0;
    for (const auto& k : known) longest = std::max<size_t>(longest, std::ranges::mismatch(k, ids).in1 - k.begin());
    auto match = cache.find(ids);
    EXPECT_EQ(match.positions(), static_cast<int64_t>(longest)) << "round " << round;
    for (const int32_t page : match.pages) cache.use(page);
    auto table = fill(cache, ids, match.pages);
    cache.release(table);
    known.push_back(ids);
  }
  EXPECT_EQ(cache.available(), 400);
  std::vector<int32_t> all;
  for (int i = 0; i < 400; ++i) all.push_back(cache.take(kNone));
  EXPECT_EQ(cache.take(kNone), kNone);
  EXPECT_EQ(std::set<int32_t>(all.begin(), all.end()).size(), 400u);
  EXPECT_EQ(cache.find(known[0]).positions(), 0);
}

}  // namespace
}  // namespace gyre
