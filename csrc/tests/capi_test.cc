#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "capi/boundary.h"
#include "gyre_engine.h"
#include "kernels/isa.h"

namespace gyre::capi {
namespace {

gyre_model_config config() {
  gyre_model_config c{};
  c.vocab_size = 11;
  c.hidden_size = c.intermediate_size = 8;
  c.num_layers = 1;
  c.num_heads = c.num_kv_heads = 2;
  c.head_dim = 4;
  c.max_positions = 16;
  c.rms_norm_eps = 1e-5;
  c.rope_theta = 10000;
  return c;
}

class Tensor2x3 : public testing::Test {
 protected:
  void TearDown() override { gyre_tensor_free(tensor_); }

  std::vector<float> values() {
    std::vector<float> out(6);
    EXPECT_EQ(gyre_tensor_copy_out(tensor_, GYRE_F32, out.data(), 24), GYRE_OK) << gyre_message();
    return out;
  }

  gyre_tensor tensor_ = new at::Tensor(at::zeros({2, 3}));
  const int64_t shape_[2] = {2, 3};
};

TEST_F(Tensor2x3, ConvertsEveryType) {
  const std::vector<float> want = {1, -2, 0.5, 4, 96, -0.25};
  const uint16_t half[] = {0x3c00, 0xc000, 0x3800, 0x4400, 0x5600, 0xb400};
  const uint16_t bfloat[] = {0x3f80, 0xc000, 0x3f00, 0x4080, 0x42c0, 0xbe80};
  const double wide[] = {1, -2, 0.5, 4, 96, -0.25};
  ASSERT_EQ(gyre_tensor_copy_in(tensor_, GYRE_F16, 2, shape_, half, 12), GYRE_OK) << gyre_message();
  EXPECT_EQ(values(), want);
  ASSERT_EQ(gyre_tensor_copy_in(tensor_, GYRE_BF16, 2, shape_, bfloat, 12), GYRE_OK) << gyre_message();
  EXPECT_EQ(values(), want);
  ASSERT_EQ(gyre_tensor_copy_in(tensor_, GYRE_F64, 2, shape_, wide, 48), GYRE_OK) << gyre_message();
  EXPECT_EQ(values(), want);
  uint16_t out[6];
  ASSERT_EQ(gyre_tensor_copy_out(tensor_, GYRE_BF16, out, 12), GYRE_OK) << gyre_message();
  EXPECT_EQ(std::memcmp(out, bfloat, 12), 0);
}

TEST_F(Tensor2x3, ReadsUnalignedData) {
  char bytes[25];
  const float data[] = {1, 2, 3, 4, 5, 6};
  std::memcpy(bytes + 1, data, 24);
  ASSERT_EQ(gyre_tensor_copy_in(tensor_, GYRE_F32, 2, shape_, bytes + 1, 24), GYRE_OK) << gyre_message();
  EXPECT_EQ(values(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_F(Tensor2x3, StaysInsideTheData) {
  const float data[6] = {};
  const int64_t other[] = {3, 2};
  EXPECT_EQ(gyre_tensor_copy_in(tensor_, GYRE_F32, 2, shape_, data, 23), GYRE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(gyre_message()).find("23 bytes"), std::string::npos) << gyre_message();
  EXPECT_EQ(gyre_tensor_copy_in(tensor_, GYRE_F32, 2, other, data, 24), GYRE_INVALID_ARGUMENT);
  EXPECT_EQ(gyre_tensor_copy_out(tensor_, GYRE_F64, nullptr, 24), GYRE_INVALID_ARGUMENT);
}

TEST(Guard, GivesEveryExceptionItsStatus) {
  EXPECT_EQ(guard([] {}), GYRE_OK);
  EXPECT_EQ(guard([] { throw std::invalid_argument("what is wrong"); }), GYRE_INVALID_ARGUMENT);
  EXPECT_STREQ(gyre_message(), "what is wrong");
  EXPECT_EQ(guard([] { throw std::bad_alloc(); }), GYRE_OUT_OF_MEMORY);
  EXPECT_EQ(guard([] { throw std::system_error(EAGAIN, std::generic_category()); }), GYRE_OUT_OF_MEMORY);
  EXPECT_EQ(guard([] { throw std::system_error(EPIPE, std::generic_category()); }), GYRE_INTERNAL);
  EXPECT_EQ(guard([] { throw NotFiniteError("nan"); }), GYRE_NOT_FINITE);
  EXPECT_EQ(guard([] { throw NotFoundError("id"); }), GYRE_NOT_FOUND);
  EXPECT_EQ(guard([] { TORCH_CHECK_NOT_IMPLEMENTED(false, "nope"); }), GYRE_UNSUPPORTED);
  EXPECT_EQ(guard([] { TORCH_CHECK(false, "broken"); }), GYRE_INTERNAL);
  EXPECT_EQ(guard([] { throw 7; }), GYRE_INTERNAL);
  EXPECT_EQ(guard([] { throw std::invalid_argument(std::string(5000, 'x')); }), GYRE_INVALID_ARGUMENT);
  EXPECT_EQ(std::strlen(gyre_message()), size_t{GYRE_MESSAGE_SIZE - 1});
}

TEST(Model, ParametersAliasItsStorage) {
  gyre_model* model = nullptr;
  const gyre_model_config c = config();
  ASSERT_EQ(gyre_model_new(&c, nullptr, &model), GYRE_OK) << gyre_message();
  char name[GYRE_NAME_SIZE];
  gyre_tensor embed = nullptr, again = nullptr;
  ASSERT_EQ(gyre_model_parameter(model, 0, name, &embed), GYRE_OK);
  EXPECT_STREQ(name, "model.embed_tokens.weight");
  std::vector<float> values(88);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const int64_t shape[] = {11, 8};
  ASSERT_EQ(gyre_tensor_copy_in(embed, GYRE_F32, 2, shape, values.data(), 352), GYRE_OK) << gyre_message();
  ASSERT_EQ(gyre_model_touch(model), GYRE_OK);
  gyre_tensor_free(embed);
  ASSERT_EQ(gyre_model_parameter(model, 0, name, &again), GYRE_OK);
  std::vector<float> read(88);
  ASSERT_EQ(gyre_tensor_copy_out(again, GYRE_F32, read.data(), 352), GYRE_OK);
  EXPECT_EQ(read, values);
  gyre_tensor_free(again);
  EXPECT_EQ(gyre_model_parameter(model, gyre_model_parameter_count(model), name, &again), GYRE_INVALID_ARGUMENT);
  gyre_model_free(model);
}

TEST(Model, OutlivesItsOptimizer) {
  gyre_model* model = nullptr;
  const gyre_model_config c = config();
  ASSERT_EQ(gyre_model_new(&c, nullptr, &model), GYRE_OK) << gyre_message();
  gyre_optimizer* optimizer = nullptr;
  const gyre_adamw_config adamw{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0};
  ASSERT_EQ(gyre_optimizer_new(model, &adamw, &optimizer), GYRE_OK) << gyre_message();
  gyre_gradients* gradients = nullptr;
  ASSERT_EQ(gyre_gradients_new(model, false, &gradients), GYRE_OK) << gyre_message();
  gyre_model_free(model);
  double norm = -1;
  bool applied = false;
  EXPECT_EQ(gyre_optimizer_step(optimizer, gradients, 1e-3, 1, &norm, &applied), GYRE_OK) << gyre_message();
  EXPECT_TRUE(applied);
  EXPECT_EQ(norm, 0);
  gyre_optimizer_free(optimizer);
  gyre_gradients_free(gradients);
}

TEST(Model, RejectsBadConfigurations) {
  gyre_model* model = nullptr;
  gyre_model_config c = config();
  std::strcpy(c.device, "tpu");
  EXPECT_EQ(gyre_model_new(&c, nullptr, &model), GYRE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(gyre_message()).find("got \"tpu\", expected "), std::string::npos);
  EXPECT_EQ(gyre_set_threads(0), GYRE_INVALID_ARGUMENT);
  gyre_model_free(nullptr);
  gyre_tensor_free(nullptr);
  EXPECT_EQ(model, nullptr);
}

// Five terms through the C ABI: the three usual ones and two parts of the reward with advantages of their own.
TEST(Policy, TakesAnyNumberOfTerms) {
  gyre_model* model = nullptr;
  const gyre_model_config c = config();
  ASSERT_EQ(gyre_model_new(&c, nullptr, &model), GYRE_OK) << gyre_message();
  for (int32_t i = 0; i < gyre_model_parameter_count(model); ++i) {
    char name[GYRE_NAME_SIZE];
    gyre_tensor t = nullptr;
    ASSERT_EQ(gyre_model_parameter(model, i, name, &t), GYRE_OK);
    gyre_tensor_info_t info;
    ASSERT_EQ(gyre_tensor_info(t, &info), GYRE_OK);
    std::vector<float> values(info.numel);
    for (size_t k = 0; k < values.size(); ++k) values[k] = 0.4f * std::sin(static_cast<float>(k * 7 + i));
    ASSERT_EQ(gyre_tensor_copy_in(t, GYRE_F32, info.ndim, info.shape, values.data(), 4 * values.size()), GYRE_OK);
    gyre_tensor_free(t);
  }
  ASSERT_EQ(gyre_model_touch(model), GYRE_OK);

  const int64_t offsets[] = {0, 4, 7};
  const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7};
  const uint8_t mask[] = {0, 1, 1, 1, 0, 1, 1};
  const gyre_batch batch{.num_sequences = 2, .offsets = offsets, .ids = ids, .mask = mask};
  const std::vector<float> old(7, -2.4f), reference(7, -2.3f), weights(7, 0.2f);
  const std::vector<float> advantages = {0, 1, -1, 0.5, 0, 2, -0.5};
  std::vector<float> correct(7), format(7);
  for (size_t t = 0; t < 7; ++t) correct[t] = 0.75f * advantages[t], format[t] = 0.25f * advantages[t];
  const gyre_policy_inputs inputs{.old_logprobs = old.data(),
                                  .advantages = advantages.data(),
                                  .ref_logprobs = reference.data(),
                                  .weights = weights.data()};
  gyre_policy_loss loss{};
  loss.temperature = 1;
  loss.task = {.index = 0, .constants = {1, 1e6}};
  loss.entropy_coef = 0.1, loss.kl = GYRE_KL_K3, loss.kl_coef = 0.1;

  std::vector<gyre_gradients*> g(5);
  for (gyre_gradients*& buffer : g) ASSERT_EQ(gyre_gradients_new(model, false, &buffer), GYRE_OK);
  std::vector<gyre_term> terms = {
      {"task", GYRE_TERM_TASK, nullptr, nullptr, g[0]},
      {"entropy", GYRE_TERM_ENTROPY, nullptr, nullptr, g[1]},
      {"kl", GYRE_TERM_KL, nullptr, nullptr, g[2]},
      {"correctness", GYRE_TERM_TASK, correct.data(), nullptr, g[3]},
      {"format", GYRE_TERM_TASK, format.data(), nullptr, g[4]},
  };
  gyre_policy_stats stats{};
  std::vector<gyre_term_stats> of(5);
  const auto run = [&] {
    return gyre_policy_backward(model, &batch, &inputs, &loss, terms.data(), 5, nullptr, nullptr, &stats, of.data());
  };
  ASSERT_EQ(run(), GYRE_OK) << gyre_message();
  EXPECT_EQ(stats.tokens, 5);
  EXPECT_NEAR(of[3].loss + of[4].loss, of[0].loss, 1e-6);
  const auto norm = [&](gyre_gradients* x) {
    double total = 0;
    EXPECT_EQ(gyre_gradients_dot(x, x, &total, nullptr), GYRE_OK);
    return std::sqrt(total);
  };
  for (gyre_gradients* buffer : g) EXPECT_GT(norm(buffer), 0);
  EXPECT_NEAR(norm(g[4]), 0.25 * norm(g[0]), 1e-5 * norm(g[0]));
  const double whole = norm(g[0]);
  ASSERT_EQ(gyre_gradients_add(g[0], g[3], -1), GYRE_OK);
  ASSERT_EQ(gyre_gradients_add(g[0], g[4], -1), GYRE_OK);
  EXPECT_LT(norm(g[0]), 1e-5 * whole);

  terms[4].name = "task";
  EXPECT_EQ(run(), GYRE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(gyre_message()).find("\"task\""), std::string::npos) << gyre_message();
  for (gyre_gradients* buffer : g) gyre_gradients_free(buffer);
  gyre_model_free(model);
}

TEST(Process, MeasuresTheMachine) {
  for (const int32_t compute : {GYRE_COMPUTE_F32, GYRE_COMPUTE_BF16}) {
    double bandwidth = 0, flops = 0;
    ASSERT_EQ(gyre_measure(compute, &bandwidth, &flops), GYRE_OK) << gyre_message();
    EXPECT_GT(bandwidth, 1e8);
    EXPECT_GT(flops, 1e8);
  }
  EXPECT_GT(gyre_peak_rss(), int64_t{64} << 20);
}

TEST(Process, MeasuresEveryInstructionSet) {
  int used = 0, count = 0;
  gyre_isa in_use{};
  for (gyre_isa set{}, plain{};; ++count) {
    ASSERT_EQ(gyre_describe_isa(count, true, &set), GYRE_OK) << gyre_message();
    if (set.name[0] == '\0') break;
    ASSERT_EQ(gyre_describe_isa(count, false, &plain), GYRE_OK) << gyre_message();
    EXPECT_TRUE(std::string(plain.name) == set.name && plain.f32_flops == 0 && plain.bf16_flops == 0) << set.name;
    used += set.in_use;
    if (set.in_use) in_use = set;
    EXPECT_GE(std::string(set.name).size(), 3u);
    EXPECT_EQ(set.f32_flops > 1e8, set.runs_here) << set.name;
    EXPECT_EQ(set.bf16_flops > 1e8, set.runs_here) << set.name;
    EXPECT_LE(set.in_use, set.runs_here) << set.name;
  }
  EXPECT_EQ(used, 1);
  const std::string name = in_use.name;
  EXPECT_EQ(name, variant_in_use().name);
  // Only instructions for bf16 make it faster.
  if (name.find("avx512_bf16") == std::string::npos) EXPECT_EQ(in_use.bf16_is_faster, name == "amx") << name;
  EXPECT_THROW(use_variant("avx99"), std::invalid_argument);
}

}  // namespace
}  // namespace gyre::capi
