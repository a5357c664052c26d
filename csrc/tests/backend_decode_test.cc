// Decoding in fixed shapes on tensors against decoding in those that come.
#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <sstream>

#include "backend/aten/network.h"
#include "backend_fixture.h"
#include "engine_fixture.h"

namespace gyre::testing {
namespace {

TEST(DecodeShapes, AreTheSmallestOfTheRoundNumbers) {
  std::vector<int64_t> round;
  for (int64_t power = 1; power <= 4096; power *= 2) {
    round.push_back(power);
    if (power > 1) round.push_back(power / 2 * 3);
  }
  for (int64_t n = 1; n <= 4096; ++n) {
    EXPECT_EQ(round_shape(n), *std::ranges::lower_bound(round, n)) << n;
  }
}

// Sequences that decode, sequence s from position start[s] on, in pages that lie in no order.
struct Batch {
  Batch(const ModelConfig& config, std::vector<int64_t> starts, uint64_t seed) : start(std::move(starts)) {
    int32_t page = 0;
    for (size_t s = 0; s < start.size(); ++s) {
      ids.push_back(random_ids(start[s] + kSteps, config.vocab_size, seed + s));
      tables.emplace_back();
      for (int64_t p = 0; p * kPageTokens < start[s] + kSteps; ++p) tables.back().push_back(page++);
    }
    pages = page % 7 == 0 ? page + 1 : page;  // so that the numbers stay different
    for (auto& table : tables) {
      for (int32_t& p : table) p = (p * 7 + 3) % pages;
    }
  }
  // Prompts one by one, then a step for all together; sequence 0's row is the last, that of the last sequence the
  // first.
  std::vector<at::Tensor> run(Decoder& decoder, KvPages& kv) const {
    std::vector<at::Tensor> hidden;
    for (size_t s = 0; s < start.size(); ++s) {
      if (start[s] == 0) continue;
      const std::span<const int32_t> prompt(ids[s].data(), static_cast<size_t>(start[s]));
      decoder.forward(prompt, std::vector<RowSpan>{{0, start[s], 0, tables[s]}}, kv);
    }
    for (int64_t i = 0; i < kSteps; ++i) hidden.push_back(step(decoder, kv, i));
    return hidden;
  }
  at::Tensor step(Decoder& decoder, KvPages& kv, int64_t i) const {
    std::vector<int32_t> rows(start.size());
    std::vector<RowSpan> spans;
    for (size_t s = 0; s < start.size(); ++s) {
      const auto row = static_cast<int64_t>(start.size() - 1 - s);
      rows[static_cast<size_t>(row)] = ids[s][static_cast<size_t>(start[s] + i)];
      spans.push_back({row, 1, start[s] + i, tables[s]});
    }
    return decoder.forward(rows, spans, kv);
  }

  static constexpr int64_t kSteps = 3;
  std::vector<int64_t> start;
  std::vector<std::vector<int32_t>> ids, tables;
  int32_t pages;
};

std::vector<Batch> batches(const ModelConfig& config) {
  return {Batch(config, {0}, 1), Batch(config, {15, 30}, 2), Batch(config, {40, 0, 14, 15, 16}, 3),
          Batch(config, {3, 100, 31, 32, 33, 47, 48, 49, 1, 2, 7, 77, 5}, 4)};
}

using BackendDecode = OnDevice;
INSTANTIATE_TEST_SUITE_P(Devices, BackendDecode, ::testing::Values("aten", "cuda", "fake"),
                         [](const auto& info) { return std::string(info.param); });

// On a GPU the second and third step of a shape are a recording's.
TEST_P(BackendDecode, FixedShapesGiveTheSameHiddenStates) {
  for (const ModelConfig& config : {llama_config(), llama_bias_config(), qwen2_config(), qwen3_config()}) {
    Twins twins(config, GetParam());
    for (const Batch& batch : batches(config)) {
      const auto plain = twins.other->backend().make_pages(batch.pages);
      const auto fixed = twins.other->backend().make_pages(batch.pages);
      const auto kernels = twins.kernels.backend().make_pages(batch.pages);
      fixed->decode_in_fixed_shapes(true);
      const auto want = batch.run(*twins.other, *plain), got = batch.run(*twins.other, *fixed);
      const auto exact = batch.run(twins.kernels, *kernels);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(got[i].sizes(), want[i].sizes());
        EXPECT_LT(error_on_host(got[i], want[i].to(at::kCPU)), 1e-6) << batch.start.size() << " rows, step " << i;
        EXPECT_LT(error_on_host(got[i], exact[i]), 1e-5) << batch.start.size() << " rows, step " << i;
      }
    }
  }
}

// New weights, and positions further than the angles reached, are seen by a step whose shape has occurred before.
TEST_P(BackendDecode, AShapeThatHasOccurredSeesWhatIsNew) {
  Twins twins(llama_config(), GetParam());
  const Batch near(llama_config(), {15, 30}, 2), far(llama_config(), {270, 300}, 2);
  const auto fixed = twins.other->backend().make_pages(far.pages);
  fixed->decode_in_fixed_shapes(true);
  const auto compare = [&](const Batch& batch, const char* what) {
    const auto kernels = twins.kernels.backend().make_pages(far.pages);
    const auto got = batch.run(*twins.other, *fixed), want = batch.run(twins.kernels, *kernels);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_LT(error_on_host(got[i], want[i]), 1e-5) << what;
  };
  compare(near, "first");
  randomize(twins.kernels, 77);
  twins.copy_weights();
  compare(near, "new weights");
  compare(far, "further positions");
  compare(near, "near again");
}

// Every operation with the shapes of what it gives, in the order in which they end.
class Operations {
 public:
  Operations() {
    seen().clear();
    const auto begin = [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> { return nullptr; };
    const auto end = [](const at::RecordFunction& call, at::ObserverContext*) {
      std::ostringstream line;
      line << call.name();
      for (const c10::IValue& output : call.outputs()) {
        if (output.isTensor() && output.toTensor().defined()) line << " " << output.toTensor().sizes();
      }
      seen().push_back(line.str());
    };
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end).needsOutputs(true));
  }
  ~Operations() { at::removeCallback(handle_); }
  static std::vector<std::string>& seen() {
    static std::vector<std::string> all;
    return all;
  }

