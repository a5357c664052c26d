// A tiny random policy and the slow, obvious way to generate from it, for the tests of the engine.
#pragma once

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/decoder.h"
#include "engine/engine.h"
#include "model_fixture.h"
#include "threads.h"

namespace gyre::engine_test {

using testing::same_bits;

inline ModelConfig tiny_config(gyre_compute compute = GYRE_COMPUTE_AUTO) {
  ModelConfig c = testing::llama_config();
  c.compute = compute;
  c.hidden_size = 24, c.intermediate_size = 40, c.num_heads = 4;
  c.rms_norm_eps = 1e-5, c.tie_embeddings = false;
  return c;
}

inline void randomize(Decoder& decoder, uint32_t seed) { testing::randomize_normal(decoder, seed, 0.35f); }

inline std::unique_ptr<Decoder> tiny_decoder(uint32_t seed = 7, gyre_compute compute = GYRE_COMPUTE_AUTO) {
  return testing::normal_decoder(tiny_config(compute), seed, 0.35f);
}

inline gyre_engine_config roomy() {
  return {.kv_bytes = 0, .max_sequences = 64, .max_length = 200, .max_batch_tokens = 256};
}

// A pool of exactly this many pages.
inline gyre_engine_config with_pages(int64_t pages, gyre_compute compute = GYRE_COMPUTE_AUTO) {
  gyre_engine_config c = roomy();
  c.kv_bytes = pages * open_backend(tiny_config(compute))->bytes_per_page();
  return c;
}

inline std::vector<int32_t> random_ids(std::mt19937& generator, int64_t count) {
  std::vector<int32_t> ids(count);
  for (auto& id : ids) id = std::uniform_int_distribution<int32_t>(0, 100)(generator);
  return ids;
}

// Requests of varied prompts, lengths and sampling parameters, stop ids included.
inline std::vector<Request> varied_requests(int count, uint32_t seed = 3) {
  std::mt19937 generator(seed);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator); };
  std::vector<Request> requests(count);
  for (int i = 0; i < count; ++i) {
    Request& r = requests[i];
    r.id = 100 + i;
    r.prompt = random_ids(generator, pick(1, 45));
    r.sampling.max_tokens = pick(1, 40);
    r.sampling.min_tokens =
        pick(0, 3) == 0 ? static_cast<int64_t>(pick(0, static_cast<int>(r.sampling.max_tokens))) : 0;
    r.sampling.seed = static_cast<uint64_t>(pick(0, 1 << 30)) << 20;
    const double temperatures[] = {0.0, 0.7, 1.0, 1.3};
    r.sampling.temperature = temperatures[i % 4];
    if (i % 5 == 1) r.sampling.top_k = pick(1, 20);
    if (i % 5 == 2) r.sampling.top_p = 0.8;
    if (i % 5 == 3) r.sampling.min_p = 0.1;
    if (i % 3 == 0) r.stop_ids = {5, 17, 60};
  }
  return requests;
}

// Steps until nothing is left and returns the outputs by id.
inline std::map<uint64_t, Output> drain(Engine& engine) {
  std::map<uint64_t, Output> outputs;
  int64_t unfinished = 1;
  for (int steps = 0; unfinished > 0; ++steps) {
    if (steps > 100000) throw std::runtime_error("the engine does not finish");
    unfinished = engine.step();
    while (auto output = engine.poll(1 << 20)) outputs.emplace(output->id, std::move(*output));
  }
  while (auto output = engine.poll(1 << 20)) outputs.emplace(output->id, std::move(*output));
  return outputs;
}

inline std::map<uint64_t, Output> generate(Decoder& decoder, const gyre_engine_config& config,
                                           const std::vector<Request>& requests) {
  Engine engine(decoder, config);
  for (const Request& r : requests) engine.submit(r);
  return drain(engine);
}

// Every token from a full forward pass of the training path over everything before it. No stop strings.
inline Output naive(Decoder& decoder, const Request& r) {
  const ModelConfig& c = decoder.config();
  Output out{.id = r.id, .finish = GYRE_FINISH_LENGTH};
  std::vector<int32_t> ids = r.prompt;
  for (int64_t position = 0; position < r.sampling.max_tokens; ++position) {
    const int64_t offsets[] = {0, static_cast<int64_t>(ids.size())};
    const at::Tensor hidden_NH = decoder.forward(pack(ids, offsets), nullptr);
    at::Tensor logits_RV = at::empty({1, c.vocab_size}, hidden_NH.options());
    at::Tensor last_RH = hidden_NH.slice(0, offsets[1] - 1).contiguous();
    decoder.logits(last_RH, logits_RV);
    std::vector<int32_t> banned;
    if (position < r.sampling.min_tokens && !r.sampling.ignore_eos) banned = r.stop_ids;
    const Draw d = draw_token({logits_RV.const_data_ptr<float>(), static_cast<size_t>(c.vocab_size)}, r.sampling,
                              position, banned);
    ids.push_back(d.token);
    out.tokens.push_back(d.token);
    out.logprobs.push_back(d.logprob);
    out.sampling_logprobs.push_back(d.sampling_logprob);
    if (!r.sampling.ignore_eos && std::find(r.stop_ids.begin(), r.stop_ids.end(), d.token) != r.stop_ids.end()) {
      out.finish = GYRE_FINISH_STOP;
      break;
    }
  }
  return out;
}

inline void expect_same(const std::map<uint64_t, Output>& got, const std::map<uint64_t, Output>& want,
                        const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (const auto& [id, w] : want) {
    const Output& g = got.at(id);
    EXPECT_EQ(g.tokens, w.tokens) << what << ", request " << id;
    EXPECT_TRUE(same_bits(g.logprobs, w.logprobs)) << what << ", request " << id;
    EXPECT_TRUE(same_bits(g.sampling_logprobs, w.sampling_logprobs)) << what << ", request " << id;
    EXPECT_EQ(g.finish, w.finish) << what << ", request " << id;
  }
}

inline std::map<uint64_t, Output> naive_each(Decoder& decoder, const std::vector<Request>& requests) {
  std::map<uint64_t, Output> outputs;
  for (const Request& r : requests) outputs.emplace(r.id, naive(decoder, r));
  return outputs;
}

}  // namespace gyre::engine_test
