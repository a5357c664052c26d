#include <gtest/gtest.h>

#include <random>

#include "model/pass.h"
#include "model_fixture.h"

namespace gyre {
namespace {

struct Sequences {
  void add(std::vector<int32_t> sequence) {
    ids.insert(ids.end(), sequence.begin(), sequence.end());
    offsets.push_back(static_cast<int64_t>(ids.size()));
  }
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets{0};
};

// Every token's row holds the token, stands at its position, and leads back to the rows of the tokens before it.
void expect_histories(const Sequences& s, const Packing& p) {
  ASSERT_EQ(p.row_of.size(), s.ids.size());
  std::vector<int64_t> before(p.ids.size(), -2), position(p.ids.size());
  int64_t rows = 0;
  for (const Segment& segment : p.segments) {
    EXPECT_EQ(segment.row, rows);
    EXPECT_GT(segment.count, 0);
    EXPECT_LT(segment.parent, &segment - p.segments.data());
    const Segment* parent = segment.parent < 0 ? nullptr : &p.segments[static_cast<size_t>(segment.parent)];
    EXPECT_EQ(segment.position, parent ? parent->position + parent->count : 0);
    for (int64_t i = 0; i < segment.count; ++i) {
      const auto row = static_cast<size_t>(segment.row + i);
      before[row] = i > 0 ? segment.row + i - 1 : parent ? parent->row + parent->count - 1 : -1;
      position[row] = segment.position + i;
    }
    rows += segment.count;
  }
  EXPECT_EQ(rows, p.rows());
  for (size_t q = 0; q + 1 < s.offsets.size(); ++q) {
    for (int64_t t = s.offsets[q]; t < s.offsets[q + 1]; ++t) {
      const auto row = static_cast<size_t>(p.row_of[static_cast<size_t>(t)]);
      EXPECT_EQ(p.ids[row], s.ids[static_cast<size_t>(t)]);
      EXPECT_EQ(position[row], t - s.offsets[q]);
      EXPECT_EQ(before[row], t == s.offsets[q] ? -1 : p.row_of[static_cast<size_t>(t - 1)]);
    }
  }
}

TEST(Packing, KeepsUnrelatedSequencesAsTheyAre) {
  Sequences s;
  s.add({1, 2, 3});
  s.add({4});
  s.add({2, 2});
  const Packing p = pack(s.ids, s.offsets);
  EXPECT_EQ(p.ids, s.ids);
  EXPECT_EQ(p.row_of, (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  expect_histories(s, p);
}

TEST(Packing, SharesPrefixesAndNothingElse) {
  Sequences s;
  s.add({1, 2, 3, 4});
  s.add({9, 2, 3, 4});  // another history
  s.add({1, 2, 3, 4});  // all of the first
  s.add({1, 2});        // a part of it
  s.add({1, 2, 5, 6});
  s.add({1, 2, 5, 7});
  s.add({1, 2, 3, 4, 8});
  const Packing p = pack(s.ids, s.offsets);
  expect_histories(s, p);
  // Depth first: the first tree with its branches, then the second.
  EXPECT_EQ(p.ids, (std::vector<int32_t>{1, 2, 3, 4, 8, 5, 6, 7, 9, 2, 3, 4}));
}

TEST(Packing, HasOneRowPerHistory) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    Sequences s;
    std::vector<std::vector<int32_t>> histories;
    PrefixTree tree;
    std::vector<std::vector<int32_t>> all(20);
    for (auto& sequence : all) {
      sequence.resize(1 + random() % 7);
      for (int32_t& id : sequence) id = static_cast<int32_t>(random() % 2);
      const int64_t before = tree.rows(), more = tree.new_rows(sequence);
      tree.add(sequence);
      EXPECT_EQ(tree.rows(), before + more);
      EXPECT_EQ(tree.new_rows(sequence), 0);
      for (size_t n = 1; n <= sequence.size(); ++n) histories.emplace_back(sequence.begin(), sequence.begin() + n);
      s.add(sequence);
    }
    std::sort(histories.begin(), histories.end());
    histories.erase(std::unique(histories.begin(), histories.end()), histories.end());
    EXPECT_EQ(tree.rows(), static_cast<int64_t>(histories.size()));
    const Packing p = tree.pack();
    EXPECT_EQ(p.rows(), tree.rows());
    expect_histories(s, p);
  }
}

}  // namespace
}  // namespace gyre
