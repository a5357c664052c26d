// What the tensor backend asks of a GPU, counted on the device that is none (fake/device.h): launches of a layer,
// bytes between device and host, waits. Bounds are what it needs today; a smaller number is progress, so lower them.
#include <ATen/ATen.h>

#include "backend/aten/network.h"
#include "backend_fixture.h"
#include "engine_fixture.h"
#include "tests/fake/device.h"
#include "tests/lora_fixture.h"
#include "train/adamw.h"
#include "train_fixture.h"

namespace gyre::testing {
namespace {

class DeviceBudget : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = absence("fake"); !why.empty()) GTEST_SKIP() << why;
  }

  // As on a GPU by default: bfloat16.
  static ModelConfig config_of(int64_t layers) {
    ModelConfig c = qwen3_config();
    c.set_device("fake");
    c.num_layers = layers;
    c.compute = GYRE_COMPUTE_BF16;
    return c;
  }
  static std::unique_ptr<Decoder> decoder_of(const ModelConfig& config) {
    auto decoder = std::make_unique<Decoder>(config);
    randomize(*decoder, 3);
    return decoder;
  }

  // Runs `body` and says what it needed.
  template <typename Body>
  static fake::Ledger count(Body&& body) {
    const fake::Ledger before = fake::ledger();
    body();
    return fake::ledger() - before;
  }
};

// Rows that decode, one token after the other, in a pool of pages.
struct Decoding {
  Decoding(Decoder& decoder, int64_t rows, bool fixed) : decoder(decoder), kv(decoder.backend().make_pages(2 * rows)) {
    kv->decode_in_fixed_shapes(fixed);
    for (int64_t r = 0; r < rows; ++r) {
      tables.push_back({static_cast<int32_t>(2 * r), static_cast<int32_t>(2 * r + 1)});
      all.push_back(r);
    }
  }
  at::Tensor step() {
    const auto rows = std::ssize(all);
    std::vector<RowSpan> spans;
    for (const int64_t r : all) spans.push_back({r, 1, position, tables[static_cast<size_t>(r)]});
    ++position;
    const std::vector<int32_t> ids = random_ids(rows, decoder.config().vocab_size, 7);
    return decoder.row_logits(decoder.forward(ids, spans, *kv), all, {});
  }
  Decoder& decoder;
  std::unique_ptr<KvPages> kv;
  std::vector<std::vector<int32_t>> tables;
  std::vector<int64_t> all;
  int64_t position = 0;
};

TEST_F(DeviceBudget, ADecodingStep) {
  constexpr int64_t kRows = 4;
  std::vector<fake::Ledger> met, replayed;
  for (const int64_t layers : {2, 4}) {
    const auto decoder = decoder_of(config_of(layers));
    Decoding decoding(*decoder, kRows, true);
    decoding.step();  // what is made at first use
    Decoding again(*decoder, kRows, true);
    met.push_back(count([&] { again.step(); }));
    again.step();
    replayed.push_back(count([&] { again.step(); }));
  }
  std::printf("met %s\n", fake::describe(met[0]).c_str());
  std::printf("layer %s\n", fake::describe(met[1] - met[0]).c_str());
  std::printf("replayed %s\n", fake::describe(replayed[1]).c_str());
}

TEST_F(DeviceBudget, AMicroBatch) {
  std::vector<fake::Ledger> policy, lora;
  fake::Ledger step;
  for (const int64_t layers : {2, 4}) {
    const auto decoder = decoder_of(config_of(layers));
    const train_test::OwnedBatch batch = train_test::random_batch({9, 9, 14, 6});
    lora_test::train(*decoder, batch);
    policy.push_back(count([&] { lora_test::train(*decoder, batch); }));
    ModelConfig frozen = config_of(layers);
    const auto base = decoder_of(frozen);
    const auto adapter = lora_test::adapter_on(*base, lora_test::kAll, 5);
    lora_test::train(*adapter, batch);
    lora.push_back(count([&] { lora_test::train(*adapter, batch); }));
    AdamW adamw(*decoder, {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0});
    const auto t = lora_test::train(*decoder, batch);
    step = count([&] { adamw.step(*t.gradients, 1e-3, 1); });
  }
  std::printf("policy %s\n", fake::describe(policy[0]).c_str());
  std::printf("layer %s\n", fake::describe(policy[1] - policy[0]).c_str());
  std::printf("lora %s\n", fake::describe(lora[0]).c_str());
  std::printf("lora layer %s\n", fake::describe(lora[1] - lora[0]).c_str());
  std::printf("adamw %s\n", fake::describe(step).c_str());
}

}  // namespace
}  // namespace gyre::testing
