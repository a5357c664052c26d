// A whole update is the same bits for any number of threads.
#include <gtest/gtest.h>

#include <vector>

#include "tests/threads.h"
#include "tests/train_fixture.h"
#include "train/adamw.h"
#include "train/passes.h"

namespace gyre {
namespace {

using testing::same_bits;

// Large enough that every loop of a pass is shared between threads.
ModelConfig shared_config() {
  ModelConfig c = train_test::tiny_config();
  c.vocab_size = 1999;
  c.hidden_size = 96;
  c.intermediate_size = 200;
  c.head_dim = 24;
  c.max_positions = 128;
  return c;
}

struct Update {
  PolicyResult result;
  std::vector<float> logprobs, sketch, parameters;
  double grad_norm;
};

Update run(int threads) {
  const Threads several(threads);
  Decoder decoder(shared_config());
  testing::randomize_normal(decoder, 3, 0.1f);
  const train_test::OwnedBatch b = train_test::random_batch({90, 128, 101, 77, 128});
  gyre_policy_loss loss{};
  loss.temperature = 0.9;
  loss.task = {.index = 0, .constants = {0.2, 0.2, 0}};
  loss.entropy_coef = 0.01;
  loss.kl_coef = 0.1;
  loss.kl = GYRE_KL_K3;
  gyre_gradients gradients(decoder.config());
  Update u;
  u.logprobs.resize(b.ids.size());
  u.result = policy_backward(decoder, b.view(), train_test::inputs_of(b), loss,
                             train_test::terms(&gradients, &gradients, &gradients), u.logprobs.data());
  u.sketch.resize(1009);
  gradients.sketch(u.sketch);
  AdamW adamw(decoder, {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01});
  u.grad_norm = adamw.step(gradients, 1e-2, 1.0).grad_norm;
  for (const at::Tensor& flat : decoder.parameters().flats()) {
    u.parameters.insert(u.parameters.end(), flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel());
  }
  return u;
}

TEST(Update, IsTheSameBitsForAnyNumberOfThreads) {
  const Update one = run(1);
  for (int threads : {2, 3}) {
    const Update other = run(threads);
    EXPECT_EQ(one.result.terms[0].loss, other.result.terms[0].loss);
    EXPECT_TRUE(same_bits(one.logprobs, other.logprobs));
    EXPECT_TRUE(same_bits(one.sketch, other.sketch));
    EXPECT_EQ(one.grad_norm, other.grad_norm);
    EXPECT_TRUE(same_bits(one.parameters, other.parameters));
  }
}

}  // namespace
}  // namespace gyre
