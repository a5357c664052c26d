#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "capi/guard.h"
#include "gyre.h"

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
  c.rope_factor = 1;
  return c;
}

class Tensor2x3 : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(gyre_tensor_new(GYRE_F32, 2, shape_, &tensor_, &err_), GYRE_OK) << err_.message; }
  void TearDown() override { gyre_tensor_free(tensor_); }

  std::vector<float> values() {
    std::vector<float> out(6);
    EXPECT_EQ(gyre_tensor_copy_out(tensor_, GYRE_F32, out.data(), 24, &err_), GYRE_OK) << err_.message;
    return out;
  }

  gyre_tensor tensor_ = nullptr;
  gyre_error err_{};
  const int64_t shape_[2] = {2, 3};
};

TEST_F(Tensor2x3, ConvertsEveryType) {
  const std::vector<float> want = {1, -2, 0.5, 4, 96, -0.25};
  const uint16_t half[] = {0x3c00, 0xc000, 0x3800, 0x4400, 0x5600, 0xb400};
  const uint16_t bfloat[] = {0x3f80, 0xc000, 0x3f00, 0x4080, 0x42c0, 0xbe80};
  const double wide[] = {1, -2, 0.5, 4, 96, -0.25};
  ASSERT_EQ(gyre_tensor_copy_in(tensor_, GYRE_F16, 2, shape_, nullptr, half, 12, &err_), GYRE_OK) << err_.message;
  EXPECT_EQ(values(), want);
  ASSERT_EQ(gyre_tensor_copy_in(tensor_, GYRE_BF16, 2, shape_, nullptr, bfloat, 12, &err_), GYRE_OK) << err_.message;
  EXPECT_EQ(values(), want);
  ASSERT_EQ(gyre_tensor_copy_in(tensor_, GYRE_F64, 2, shape_, nullptr, wide, 48, &err_), GYRE_OK) << err_.message;
  EXPECT_EQ(values(), want);
  uint16_t out[6];
  ASSERT_EQ(gyre_tensor_copy_out(tensor_, GYRE_BF16, out, 12, &err_), GYRE_OK) << err_.message;
  EXPECT_EQ(std::memcmp(out, bfloat, 12), 0);
  const int64_t whole[] = {1, -2, 3, 4, 5, 6};
  ASSERT_EQ(gyre_tensor_copy_in(tensor_, GYRE_I64, 2, shape_, nullptr, whole, 48, &err_), GYRE_OK) << err_.message;
  EXPECT_EQ(values(), (std::vector<float>{1, -2, 3, 4, 5, 6}));
}

TEST_F(Tensor2x3, ReadsStridedAndUnalignedData) {
  char bytes[25];
  const float data[] = {1, 2, 3, 4, 5, 6};
  std::memcpy(bytes + 1, data, 24);
  const int64_t transposed[] = {1, 2};
  ASSERT_EQ(gyre_tensor_copy_in(tensor_, GYRE_F32, 2, shape_, transposed, bytes + 1, 24, &err_), GYRE_OK)
      << err_.message;
  EXPECT_EQ(values(), (std::vector<float>{1, 3, 5, 2, 4, 6}));
}

TEST_F(Tensor2x3, StaysInsideTheData) {
  const float data[6] = {};
  const int64_t far[] = {4, 1}, huge[] = {INT64_MAX, INT64_MAX}, negative[] = {-3, 1}, other[] = {3, 2};
  EXPECT_EQ(gyre_tensor_copy_in(tensor_, GYRE_F32, 2, shape_, nullptr, data, 23, &err_), GYRE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(err_.message).find("23 bytes"), std::string::npos) << err_.message;
  for (const int64_t* strides : {far, huge, negative}) {
    EXPECT_EQ(gyre_tensor_copy_in(tensor_, GYRE_F32, 2, shape_, strides, data, 24, &err_), GYRE_INVALID_ARGUMENT);
  }
  EXPECT_EQ(gyre_tensor_copy_in(tensor_, GYRE_F32, 2, other, nullptr, data, 24, &err_), GYRE_INVALID_ARGUMENT);
  EXPECT_EQ(gyre_tensor_copy_in(tensor_, GYRE_F32, 2, shape_, nullptr, nullptr, 24, &err_), GYRE_INVALID_ARGUMENT);
  EXPECT_EQ(gyre_tensor_copy_out(tensor_, GYRE_F64, nullptr, 24, &err_), GYRE_INVALID_ARGUMENT);
}

TEST(TensorNew, RejectsImpossibleShapes) {
  gyre_tensor tensor = nullptr;
  gyre_error err{};
  const int64_t negative[] = {-1}, overflow[] = {int64_t{1} << 40, int64_t{1} << 40}, huge[] = {int64_t{1} << 58};
  EXPECT_EQ(gyre_tensor_new(GYRE_F32, 1, negative, &tensor, &err), GYRE_INVALID_ARGUMENT);
  EXPECT_EQ(gyre_tensor_new(GYRE_F32, 2, overflow, &tensor, &err), GYRE_INVALID_ARGUMENT);
  EXPECT_EQ(gyre_tensor_new(GYRE_F32, GYRE_MAX_DIMS + 1, overflow, &tensor, &err), GYRE_INVALID_ARGUMENT);
  EXPECT_EQ(gyre_tensor_new(GYRE_F32, 1, huge, &tensor, &err), GYRE_OUT_OF_MEMORY) << err.message;
  EXPECT_EQ(tensor, nullptr);
}

