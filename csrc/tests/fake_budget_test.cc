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
  static ModelConfig on_fake(ModelConfig config, int64_t layers) {
    config.set_device("fake");
    config.num_layers = layers;
    config.compute = GYRE_COMPUTE_BF16;
    return config;
  }
  // As Qwen2.5: biases, several query heads to a key/value head.
  static ModelConfig grouped_config() {
    ModelConfig c = qwen2_config();
    c.num_kv_heads = 2;
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

// Goal: 9 launches a layer when it is not recorded (29 today, without norms of heads 26: rotations, conversions, the
// gathering of pages and the writing of keys are operations of their own), one in all when it is; one wait; 64 bytes a
// row to the host (today a row of logits, since the CPU draws).
TEST_F(DeviceBudget, ADecodingStep) {
  constexpr int64_t kRows = 4;
  for (const auto& [config, a_layer] : {std::pair{qwen3_config(), 29}, {grouped_config(), 26}}) {
    std::vector<fake::Ledger> first, replayed;
    for (const int64_t layers : {2, 4}) {
      const auto decoder = decoder_of(on_fake(config, layers));
      Decoding(*decoder, kRows, true).step();  // what is made at first use
      Decoding decoding(*decoder, kRows, true);
      first.push_back(count([&] { decoding.step(); }));
      decoding.step();  // records
      replayed.push_back(count([&] { decoding.step(); }));
    }
    const fake::Ledger layer = first[1] - first[0];
    EXPECT_LE(layer.launches, 2 * a_layer) << fake::describe(layer);
    EXPECT_EQ(layer.waits + layer.to_device + layer.to_host, 0) << fake::describe(layer);
    EXPECT_LE(first[0].launches - layer.launches, 15) << fake::describe(first[0]);
    for (const fake::Ledger& step : replayed) {
      EXPECT_EQ(step.names.count("replay"), 1U);
      EXPECT_LE(step.launches, 3) << fake::describe(step);  // the replay, its rows taken, the head
      EXPECT_EQ(step.waits, 1) << fake::describe(step);
      EXPECT_EQ(step.to_device, 1) << fake::describe(step);
      EXPECT_EQ(step.to_device_bytes, 8 * kRows * 4) << fake::describe(step);  // token, position, slot, page
      EXPECT_EQ(step.to_host_bytes, 4 * kRows * config.vocab_size) << fake::describe(step);
    }
  }
}

// What was recorded with the former weights, which lie elsewhere in bfloat16, is not repeated.
TEST_F(DeviceBudget, NewWeightsAreRecordedAnew) {
  const auto decoder = decoder_of(on_fake(grouped_config(), 2));
  Decoding fixed(*decoder, 3, true);
  for (int i = 0; i < 3; ++i) fixed.step();
  randomize(*decoder, 77);
  for (int i = 0; i < 3; ++i) {
    Decoding plain(*decoder, 3, false);
    fixed.position = 0;  // sees itself alone
    EXPECT_LT(relative_error(fixed.step(), plain.step()), 1e-6) << i;
  }
}

// A pass of scores and gradients over sequences that fit one micro-batch, without the first time's preparations.
template <typename Body>
std::pair<fake::Ledger, fake::Ledger> pass_and_layer(Body&& pass_with_layers) {
  const fake::Ledger two = pass_with_layers(2), four = pass_with_layers(4);
  return {two, four - two};
}

// Goal: no wait between micro-batches (one today, since the CPU computes losses from log-probs) and no copy of a packed
// micro-batch to or from the host (four to the device: ids, positions, targets, derivatives; one back: scores).
TEST_F(DeviceBudget, AMicroBatch) {
  const train_test::OwnedBatch batch = train_test::random_batch({9, 9, 14, 6});
  const auto [pass, layers] = pass_and_layer([&](int64_t layers) {
    const auto decoder = decoder_of(on_fake(grouped_config(), layers));
    lora_test::train(*decoder, batch);
    return count([&] { lora_test::train(*decoder, batch); });
  });
  EXPECT_LE(layers.launches, 2 * 126) << fake::describe(layers);  // four sequences: 8 of them attention's
  EXPECT_EQ(layers.waits + layers.to_device + layers.to_host, 0) << fake::describe(layers);
  EXPECT_EQ(pass.waits, 1) << fake::describe(pass);
  EXPECT_LE(pass.to_device, 4) << fake::describe(pass);
  EXPECT_EQ(pass.to_host, 1) << fake::describe(pass);
  const auto targets = std::ranges::count(batch.mask, 1);
  EXPECT_EQ(pass.to_host_bytes, 16 * targets) << fake::describe(pass);
  EXPECT_LE(pass.launches - layers.launches, 50) << fake::describe(pass);
}

TEST_F(DeviceBudget, AMicroBatchOfAnAdapter) {
  const train_test::OwnedBatch batch = train_test::random_batch({9, 9, 14, 6});
  const auto [pass, layers] = pass_and_layer([&](int64_t layers) {
    const auto base = decoder_of(on_fake(grouped_config(), layers));
    const auto adapter = lora_test::adapter_on(*base, lora_test::kAll, 5);
    lora_test::train(*adapter, batch);
    return count([&] { lora_test::train(*adapter, batch); });
  });
  EXPECT_LE(layers.launches, 2 * 241) << fake::describe(layers);
  EXPECT_EQ(layers.waits + layers.to_device + layers.to_host, 0) << fake::describe(layers);
  EXPECT_EQ(pass.waits, 1) << fake::describe(pass);
  EXPECT_LE(pass.to_device, 4) << fake::describe(pass);
}

// One wait, for the norms that clipping needs: a number of each parameter.
TEST_F(DeviceBudget, AStepOfTheOptimizer) {
  const auto decoder = decoder_of(on_fake(grouped_config(), 2));
  AdamW adamw(*decoder, {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0});
  const auto trained = lora_test::train(*decoder, train_test::random_batch({9, 6}));
  const auto parameters = static_cast<int64_t>(decoder->parameters().named.size()),
             flats = static_cast<int64_t>(decoder->parameters().flats().size());
  const fake::Ledger step = count([&] { adamw.step(*trained.gradients, 1e-3, 1); });
  EXPECT_EQ(step.waits, 1) << fake::describe(step);
  EXPECT_EQ(step.to_device, 0) << fake::describe(step);
  EXPECT_EQ(step.to_host_bytes, 8 * parameters) << fake::describe(step);
  EXPECT_LE(step.launches, 2 * parameters + 10 * flats + 1) << fake::describe(step);
}

}  // namespace
}  // namespace gyre::testing
