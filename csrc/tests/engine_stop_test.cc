#include <gtest/gtest.h>

#include "engine_fixture.h"

namespace gyre::engine_test {
namespace {

// Token i stands for two letters: "aa", "ab", …
std::string text_of(int32_t token) {
  return {static_cast<char>('a' + token / 26), static_cast<char>('a' + token % 26)};
}

void set_letters(Engine& engine) {
  std::string data;
  std::vector<int64_t> offsets = {0};
  for (int32_t i = 0; i < 101; ++i) {
    data += text_of(i);
    offsets.push_back(static_cast<int64_t>(data.size()));
  }
  engine.set_vocabulary(data, offsets);
}

Output run(Decoder& decoder, const Request& r) {
  Engine engine(decoder, roomy());
  set_letters(engine);
  engine.submit(r);
  return drain(engine).at(r.id);
}

struct StopStrings : ::testing::Test {
  std::unique_ptr<Decoder> decoder = tiny_decoder();
  Request request{.id = 1, .prompt = {9, 8, 7}, .sampling = {.max_tokens = 16, .seed = 5}};
  Output whole = run(*decoder, request);
  std::string text = [this] {
    std::string s;
    for (int32_t t : whole.tokens) s += text_of(t);
    return s;
  }();

  // Tokens up to the one in which the first occurrence of `stop` ends.
  std::vector<int32_t> until(const std::string& stop) const {
    const size_t tokens = (text.find(stop) + stop.size() + 1) / 2;
    return {whole.tokens.begin(), whole.tokens.begin() + static_cast<int64_t>(tokens)};
  }
};

TEST_F(StopStrings, EndInsideAndAcrossTokens) {
  for (const auto& [from, count] : {std::pair<int, int>{8, 2}, {7, 2}, {9, 1}, {5, 6}, {0, 3}, {6, 9}}) {
    request.stop_strings = {"not in here", text.substr(from, count)};
    const Output out = run(*decoder, request);
    EXPECT_EQ(out.finish, GYRE_FINISH_STOP) << request.stop_strings[1];
    EXPECT_EQ(out.tokens, until(request.stop_strings[1]));
    EXPECT_EQ(out.logprobs.size(), out.tokens.size());
  }
}

TEST_F(StopStrings, DoNotMatchThePrompt) {
  request.stop_strings = {text_of(7) + text.substr(0, 1)};
  EXPECT_EQ(run(*decoder, request).tokens,
            text.find(request.stop_strings[0]) == std::string::npos ? whole.tokens : until(request.stop_strings[0]));
}

TEST_F(StopStrings, WaitForMinTokens) {
  request.stop_strings = {text.substr(4, 2)};
  request.sampling.min_tokens = 10;
  const Output out = run(*decoder, request);
  EXPECT_GE(out.tokens.size(), 10u);
  request.stop_strings = {text.substr(18, 2)};
  ASSERT_EQ(text.find(request.stop_strings[0]), 18u) << "the tiny model repeats itself: choose another seed";
  EXPECT_EQ(run(*decoder, request).tokens.size(), 10u);
}

TEST_F(StopStrings, AStopIdComesFirst) {
  request.stop_ids = {whole.tokens[4]};
  request.stop_strings = {text_of(whole.tokens[4])};
  const Output out = run(*decoder, request);
  EXPECT_EQ(out.finish, GYRE_FINISH_STOP);
  EXPECT_LE(out.tokens.size(), 5u);
  EXPECT_EQ(out.tokens.back(), whole.tokens[4]);
}

TEST_F(StopStrings, SurvivePreemption) {
  request.stop_strings = {text.substr(11, 4)};
  Engine engine(*decoder, roomy());
  set_letters(engine);
  engine.submit(request);
  for (int i = 0; i < 5; ++i) {
    engine.step();
    engine.sleep();
  }
  EXPECT_EQ(drain(engine).at(1).tokens, until(request.stop_strings[0]));
}

}  // namespace
}  // namespace gyre::engine_test
