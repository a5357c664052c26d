#include "kernels/softmax.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <random>
#include <span>
#include <vector>

namespace gyre {
namespace {

std::vector<float> random_row(int64_t vocab, float deviation, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> z(static_cast<size_t>(vocab));
  for (float& x : z) x = normal(generator);
  return z;
}

// The same in double precision.
struct Exact {
  double max = -INFINITY, sum = 0, first = 0;
  Exact(const std::vector<float>& z, double inverse) {
    for (float x : z) max = std::max(max, x * inverse);
    for (float x : z) {
      const double p = std::exp(x * inverse - max);
      sum += p;
      first += p * x * inverse;
    }
  }
  double logsumexp() const { return max + std::log(sum); }
  double mean() const { return first / sum; }
};

TEST(ScoreRow, MatchesDoubleArithmeticForEveryTail) {
  for (int64_t vocab : {1, 2, 7, 8, 15, 16, 17, 37, 1000, 3072, 3073, 9999}) {
    const std::vector<float> z = random_row(vocab, 4, 1);
    const float inverse = 1 / 0.7f;
    const Exact want(z, inverse);
    const RowScore got = score_row(z.data(), vocab, inverse, true, nullptr);
    EXPECT_NEAR(got.logsumexp, want.logsumexp(), 2e-6 * (1 + std::abs(want.max))) << vocab;
    EXPECT_NEAR(got.mean_logit, want.mean(), 2e-6 * (1 + std::abs(want.max))) << vocab;
    EXPECT_FLOAT_EQ(got.max, static_cast<float>(want.max)) << vocab;
    const RowScore without = score_row(z.data(), vocab, inverse, false, nullptr);
    EXPECT_EQ(without.logsumexp, got.logsumexp);
    EXPECT_EQ(without.mean_logit, 0);
  }
}

// Blocks in every order of size: the largest logit in the first, the last or a middle one.
TEST(ScoreRow, RunningSumsAreThoseOfTheBlocks) {
  for (const float slope : {-1e-3f, 0.0f, 1e-3f}) {
    const int64_t vocab = 3 * kSoftmaxBlock + 100;
    std::vector<float> z = random_row(vocab, 2, 3);
    for (size_t j = 0; j < z.size(); ++j) z[j] += slope * static_cast<float>(j);
    std::vector<float> running(4);
    const RowScore got = score_row(z.data(), vocab, 0.8f, false, running.data());
    double sum = 0;
    for (size_t j = 0; j < z.size(); ++j) {
      sum += std::exp(static_cast<double>(z[j]) * 0.8f - got.max);
      if ((j + 1) % kSoftmaxBlock == 0 || j + 1 == z.size()) {
        EXPECT_NEAR(running[j / kSoftmaxBlock], sum, 1e-5 * sum) << j << " " << slope;
      }
    }
    EXPECT_TRUE(std::is_sorted(running.begin(), running.end()));
    EXPECT_NEAR(got.logsumexp, got.max + std::log(running.back()), 1e-5);
  }
}

// Rounding must not make the running sums fall: a draw looks for the first that passes its goal.
TEST(ScoreRow, RunningSumsNeverFall) {
  const int64_t vocab = 3 * kSoftmaxBlock;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::vector<float> z = random_row(vocab, 1, seed), memory = {1e9f, 0, 0, 0, 7};
    float* running = memory.data() + 1;
    for (int64_t j = kSoftmaxBlock; j < vocab; ++j) z[static_cast<size_t>(j)] -= 60;  // next to nothing, or nothing
    z[static_cast<size_t>(kSoftmaxBlock + 7)] = 5 + 0.01f * static_cast<float>(seed % 7);  // a maximum that moves
    score_row(z.data(), vocab, 1.1f, false, running);
    EXPECT_TRUE(std::is_sorted(running, running + 3)) << seed;
    EXPECT_LT(running[2], 1e6f);
    EXPECT_EQ(memory[4], 7) << "written beyond the last block";
  }
}

TEST(ScoreRow, NonFiniteLogitsShow) {
  const std::vector<float> z(40, 0.5f);
  for (size_t j : {size_t{0}, size_t{20}, size_t{39}}) {
    std::vector<float> broken = z;
    broken[j] = NAN;
    EXPECT_FALSE(std::isfinite(score_row(broken.data(), 40, 1, true, nullptr).logsumexp)) << j;
  }
}

// Stop ids under min_tokens are masked: a whole block of them, wherever it lies, weighs nothing.
TEST(ScoreRow, ABlockOfMinusInfinityWeighsNothing) {
  const int64_t vocab = 3 * kSoftmaxBlock;
  for (int64_t empty = 0; empty < 3; ++empty) {
    std::vector<float> z = random_row(vocab, 4, 1), rest;
    std::fill_n(z.begin() + empty * kSoftmaxBlock, kSoftmaxBlock, -INFINITY);
    std::copy_if(z.begin(), z.end(), std::back_inserter(rest), [](float x) { return std::isfinite(x); });
    std::vector<float> running(3);
    const RowScore got = score_row(z.data(), vocab, 1.25f, true, running.data());
    const RowScore want = score_row(rest.data(), 2 * kSoftmaxBlock, 1.25f, true, nullptr);
    EXPECT_EQ(got.logsumexp, want.logsumexp) << empty;
    EXPECT_EQ(got.mean_logit, want.mean_logit) << empty;
    EXPECT_EQ(running[static_cast<size_t>(empty)], empty == 0 ? 0 : running[static_cast<size_t>(empty - 1)]) << empty;
    EXPECT_TRUE(std::isfinite(running[2]));
    z[static_cast<size_t>(empty * kSoftmaxBlock + 5)] = NAN;  // which is not nothing
    EXPECT_TRUE(std::isnan(score_row(z.data(), vocab, 1.25f, true, nullptr).logsumexp)) << empty;
  }
  const std::vector<float> nothing(100, -INFINITY);
  EXPECT_EQ(score_row(nothing.data(), 100, 1, false, nullptr).logsumexp, -INFINITY);
}

TEST(SoftmaxGradient, MatchesDoubleArithmeticForEveryTail) {
  for (int64_t n : {1, 7, 8, 16, 17, 100}) {
    const std::vector<float> z = random_row(n, 2, 5);
    const float inverse = 1 / 0.7f;
    const Exact exact(z, inverse);
    const SoftmaxGradient g{.logsumexp = static_cast<float>(exact.logsumexp()),
                            .mean = static_cast<float>(exact.mean()),
                            .d_logprob = 0.7f,
                            .d_entropy = -0.3f};
    std::vector<float> out(static_cast<size_t>(n) + 1, 7);
    softmax_gradient(z.data(), n, inverse, g, out.data());
    for (size_t j = 0; j < z.size(); ++j) {
      const double p = std::exp(z[j] * static_cast<double>(inverse) - exact.logsumexp());
      // d logprob / d z = (onehot - p) / T without the onehot, d entropy / d z = -p (z/T - mean) / T
      const double want = inverse * (0.7f * -p + -0.3f * -p * (z[j] * static_cast<double>(inverse) - exact.mean()));
      EXPECT_NEAR(out[j], want, 1e-6) << n << " " << j;
    }
    EXPECT_EQ(out.back(), 7) << "written beyond the end";
    std::vector<float> in_place = z;
    softmax_gradient(in_place.data(), n, inverse, g, in_place.data());
    EXPECT_TRUE(std::equal(in_place.begin(), in_place.end(), out.begin()));
  }
}

// A row behind whose last logit the process has no memory.
class RowAtTheEdge {
 public:
  RowAtTheEdge() {
    void* all = mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<char*>(all);
    mprotect(memory_ + page_, page_, PROT_NONE);
  }
  ~RowAtTheEdge() { munmap(memory_, 2 * page_); }
  RowAtTheEdge(const RowAtTheEdge&) = delete;
  RowAtTheEdge& operator=(const RowAtTheEdge&) = delete;

