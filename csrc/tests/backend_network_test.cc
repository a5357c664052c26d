// The decoder on every backend against the CPU kernels: hidden states, logits and gradients.
#include <ATen/ATen.h>

#include "backend_fixture.h"
#include "kernels/attention.h"
#include "model/pass.h"

namespace gyre::testing {
namespace {

using BackendNetwork = OnDevice;
GYRE_ON_EVERY_DEVICE(BackendNetwork);

// libtorch remembers whether there was CUDA when it was first asked, and the autograd of other tests asks.
class LookForGpus : public ::testing::Environment {
  void SetUp() override { cuda_state(); }
};
[[maybe_unused]] const auto* const kLookFirst = ::testing::AddGlobalTestEnvironment(new LookForGpus);

constexpr double kTolerance = 1e-5;

const ModelConfig kConfigs[] = {llama_config(), llama_bias_config(), qwen2_config(),
                                qwen3_config(), llama3_config(),     value_config()};

// Two groups with common beginnings (one inside the other) and a lone sequence.
struct Sequences {
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets{0};
};
Sequences branching(int64_t vocab) {
  const std::vector<int32_t> all = random_ids(200, vocab, 9);
  Sequences s;
  const auto add = [&](std::initializer_list<std::pair<int, int>> pieces) {
    for (const auto& [from, to] : pieces) s.ids.insert(s.ids.end(), all.begin() + from, all.begin() + to);
    s.offsets.push_back(static_cast<int64_t>(s.ids.size()));
  };
  add({{0, 21}, {30, 38}});
  add({{0, 21}, {40, 71}});
  add({{0, 21}, {40, 45}, {80, 81}});
  add({{90, 107}});
  add({{110, 111}});
  return s;
}

at::Tensor logits_of(Decoder& decoder, const at::Tensor& hidden_NH) {
  const int64_t width = decoder.config().head == GYRE_HEAD_VALUE ? 1 : decoder.config().vocab_size;
  at::Tensor logits = at::empty({hidden_NH.size(0), width}, hidden_NH.options());
  decoder.logits(hidden_NH, logits);
  return logits;
}

TEST_P(BackendNetwork, TrainingForwardIsTheKernels) {
  for (const ModelConfig& config : kConfigs) {
    Twins twins(config, GetParam());
    const Sequences s = branching(config.vocab_size);
    const Packing packing = pack(s.ids, s.offsets);
    ASSERT_LT(packing.rows(), static_cast<int64_t>(s.ids.size()));
    const at::Tensor want = twins.kernels.forward(packing, nullptr), got = twins.other->forward(packing, nullptr);
    EXPECT_EQ(got.scalar_type(), at::kFloat);
    EXPECT_LT(error_on_host(got, want), kTolerance);
    EXPECT_LT(error_on_host(logits_of(*twins.other, got), logits_of(twins.kernels, want)), kTolerance);
  }
}

// A prompt in two chunks beside another sequence's, then both decode, one of them behind the other's first page.
TEST_P(BackendNetwork, PagedForwardIsTheTrainingForward) {
  for (const ModelConfig& config : kConfigs) {
    Twins twins(config, GetParam());
    Decoder& decoder = *twins.other;
    const std::vector<int32_t> a = random_ids(40, config.vocab_size, 1);
    std::vector<int32_t> b(a.begin(), a.begin() + kPageTokens);
    const std::vector<int32_t> rest = random_ids(7, config.vocab_size, 2);
    b.insert(b.end(), rest.begin(), rest.end());
    const std::vector<int32_t> pages_a{4, 1, 6}, pages_b{4, 2};
    const auto kv = decoder.backend().make_pages(7);

    std::vector<at::Tensor> of_a, of_b;
    const auto slice = [](const std::vector<int32_t>& v, int64_t from, int64_t to) {
      return std::vector<int32_t>(v.begin() + from, v.begin() + to);
    };
    const auto step = [&](int64_t a_from, int64_t a_to, int64_t b_from, int64_t b_to) {
      // b's rows come first, so that outputs have to be put back in order.
      std::vector<int32_t> ids = slice(b, b_from, b_to);
      const std::vector<int32_t> more = slice(a, a_from, a_to);
      ids.insert(ids.end(), more.begin(), more.end());
      std::vector<RowSpan> spans;
      const int64_t count_b = b_to - b_from, count_a = a_to - a_from;
      if (count_b > 0) spans.push_back({0, count_b, b_from, pages_b});
      if (count_a > 0) spans.push_back({count_b, count_a, a_from, pages_a});
      const at::Tensor hidden = decoder.forward(ids, spans, *kv);
      of_b.push_back(hidden.narrow(0, 0, count_b));
      of_a.push_back(hidden.narrow(0, count_b, count_a));
    };
    step(0, 25, 0, 0);
    step(25, 38, kPageTokens, 21);
    step(38, 39, 21, 22);
    step(39, 40, 22, 23);

    const std::vector<int64_t> offsets{0, 40};
    EXPECT_LT(error_on_host(at::cat(of_a), twins.kernels.forward(pack(a, offsets), nullptr)), kTolerance);
    const std::vector<int64_t> offsets_b{0, static_cast<int64_t>(b.size())};
    const at::Tensor want_b = twins.kernels.forward(pack(b, offsets_b), nullptr).slice(0, kPageTokens);
    EXPECT_LT(error_on_host(at::cat(of_b), want_b), kTolerance);
  }
}

TEST_P(BackendNetwork, ADecodingRowAheadOfAPromptKeepsItsPlace) {
  Twins twins(qwen2_config(), GetParam());
  const std::vector<int32_t> ids = random_ids(12, 101, 5), pages_a{0}, pages_b{1};
  const auto kv = twins.other->backend().make_pages(2), expected = twins.kernels.backend().make_pages(2);
  const std::vector<RowSpan> spans{{0, 1, 0, pages_a}, {1, 11, 0, pages_b}};
  EXPECT_LT(error_on_host(twins.other->forward(ids, spans, *kv), twins.kernels.forward(ids, spans, *expected)),
            kTolerance);
}

TEST_P(BackendNetwork, GradientsAreTheKernels) {
  for (const ModelConfig& config : kConfigs) {
    Twins twins(config, GetParam());
    const Sequences s = branching(config.vocab_size);
    const Packing packing = pack(s.ids, s.offsets);
    const at::Tensor d = random_tensor({packing.rows(), config.hidden_size}, 4);
    const auto backward = [&](Decoder& decoder, int times) {
      std::unique_ptr<Activations> kept;
      const at::Tensor hidden = decoder.forward(packing, &kept);
      ParameterSet gradients = make_parameters(decoder.config());
      for (int i = 0; i < times; ++i) decoder.backward({{d.to(hidden.device()), &gradients}}, *kept);
      return gradients;
    };
    const ParameterSet want = backward(twins.kernels, 1), got = backward(*twins.other, 1);
    const ParameterSet twice = backward(*twins.other, 2);
    twins.other->set_recompute(true);
    const ParameterSet again = backward(*twins.other, 2);
    for (size_t i = 0; i < want.named.size(); ++i) {
      const at::Tensor& reference = want.named[i].value;
      EXPECT_LT(error_on_host(got.named[i].value, reference), kTolerance) << want.named[i].name;
      EXPECT_LT(error_on_host(twice.named[i].value, 2 * reference), kTolerance) << want.named[i].name;
      EXPECT_LT(error_on_host(again.named[i].value, 2 * reference), kTolerance) << want.named[i].name;
    }
  }
}

TEST_P(BackendNetwork, Bfloat16FollowsFloat32AndSeesNewWeights) {
  Twins twins(qwen3_config(), GetParam(), GYRE_COMPUTE_BF16);
  const Sequences s = branching(101);
  const Packing packing = pack(s.ids, s.offsets);
  const auto compare = [&] {
    const at::Tensor want = twins.kernels.forward(packing, nullptr), got = twins.other->forward(packing, nullptr);
    const double error = error_on_host(logits_of(*twins.other, got), logits_of(twins.kernels, want));
    EXPECT_LT(error, 0.03);
    EXPECT_GT(error, 1e-5);  // it really is bfloat16
  };
  compare();
  randomize(twins.kernels, 77);
  twins.copy_weights();
  compare();
}

TEST_P(BackendNetwork, Bfloat16GradientsPointTheSameWay) {
  Twins twins(llama_config(), GetParam(), GYRE_COMPUTE_BF16);
  const Sequences s = branching(101);
  const Packing packing = pack(s.ids, s.offsets);
  const at::Tensor d = random_tensor({packing.rows(), 48}, 4);
  const auto backward = [&](Decoder& decoder) {
    std::unique_ptr<Activations> kept;
    const at::Tensor hidden = decoder.forward(packing, &kept);
    ParameterSet gradients = make_parameters(decoder.config());
    decoder.backward({{d.to(hidden.device()), &gradients}}, *kept);
    return gradients;
  };
  const ParameterSet want = backward(twins.kernels), got = backward(*twins.other);
  for (size_t i = 0; i < want.named.size(); ++i) {
    EXPECT_LT(error_on_host(got.named[i].value, want.named[i].value), 0.05) << want.named[i].name;
  }
}

TEST(BackendDevice, RefusesWhatIsNotThere) {
  const auto message_of = [](const std::string& device, gyre_compute compute) -> std::string {
    ModelConfig config = llama_config();
    config.set_device(device), config.compute = compute;
    try {
      Decoder decoder(config);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_NE(message_of("gpu", GYRE_COMPUTE_AUTO).find("got \"gpu\", expected "), std::string::npos);
  EXPECT_NE(message_of("cuda:x", GYRE_COMPUTE_AUTO).find("expected cpu, cuda"), std::string::npos);
  EXPECT_NE(message_of("cuda:", GYRE_COMPUTE_AUTO).find("expected cpu, cuda"), std::string::npos);
  EXPECT_EQ(message_of("cpu", GYRE_COMPUTE_BF16), "accepted");
  EXPECT_EQ(message_of("aten", GYRE_COMPUTE_BF16), "accepted");
  const std::string absent = message_of("cuda:120", GYRE_COMPUTE_AUTO);
  EXPECT_NE(absent.find(cuda_state().devices == 0 ? cuda_state().problem : "is not there"), std::string::npos)
      << absent;
}

}  // namespace
}  // namespace gyre::testing