TEST(Guard, GivesEveryExceptionItsStatus) {
  gyre_error err{};
  EXPECT_EQ(guard(&err, [] {}), GYRE_OK);
  EXPECT_EQ(guard(&err, [] { throw std::invalid_argument("what is wrong"); }), GYRE_INVALID_ARGUMENT);
  EXPECT_STREQ(err.message, "what is wrong");
  EXPECT_EQ(guard(&err, [] { throw std::bad_alloc(); }), GYRE_OUT_OF_MEMORY);
  EXPECT_EQ(guard(&err, [] { throw NotFiniteError("nan"); }), GYRE_NOT_FINITE);
  EXPECT_EQ(guard(&err, [] { throw NotFoundError("id"); }), GYRE_NOT_FOUND);
  EXPECT_EQ(guard(&err, [] { TORCH_CHECK_NOT_IMPLEMENTED(false, "nope"); }), GYRE_UNSUPPORTED);
  EXPECT_EQ(guard(&err, [] { TORCH_CHECK(false, "broken"); }), GYRE_INTERNAL);
  EXPECT_EQ(guard(&err, [] { throw 7; }), GYRE_INTERNAL);
  EXPECT_EQ(guard(&err, [] { throw std::invalid_argument(std::string(5000, 'x')); }), GYRE_INVALID_ARGUMENT);
  EXPECT_EQ(std::strlen(err.message), size_t{GYRE_MESSAGE_SIZE - 1});
}

TEST(Model, ParametersAliasItsStorage) {
  gyre_error err{};
  gyre_model* model = nullptr;
  const gyre_model_config c = config();
  ASSERT_EQ(gyre_model_new(&c, &model, &err), GYRE_OK) << err.message;
  const uint64_t version = gyre_model_version(model);
  char name[GYRE_NAME_SIZE];
  gyre_tensor embed = nullptr, again = nullptr;
  ASSERT_EQ(gyre_model_parameter(model, 0, name, &embed, &err), GYRE_OK);
  EXPECT_STREQ(name, "model.embed_tokens.weight");
  std::vector<float> values(88);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const int64_t shape[] = {11, 8};
  ASSERT_EQ(gyre_tensor_copy_in(embed, GYRE_F32, 2, shape, nullptr, values.data(), 352, &err), GYRE_OK) << err.message;
  ASSERT_EQ(gyre_model_touch(model, &err), GYRE_OK);
  EXPECT_GT(gyre_model_version(model), version);
  gyre_tensor_free(embed);
  ASSERT_EQ(gyre_model_parameter(model, 0, name, &again, &err), GYRE_OK);
  std::vector<float> read(88);
  ASSERT_EQ(gyre_tensor_copy_out(again, GYRE_F32, read.data(), 352, &err), GYRE_OK);
  EXPECT_EQ(read, values);
  gyre_tensor_free(again);
  EXPECT_EQ(gyre_model_parameter(model, gyre_model_parameter_count(model), name, &again, &err), GYRE_INVALID_ARGUMENT);
  gyre_model_free(model);
}

TEST(Model, RejectsBadConfigurationsAndNulls) {
  gyre_error err{};
  gyre_model* model = nullptr;
  gyre_model_config c = config();
  c.family = 12;
  EXPECT_EQ(gyre_model_new(&c, &model, &err), GYRE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(err.message).find("family"), std::string::npos);
  EXPECT_EQ(gyre_model_new(nullptr, &model, &err), GYRE_INVALID_ARGUMENT);
  EXPECT_EQ(gyre_model_touch(nullptr, &err), GYRE_INVALID_ARGUMENT);
  EXPECT_EQ(gyre_model_score(nullptr, nullptr, 1, nullptr, nullptr, &err), GYRE_INVALID_ARGUMENT);
  EXPECT_EQ(gyre_set_threads(0, &err), GYRE_INVALID_ARGUMENT);
  gyre_model_free(nullptr);
  gyre_tensor_free(nullptr);
  EXPECT_EQ(model, nullptr);
}

TEST(Process, MeasuresTheMachine) {
  gyre_error err{};
  double bandwidth = 0, flops = 0;
  ASSERT_EQ(gyre_measure(&bandwidth, &flops, &err), GYRE_OK) << err.message;
  EXPECT_GT(bandwidth, 1e8);
  EXPECT_GT(flops, 1e8);
  EXPECT_GT(gyre_peak_rss(), int64_t{64} << 20);
}

}  // namespace
}  // namespace gyre::capi