 private:
  at::CallbackHandle handle_;
};

// What a recording would repeat: the same operations over tensors of the same shapes whatever the lengths, pages and
// tokens are, of which none takes a value from a tensor.
TEST(DecodeSteps, DependOnNoValue) {
  ModelConfig config = qwen3_config();
  config.set_device("aten");
  Decoder decoder(config);
  randomize(decoder, 3);
  const auto operations_of = [&](std::vector<int64_t> starts, uint64_t seed) {
    const Batch batch(config, std::move(starts), seed);
    constexpr int64_t kPages = 30;
    EXPECT_LE(batch.pages, kPages);
    const auto kv = decoder.backend().make_pages(kPages);
    kv->decode_in_fixed_shapes(true);
    std::vector<RowSpan> spans;
    for (size_t s = 0; s < batch.start.size(); ++s)
      spans.push_back({static_cast<int64_t>(s), 1, batch.start[s], batch.tables[s]});
    const Pass pass = inference_pass(static_cast<int64_t>(spans.size()), spans);
    EXPECT_EQ(decode_shape(pass), (DecodeShape{6, 4})) << spans.size();
    const std::vector<int32_t> ids(spans.size(), 1);
    decoder.forward(ids, spans, *kv);  // what is made at first use
    const Operations record;
    decoder.forward(ids, spans, *kv);
    std::vector<std::string> seen = Operations::seen();
    // The step ends with a copy to its buffer, of which those rows are taken that were asked for.
    while (!seen.empty() && !seen.back().starts_with("aten::copy_ [6, ")) seen.pop_back();
    return seen;
  };
  auto some = operations_of({60, 5, 16, 0, 31, 48}, 1);
  const auto others = operations_of({49, 20, 50, 3, 4}, 9);
  EXPECT_GT(others.size(), 50U);
  ASSERT_GE(some.size(), others.size());
  some.resize(others.size());  // all of six rows are taken: their copy has the buffer's shape
  for (const std::string& line : some) {
    for (const char* waits : {"aten::item", "aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero"}) {
      EXPECT_FALSE(line.starts_with(waits)) << line;
    }
  }
  for (size_t i = 0; i < others.size(); ++i) ASSERT_EQ(some[i], others[i]) << "operation " << i;
}

// Counts instead of recording.
struct Counts {
  int recorders = 0, recordings = 0, replays = 0;
};
class CountingRecorder : public Recorder {
 public:
  explicit CountingRecorder(Counts& counts) : counts_(counts) { ++counts_.recorders; }
  std::function<void()> record(const std::function<void()>& operations) override {
    ++counts_.recordings;
    operations();
    return [this] { ++counts_.replays; };
  }

 private:
  Counts& counts_;
};

