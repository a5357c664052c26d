#include "engine/engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <string>

#include "engine_fixture.h"
#include "model/config.h"

namespace gyre::engine_test {
namespace {

// Tokens as they are drawn, through preemption, in pieces that fit small arrays; what is polled at the end is the
// whole.
TEST(EngineProgress, TellsEveryTokenOnce) {
  auto decoder = tiny_decoder();
  const std::vector<Request> requests = varied_requests(10);
  Engine engine(*decoder, with_pages(14));
  for (const Request& r : requests) engine.submit(r);
  std::map<uint64_t, Output> told, outputs;
  EXPECT_TRUE(engine.progress(8, 100).empty());
  for (int64_t unfinished = 1, step = 0; unfinished > 0; ++step) {
    unfinished = engine.step();
    for (std::vector<Output> parts; !(parts = engine.progress(3, 2)).empty();) {
      int64_t tokens = 0;
      EXPECT_LE(parts.size(), 3u);
      for (const Output& part : parts) {
        Output& sum = told[part.id];
        EXPECT_EQ(part.finish, GYRE_FINISH_NONE);
        EXPECT_EQ(part.position, static_cast<int64_t>(sum.tokens.size()));
        sum.tokens.insert(sum.tokens.end(), part.tokens.begin(), part.tokens.end());
        sum.logprobs.insert(sum.logprobs.end(), part.logprobs.begin(), part.logprobs.end());
        tokens += static_cast<int64_t>(part.tokens.size());
      }
      EXPECT_LE(tokens, 2);
    }
    if (step % 5 == 4) engine.sleep();
    while (auto output = engine.poll(1 << 20)) outputs.emplace(output->id, std::move(*output));
  }
  ASSERT_EQ(outputs.size(), requests.size());
  for (const auto& [id, output] : outputs) {
    EXPECT_EQ(output.position, 0);
    Output& sum = told[id];  // all but the last token, with which the request was finished
    ASSERT_EQ(sum.tokens.size() + 1, output.tokens.size()) << id;
    EXPECT_TRUE(std::equal(sum.tokens.begin(), sum.tokens.end(), output.tokens.begin())) << id;
    EXPECT_TRUE(std::equal(sum.logprobs.begin(), sum.logprobs.end(), output.logprobs.begin())) << id;
  }
}

TEST(Engine, NewWeightsInvalidateEveryCache) {
  auto decoder = tiny_decoder();
  Engine engine(*decoder, roomy());
  std::mt19937 generator(4);
  Request r{.id = 1, .prompt = random_ids(generator, 50), .sampling = {.max_tokens = 5}};
  engine.submit(r);
  drain(engine);
  Request running{.id = 2, .prompt = random_ids(generator, 30), .sampling = {.temperature = 0, .max_tokens = 12}};
  engine.submit(running);
  for (int i = 0; i < 4; ++i) engine.step();

  randomize(*decoder, 99);
  engine.submit(r);
  const auto outputs = drain(engine);
  expect_same({{1, outputs.at(1)}}, naive_each(*decoder, {r}), "after the update");
  EXPECT_EQ(outputs.at(1).cached_tokens, 0);
  // What was drawn before the update stays; what follows is what the new weights make of it.
  running.prompt.insert(running.prompt.end(), outputs.at(2).tokens.begin(), outputs.at(2).tokens.begin() + 4);
  running.sampling.max_tokens = 8;
  const Output rest = naive(*decoder, running);
  EXPECT_TRUE(
      std::equal(rest.tokens.begin(), rest.tokens.end(), outputs.at(2).tokens.begin() + 4, outputs.at(2).tokens.end()));
}

// One sequence alone, each token by a pass of its own over a pool of its own.
struct Alone {
  Alone(Decoder& d, Request r) : decoder(d), request(std::move(r)), kv(decoder.make_pages(20)), ids(request.prompt) {
    pages.resize(20);
    std::iota(pages.begin(), pages.end(), 0);
  }
  void draw(int64_t until) {
    for (int64_t n = static_cast<int64_t>(logprobs.size()); n < until; ++n) {
      const int64_t rows = static_cast<int64_t>(ids.size()) - computed;
      const std::vector<RowSpan> spans = {{0, rows, computed, pages, nullptr}};
      const at::Tensor hidden_NH = decoder.forward(std::span(ids).subspan(computed), spans, *kv);
      const int64_t last[] = {rows - 1};
      const at::Tensor logits_RV = decoder.row_logits(hidden_NH, last);
      const Draw d = draw_token({logits_RV.const_data_ptr<float>(), static_cast<size_t>(decoder.config().vocab_size)},
                                request.sampling, n, {});
      computed = static_cast<int64_t>(ids.size());
      ids.push_back(d.token);
      logprobs.push_back(d.logprob);
    }
  }
  std::vector<int32_t> tokens() const { return {ids.begin() + static_cast<int64_t>(request.prompt.size()), ids.end()}; }