  float* of(int64_t n) { return reinterpret_cast<float*>(memory_ + page_) - n; }

 private:
  const size_t page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  char* memory_;
};

// Whatever a row's length, nothing behind it is read or written.
TEST(SoftmaxGradient, StaysWithinTheRow) {
  RowAtTheEdge edge;
  for (int64_t n = 1; n <= 70; ++n) {
    float* z = edge.of(n);
    const std::vector<float> row = random_row(n, 2, static_cast<uint32_t>(n));
    std::ranges::copy(row, z);
    const RowScore at_edge = score_row(z, n, 0.9f, true, nullptr);
    const RowScore anywhere = score_row(row.data(), n, 0.9f, true, nullptr);
    EXPECT_EQ(at_edge.logsumexp, anywhere.logsumexp) << n;
    const SoftmaxGradient g{
        .logsumexp = at_edge.logsumexp, .mean = at_edge.mean_logit, .d_logprob = 1, .d_entropy = 0.5f};
    std::vector<float> want(row.size());
    softmax_gradient(row.data(), n, 0.9f, g, want.data());
    softmax_gradient(z, n, 0.9f, g, z);
    EXPECT_TRUE(std::ranges::equal(want, std::span(z, row.size()))) << n;
  }
}

}  // namespace
}  // namespace gyre