TEST(DecodeSteps, AreRecordedWhenTheirShapeComesAgain) {
  const ModelConfig config = llama_config();
  Counts counts;
  DecodeSteps steps(at::kCPU, 9, 0, [&] { return std::make_unique<CountingRecorder>(counts); });
  AngleTable angles(config, {at::kCPU, at::kFloat});
  int runs = 0;
  uint64_t weights = 1;
  const std::vector<int32_t> pages{4, 2, 0, 1, 3, 5, 6, 7, 8, 4, 2, 0, 1, 3, 5, 6, 7, 8, 4, 2};
  const auto step = [&](int64_t rows, int64_t position) {
    std::vector<RowSpan> spans;
    for (int64_t r = 0; r < rows; ++r) spans.push_back({r, 1, position, pages});
    const Pass pass = inference_pass(rows, spans);
    const std::vector<int32_t> ids(static_cast<size_t>(rows), 5);
    const at::Tensor hidden = steps.infer(ids, pass, decode_shape(pass).value(), angles, weights,
                                          [&](const at::Tensor& ids_R, const AtenPass& fixed) {
                                            ++runs;
                                            EXPECT_EQ(ids_R.size(0), round_shape(rows));
                                            EXPECT_EQ(fixed.attention.slots_N[0].item<int64_t>(),
                                                      pages[position / kPageTokens] * kPageTokens + position % 16);
                                            return ids_R.unsqueeze(1).to(at::kFloat);
                                          });
    EXPECT_EQ(hidden.size(0), rows);
  };
  const auto expect = [&](int recorded, int replayed, int ran, const char* when) {
    EXPECT_EQ(counts.recordings, recorded) << when;
    EXPECT_EQ(counts.replays, replayed) << when;
    EXPECT_EQ(runs, ran) << when;
  };
  step(5, 20);
  expect(0, 0, 1, "first time");
  step(6, 21);
  expect(1, 1, 2, "same shape");
  step(5, 22);
  step(5, 23);
  expect(1, 3, 2, "repeated");
  step(2, 20);
  expect(1, 3, 3, "fewer rows");
  step(5, 40);
  expect(1, 3, 4, "more pages");
  EXPECT_EQ(steps.shapes(), 3);
  step(5, 20);
  expect(1, 4, 4, "the first again");
  ++weights;
  step(5, 20);
  expect(1, 4, 5, "other weights");
  step(5, 20);
  expect(2, 5, 6, "again with them");
  EXPECT_EQ(counts.recorders, 2);
  step(5, 300);  // further than the angles have reached
  step(5, 20);
  expect(2, 5, 8, "angles that lie elsewhere");
}

TEST(DecodeSteps, AFailedRecordingSaysWhatToDo) {
  struct Failing : Recorder {
    std::function<void()> record(const std::function<void()>&) override { throw std::runtime_error("no capture"); }
  };
  const ModelConfig config = llama_config();
  DecodeSteps steps(at::kCPU, 1, 0, [] { return std::make_unique<Failing>(); });
  AngleTable angles(config, {at::kCPU, at::kFloat});
  const std::vector<int32_t> ids{5}, pages{0};
  const Pass pass = inference_pass(1, std::vector<RowSpan>{{0, 1, 3, pages}});
  const auto step = [&] {
    steps.infer(ids, pass, *decode_shape(pass), angles, 1,
                [](const at::Tensor& ids_R, const AtenPass&) { return ids_R.unsqueeze(1); });
  };
  step();
  try {
    step();
    FAIL() << "did not throw";
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string(e.what()).find("1 rows and 1 pages as a CUDA graph: no capture"), std::string::npos)
        << e.what();
    EXPECT_NE(std::string(e.what()).find("engine.cuda_graphs=false"), std::string::npos) << e.what();
  }
}

TEST(DecodeSteps, AreForSingleRowsAlone) {
  const std::vector<int32_t> pages{0, 1};
  const auto shape = [&](const std::vector<RowSpan>& spans, int64_t rows) {
    return decode_shape(inference_pass(rows, spans));
  };
  EXPECT_EQ(shape({{0, 1, 31, pages}}, 1), (DecodeShape{1, 2}));
  EXPECT_EQ(shape({{0, 2, 3, pages}}, 2), std::nullopt);
  EXPECT_EQ(shape({{0, 1, 3, pages}, {1, 3, 0, pages}}, 4), std::nullopt);
  std::vector<RowSpan> many;
  for (int64_t r = 0; r < 513; ++r) many.push_back({r, 1, 0, pages});
  EXPECT_EQ(shape(many, 513), std::nullopt);
}

// The engine on tensors, with and without, and the sizes that its products have.
TEST_P(BackendDecode, TheEngineDrawsTheSame) {
  ModelConfig config = engine_test::tiny_config();
  config.set_device(GetParam());
  Decoder decoder(config);
  randomize(decoder, 7);
  const std::vector<Request> requests = engine_test::varied_requests(23);
  const auto run = [&](int32_t graphs, bool* odd) {
    gyre_engine_config engine = engine_test::roomy();
    engine.cuda_graphs = graphs;
    const Operations record;
    auto outputs = engine_test::generate(decoder, engine, requests);
    *odd = std::ranges::any_of(Operations::seen(), [](const std::string& line) {
      return line.starts_with("aten::silu [5, ") || line.starts_with("aten::silu [7, ");
    });
    return outputs;
  };
  bool odd_plain = false, odd_fixed = false;
  const auto plain = run(0, &odd_plain), fixed = run(1, &odd_fixed);
  EXPECT_TRUE(odd_plain);  // otherwise the next line shows nothing
  EXPECT_FALSE(odd_fixed);
  ASSERT_EQ(fixed.size(), plain.size());
  for (const auto& [id, want] : plain) {
    const Output& got = fixed.at(id);
    EXPECT_EQ(got.tokens, want.tokens) << id;
    EXPECT_EQ(got.finish, want.finish) << id;
    ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
    for (size_t i = 0; i < want.logprobs.size(); ++i) EXPECT_NEAR(got.logprobs[i], want.logprobs[i], 1e-4) << id;
  }
}

}  // namespace
}  // namespace gyre::testing
