#include <gtest/gtest.h>

#include <numeric>

#include "model/pass.h"
#include "model_fixture.h"

namespace gyre {
namespace {

using namespace gyre::testing;

// Weights per layer of llama_config: hidden 48, q 48, k and v 16 each, intermediate 80.
constexpr double kWeights = 2 * (48.0 * (48 + 32) + 48 * 48 + 3 * 48 * 80);

std::vector<int32_t> tokens(int64_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

TEST(Work, CountsMatricesAndCausalAttention) {
  const ModelConfig config = llama_config();
  const std::vector<int32_t> ids = tokens(20);
  const int64_t offsets[] = {0, 20};
  const gyre_work work = forward_work(config, training_pass(pack(ids, offsets)));
  const double keys = 20 * 21 / 2;
  EXPECT_DOUBLE_EQ(work.flops, 2 * 20 * kWeights + 4 * keys * 48 * 2);
  EXPECT_DOUBLE_EQ(work.bytes, 4 * (kWeights + 20 * 2 * 16 * 2));
  ModelConfig half = config;
  half.compute = GYRE_COMPUTE_BF16;
  EXPECT_DOUBLE_EQ(2 * forward_work(half, training_pass(pack(ids, offsets))).bytes, work.bytes);
}

TEST(Work, SharedPrefixesCountOnce) {
  Decoder decoder(llama_config());
  std::vector<int32_t> ids = tokens(32);
  const std::vector<int32_t> again = ids;
  ids.insert(ids.end(), again.begin(), again.end());
  const int64_t twice[] = {0, 32, 64}, once[] = {0, 32};
  decoder.forward(pack(again, once), nullptr);
  const gyre_work one = decoder.work();
  decoder.forward(pack(ids, twice), nullptr);
  EXPECT_DOUBLE_EQ((decoder.work() - one).flops, one.flops);
}

TEST(Work, TrainingTakesThreeForwardsAndRecomputationAFourth) {
  const std::vector<int32_t> ids = tokens(16);
  const int64_t offsets[] = {0, 16};
  double total[2];
  for (const bool recompute : {false, true}) {
    Decoder decoder(llama_config());
    decoder.set_recompute(recompute);
    ParameterSet gradients = make_parameters(decoder.config());
    std::unique_ptr<Activations> kept;
    const at::Tensor hidden_NH = decoder.forward(pack(ids, offsets), &kept);
    decoder.backward({{at::ones_like(hidden_NH), &gradients}}, *kept);
    total[recompute] = decoder.work().flops;
  }
  const double matrices = 2 * 16 * kWeights, product = 2.0 * (16 * 17 / 2) * 48 * 2;
  EXPECT_DOUBLE_EQ(total[0], 3 * matrices + 7 * product);
  EXPECT_DOUBLE_EQ(total[1], 4 * matrices + 9 * product);
}

}  // namespace
}  // namespace gyre