  Decoder& decoder;
  Request request;
  std::unique_ptr<KvPages> kv;
  std::vector<int32_t> pages, ids;
  std::vector<float> logprobs;
  int64_t computed = 0;
};

// Sequences go on from keys and values of older weights as they would alone, whatever shares the pool with them; new
// ones find nothing of these, though they begin with the same tokens.
TEST(Engine, KeptKeysAndValuesOutliveTheirWeights) {
  const Threads one(1);
  auto decoder = tiny_decoder();
  std::mt19937 generator(4);
  const std::vector<int32_t> prompt = random_ids(generator, 40);
  std::vector<Request> requests;
  std::vector<Alone> alone;
  for (int i = 0; i < 8; ++i) {
    Request r{.id = 1 + static_cast<uint64_t>(i), .prompt = prompt, .sampling = {.temperature = 1, .max_tokens = 40}};
    r.sampling.seed = static_cast<uint64_t>(i / 2);  // two that draw the same as long as nothing differs
    r.sampling.top_p = 1;
    alone.emplace_back(*decoder, r);
    requests.push_back(r);
  }
  gyre_engine_config config = roomy();
  config.max_sequences = 12;
  config.max_batch_tokens = 33;
  Engine engine(*decoder, config);
  for (int version = 0; version < 3; ++version) {
    for (int i = 0; i < 8; ++i) {  // all but two end early
      Request r = requests[i];
      const auto drawn = alone[i].tokens();
      r.prompt.insert(r.prompt.end(), drawn.begin(), drawn.end());
      r.drawn = static_cast<int64_t>(drawn.size());
      r.kept = version > 0;
      r.keep = version == 2 ? GYRE_KEEP_NONE : i < 2 ? GYRE_KEEP_ABORTED : GYRE_KEEP_CUT;
      if (i >= 2 && version < 2) r.sampling.max_tokens = r.drawn + 1 + (7 * i + 5 * version) % 13;
      engine.submit(r);
    }
    Request fresh{.id = 100, .prompt = prompt, .sampling = {.max_tokens = 20}};
    engine.submit(fresh);
    std::map<uint64_t, Output> outputs;
    for (int64_t step = 0, left = 1; left > 0; ++step) {
      if (step == 9 && version < 2) engine.abort(1), engine.abort(2);
      left = engine.step();
      while (auto output = engine.poll(1 << 20)) outputs.emplace(output->id, std::move(*output));
    }
    expect_same({{100, outputs.at(100)}}, naive_each(*decoder, {fresh}), "a new one");
    EXPECT_EQ(outputs.at(100).cached_tokens, version == 0 ? 39 : 0);
    for (int i = 0; i < 8; ++i) {
      const Output& got = outputs.at(1 + i);
      const auto before = static_cast<int64_t>(alone[i].logprobs.size());
      EXPECT_EQ(got.kept, version < 2) << i;
      alone[i].draw(static_cast<int64_t>(got.tokens.size()));
      EXPECT_EQ(got.tokens, alone[i].tokens()) << i << ", weights " << version;
      EXPECT_TRUE(std::equal(got.logprobs.begin() + before, got.logprobs.end(), alone[i].logprobs.begin() + before));
    }
    if (version < 2) randomize(*decoder, 50 + version);
  }
  EXPECT_EQ(engine.stats().preemptions, 0);
  EXPECT_EQ(engine.stats().blocks_free + engine.stats().blocks_cached, engine.stats().blocks_total);
  Request lost = requests[0];
  lost.drawn = 1, lost.kept = true;
  EXPECT_THROW(engine.submit(lost), std::invalid_argument);
  config.kv_bytes = 20 * decoder->bytes_per_page();
  lost.kept = false, lost.keep = GYRE_KEEP_ABORTED;
  EXPECT_THROW(Engine(*decoder, config).submit(lost), std::invalid_argument);
}

TEST(Engine, SleepFreesThePoolAndLosesNoRequest) {
  const Threads one(1);
  auto decoder = tiny_decoder();
  const auto requests = varied_requests(10, 12);
  const auto want = generate(*decoder, roomy(), requests);
  Engine engine(*decoder, roomy());
  for (const Request& r : requests) engine.submit(r);
  for (int i = 0; i < 5; ++i) engine.step();
  EXPECT_GT(engine.stats().kv_bytes, 0);
  engine.sleep();
  EXPECT_EQ(engine.stats().kv_bytes, 0);
  EXPECT_EQ(engine.stats().blocks_free, engine.stats().blocks_total);
  expect_same(drain(engine), want, "after sleep");
}

// Resident memory of this process in bytes.
int64_t resident() {
  int64_t total = 0, pages = 0;
  std::ifstream("/proc/self/statm") >> total >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

TEST(Engine, OnlyUsedPagesCostMemory) {
  const Threads one(1);
  auto decoder = tiny_decoder();
  const auto requests = varied_requests(20, 13);
  generate(*decoder, roomy(), requests);  // what else is allocated on first use
  gyre_engine_config config = roomy();
  config.kv_bytes = int64_t{4} << 30;
  Engine engine(*decoder, config);
  const int64_t before = resident();
  for (const Request& r : requests) engine.submit(r);
  drain(engine);
  EXPECT_GT(engine.stats().kv_bytes, int64_t{3} << 30);
  EXPECT_LT(resident() - before, int64_t{32} << 20);
}

TEST(Engine, AbortReturnsWhatThereIs) {
  auto decoder = tiny_decoder();
  gyre_engine_config config = roomy();
  config.max_sequences = 1;
  Engine engine(*decoder, config);
  engine.submit({.id = 1, .prompt = {1, 2, 3}, .sampling = {.max_tokens = 50}});
  engine.submit({.id = 2, .prompt = {1, 2, 3}, .sampling = {.max_tokens = 50}});
  for (int i = 0; i < 3; ++i) engine.step();
  engine.abort(1);
  engine.abort(1);  // just finished: nothing to do
  engine.abort(2);
  EXPECT_THROW(engine.abort(77), NotFoundError);
  EXPECT_EQ(engine.step(), 0);
  const auto outputs = drain(engine);
  EXPECT_EQ(outputs.at(1).finish, GYRE_FINISH_ABORT);
  EXPECT_EQ(outputs.at(1).tokens.size(), 3u);
  EXPECT_EQ(outputs.at(1).logprobs.size(), 3u);
  EXPECT_EQ(outputs.at(2).finish, GYRE_FINISH_ABORT);
  EXPECT_TRUE(outputs.at(2).tokens.empty());
  EXPECT_EQ(engine.stats().blocks_free + engine.stats().blocks_cached, engine.stats().blocks_total);
}

TEST(Engine, StopIdsMinTokensAndIgnoreEos) {
  auto decoder = tiny_decoder();
  Request r{.id = 1, .prompt = {4, 5, 6}, .sampling = {.temperature = 0, .max_tokens = 12}};
  const auto free_run = generate(*decoder, roomy(), {r}).at(1);
  EXPECT_EQ(free_run.finish, GYRE_FINISH_LENGTH);
  r.stop_ids = {-1, free_run.tokens[3], 100000};
  const auto first = std::ranges::find(free_run.tokens, free_run.tokens[3]) - free_run.tokens.begin();

  const auto stopped = generate(*decoder, roomy(), {r}).at(1);
  EXPECT_EQ(stopped.finish, GYRE_FINISH_STOP);
  EXPECT_EQ(stopped.tokens, std::vector<int32_t>(free_run.tokens.begin(), free_run.tokens.begin() + first + 1));

  r.sampling.min_tokens = 6;
  const auto longer = generate(*decoder, roomy(), {r}).at(1);
  ASSERT_GE(longer.tokens.size(), 6u);
  for (int i = 0; i < 6; ++i) EXPECT_NE(longer.tokens[i], r.stop_ids[1]) << "token " << i;

  r.sampling.ignore_eos = true;
  EXPECT_EQ(generate(*decoder, roomy(), {r}).at(1).tokens, free_run.tokens);
}

TEST(Engine, EndsAtMaxLength) {
  auto decoder = tiny_decoder();
  gyre_engine_config config = roomy();
  config.max_length = 32;
  const auto out =
      generate(*decoder, config, {{.id = 1, .prompt = std::vector<int32_t>(30, 7), .sampling = {.max_tokens = 50}}})
          .at(1);
  EXPECT_EQ(out.finish, GYRE_FINISH_LENGTH);
  EXPECT_EQ(out.tokens.size(), 2u);
}

TEST(Engine, PollLeavesWhatDoesNotFit) {
  auto decoder = tiny_decoder();
  Engine engine(*decoder, roomy());
  engine.submit({.id = 1, .prompt = {1}, .sampling = {.max_tokens = 9}});
  while (engine.step() > 0) {
  }
  EXPECT_FALSE(engine.poll(8).has_value());
  EXPECT_EQ(engine.stats().finished, 1);
  EXPECT_TRUE(engine.poll(9).has_value());
}

// The message of the std::invalid_argument that f throws.
template <typename F>
std::string refusal(F f) {
  try {
    f();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Engine, RefusesWhatCannotWork) {
  auto decoder = tiny_decoder();
  const auto refused = [&](const gyre_engine_config& config, Request r, const std::string& words) {
    Engine engine(*decoder, config);
    const std::string message = refusal([&] { engine.submit(r); });
    EXPECT_NE(message.find(words), std::string::npos) << message;
    EXPECT_EQ(engine.step(), 0);
  };
  refused(roomy(), {.id = 1}, "prompt is empty");
  refused(roomy(), {.id = 1, .prompt = {1, 101}}, "prompt token 1 is 101, outside the vocabulary of 101");
  refused(roomy(), {.id = 1, .prompt = std::vector<int32_t>(200, 1)}, "prompt has 200 tokens");
  refused(with_pages(3), {.id = 1, .prompt = std::vector<int32_t>(40, 1), .sampling = {.max_tokens = 20}},
          "needs 4 KV pages, but the pool has 3");
  refused(roomy(), {.id = 1, .prompt = {1}, .sampling = {.temperature = -1}}, "temperature");
  refused(roomy(), {.id = 1, .prompt = {1}, .sampling = {.top_k = -1}}, "top_k");
  refused(roomy(), {.id = 1, .prompt = {1}, .sampling = {.top_p = 0}}, "top_p");
  refused(roomy(), {.id = 1, .prompt = {1}, .sampling = {.min_p = 1.5}}, "min_p");
  refused(roomy(), {.id = 1, .prompt = {1}, .sampling = {.max_tokens = 0}}, "max_tokens");
  refused(roomy(), {.id = 1, .prompt = {1}, .sampling = {.max_tokens = 3, .min_tokens = 4}}, "min_tokens");
  refused(roomy(), {.id = 1, .prompt = {1}, .stop_strings = {"x"}}, "vocabulary");

  Engine engine(*decoder, roomy());
  engine.submit({.id = 1, .prompt = {1}});
  EXPECT_NE(refusal([&] { engine.submit({.id = 1, .prompt = {1}}); }).find("same id"), std::string::npos);

  gyre_engine_config config = roomy();
  config.max_length = 513;
  EXPECT_NE(refusal([&] { Engine(*decoder, config); }).find("512 positions"), std::string::npos);
  config = roomy();
  config.max_sequences = std::numeric_limits<int64_t>::max() / 2;  // whose pages overflow 64 bits
  EXPECT_NE(refusal([&] { Engine(*decoder, config); }).find("too large"), std::string::npos);
  config = roomy();
  config.kv_bytes = std::numeric_limits<int64_t>::max();
  EXPECT_NE(refusal([&] { Engine(*decoder, config); }).find("too large"), std::string::npos);
  config = roomy();
  config.kv_bytes = 10;
  EXPECT_NE(refusal([&] { Engine(*decoder, config); }).find("less than one page"), std::string::npos);
  ModelConfig critic = tiny_config();
  critic.head = GYRE_HEAD_VALUE;
  Decoder value(critic);
  EXPECT_NE(refusal([&] { Engine(value, roomy()); }).find("value head"), std::string::npos);
}

TEST(Engine, AFailedStepChangesNoRequest) {
  auto decoder = tiny_decoder();
  Engine engine(*decoder, roomy());
  const Request r{.id = 1, .prompt = {1, 2, 3}, .sampling = {.max_tokens = 6}};
  engine.submit(r);
  engine.step();
  at::Tensor norm = decoder->parameters().root.final_norm_H;
  const at::Tensor saved = norm.clone();
  norm.fill_(std::numeric_limits<float>::quiet_NaN());
  decoder->touch();
  EXPECT_THROW(engine.step(), NotFiniteError);
  norm.copy_(saved);
  decoder->touch();
  expect_same(drain(engine), naive_each(*decoder, {r}), "after the failure");
}

}  // namespace
}  // namespace gyre::engine_test
