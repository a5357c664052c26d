// The decoder against a plain ATen one: hidden states, gradients, and the bit equality of its inference and training
// paths.
#include "backend/decoder.h"

#include <gtest/gtest.h>

#include <numeric>

#include "model_fixture.h"
#include "reference_decoder.h"
#include "threads.h"

namespace gyre {
namespace {

using testing::random_ids;
using testing::relative_error;
using testing::same_bits;

struct Case {
  const char* name;
  ModelConfig config;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// Sequences that share nothing and sequences that share prefixes in every way: lengths that end in and at a page of 16
// tokens, branches within a page and at its end, nested ones, a copy, a prefix of another sequence and a continuation.
class DecoderTest : public ::testing::TestWithParam<Case> {
 protected:
  DecoderTest() : decoder(GetParam().config) {
    testing::randomize(decoder, 7);
    for (int64_t length : {1, 37, 17, 16}) begin_with(0, 0, length);
    begin_with(1, 20, 13);
    begin_with(1, 37, 0);
    begin_with(1, 9, 0);
    begin_with(4, 30, 9);
    begin_with(1, 16, 5);
    begin_with(2, 17, 3);
    begin_with(1, 20, 40);
    packing = pack(ids, offsets);
    const std::vector<int64_t> rows = packing.row_of;
    row_of = at::empty({static_cast<int64_t>(rows.size())}, at::kLong);
    std::copy(rows.begin(), rows.end(), row_of.data_ptr<int64_t>());
  }

  std::span<const int32_t> sequence(size_t s) const {
    return std::span(ids).subspan(static_cast<size_t>(offsets[s]), static_cast<size_t>(offsets[s + 1] - offsets[s]));
  }

  // The first `shared` tokens of sequence s and then `count` others.
  void begin_with(size_t s, int64_t shared, int64_t count) {
    std::vector<int32_t> next;
    if (shared > 0) next.assign(sequence(s).begin(), sequence(s).begin() + shared);
    const auto rest = random_ids(count, GetParam().config.vocab_size, 100 + offsets.size());
    next.insert(next.end(), rest.begin(), rest.end());
    ids.insert(ids.end(), next.begin(), next.end());
    offsets.push_back(static_cast<int64_t>(ids.size()));
  }

  // Token by token.
  at::Tensor hidden_states(std::unique_ptr<Activations>* keep = nullptr) {
    return decoder.forward(packing, keep).index_select(0, row_of);
  }
  void backward(const at::Tensor& d_tokens, const Activations& kept, ParameterSet& gradients) {
    at::Tensor d_rows = at::zeros({packing.rows(), d_tokens.size(1)});
    d_rows.index_add_(0, row_of, d_tokens);
    decoder.backward({{d_rows, &gradients}}, kept);
  }

  Decoder decoder;
  std::vector<int64_t> offsets{0};
  std::vector<int32_t> ids;
  Packing packing;
  at::Tensor row_of;
};

TEST_P(DecoderTest, HiddenStatesMatchReference) {
  const at::Tensor hidden = hidden_states();
  const auto weights = reference::copy_weights(decoder.parameters());
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const at::Tensor expected = reference::hidden(GetParam().config, weights, sequence(s)).detach();
    EXPECT_LT(relative_error(hidden.narrow(0, offsets[s], expected.size(0)), expected), 2e-6) << "sequence " << s;
  }
}

TEST_P(DecoderTest, SharedPrefixesChangeNoBit) {
  EXPECT_LT(packing.rows(), offsets.back());
  const at::Tensor together = hidden_states();
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const std::vector<int64_t> whole{0, offsets[s + 1] - offsets[s]};
    const at::Tensor alone = decoder.forward(pack(sequence(s), whole), nullptr);
    EXPECT_TRUE(same_bits(together.narrow(0, offsets[s], whole[1]), alone)) << "sequence " << s;
  }
}

TEST_P(DecoderTest, GradientsMatchAutograd) {
  std::unique_ptr<Activations> kept;
  const at::Tensor hidden = hidden_states(&kept);
  const at::Tensor d_hidden = testing::random_tensor(hidden.sizes(), 5);
  ParameterSet gradients = testing::make_parameters(GetParam().config);
  backward(d_hidden, *kept, gradients);

  const auto weights = reference::copy_weights(decoder.parameters());
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const at::Tensor h = reference::hidden(GetParam().config, weights, sequence(s));
    (h * d_hidden.narrow(0, offsets[s], h.size(0))).sum().backward();
  }
  for (const NamedTensor& g : gradients.named) {
    const at::Tensor expected = weights.at(g.name).grad();
    if (!expected.defined()) {  // heads: not part of the hidden states
      EXPECT_EQ(g.value.abs().max().item<float>(), 0.0f) << g.name;
    } else if (g.name.ends_with("k_proj.bias") && !GetParam().config.qk_norm) {
      // Softmax ignores a shift of all keys up to rope: small, so compare to the weight's scale.
      EXPECT_LT((g.value - expected).norm().item<double>(), 1e-4 * (1.0 + expected.norm().item<double>())) << g.name;
    } else {
      EXPECT_LT(relative_error(g.value, expected), 1e-4) << g.name;
    }
  }
}

TEST_P(DecoderTest, BackwardAddsAndRepeats) {
  std::unique_ptr<Activations> kept;
  const at::Tensor hidden = hidden_states(&kept);
  const at::Tensor d_hidden = testing::random_tensor(hidden.sizes(), 5);
  ParameterSet once = testing::make_parameters(GetParam().config), twice = testing::make_parameters(GetParam().config);
  backward(d_hidden, *kept, once);
  backward(d_hidden, *kept, twice);
  for (size_t i = 0; i < once.named.size(); ++i) {
    EXPECT_TRUE(same_bits(once.named[i].value, twice.named[i].value)) << once.named[i].name;
  }
  backward(d_hidden, *kept, twice);
  for (size_t i = 0; i < once.named.size(); ++i) {
    EXPECT_LT(relative_error(twice.named[i].value, once.named[i].value * 2), 1e-5) << once.named[i].name;
  }
}

// Loss components go back through the blocks together.
TEST_P(DecoderTest, GradientsTakenTogetherAreThoseTakenAlone) {
  for (bool recompute : {false, true}) {
    decoder.set_recompute(recompute);
    std::unique_ptr<Activations> kept;
    const at::Tensor hidden = decoder.forward(packing, &kept);
    std::vector<ParameterSet> alone, together;
    std::vector<HiddenGradient> all;
    for (int g = 0; g < 3; ++g) {
      alone.push_back(testing::make_parameters(GetParam().config));
      together.push_back(testing::make_parameters(GetParam().config));
    }
    for (size_t g = 0; g < 3; ++g) {
      all.push_back({testing::random_tensor(hidden.sizes(), 7 + g), &together[g]});
      decoder.backward({{all[g].d_hidden_NH, &alone[g]}}, *kept);
    }
    decoder.backward(all, *kept);
    for (size_t g = 0; g < 3; ++g) {
      for (size_t i = 0; i < alone[g].named.size(); ++i) {
        EXPECT_TRUE(same_bits(together[g].named[i].value, alone[g].named[i].value)) << alone[g].named[i].name;
      }
    }
  }
}

TEST_P(DecoderTest, RecomputationGivesTheSameGradients) {
  ParameterSet expected = testing::make_parameters(GetParam().config),
               actual = testing::make_parameters(GetParam().config);
  std::unique_ptr<Activations> kept;
  const at::Tensor hidden = hidden_states(&kept);
  const at::Tensor d_hidden = testing::random_tensor(hidden.sizes(), 6);
  backward(d_hidden, *kept, expected);
  decoder.set_recompute(true);
  EXPECT_TRUE(same_bits(hidden_states(&kept), hidden));
  backward(d_hidden, *kept, actual);
  for (size_t i = 0; i < expected.named.size(); ++i) {
    EXPECT_TRUE(same_bits(actual.named[i].value, expected.named[i].value)) << expected.named[i].name;
  }
}

// Feeds the sequences to the inference forward in random pieces and random company, on shuffled pages.
TEST_P(DecoderTest, InferenceInAnyPiecesEqualsTrainingBitForBit) {
  const at::Tensor expected = hidden_states();
  for (uint64_t seed = 0; seed < 4; ++seed) {
    std::mt19937_64 random(seed);
    const size_t sequences = offsets.size() - 1;
    const auto kv = decoder.backend().make_pages(60);
    std::vector<int32_t> free_pages(60);
    std::iota(free_pages.begin(), free_pages.end(), 0);
    std::shuffle(free_pages.begin(), free_pages.end(), random);
    std::vector<std::vector<int32_t>> pages(sequences);
    std::vector<int64_t> done(sequences, 0);
    at::Tensor actual = at::zeros_like(expected);
    for (;;) {
      std::vector<RowSpan> spans;
      std::vector<int32_t> batch;
      std::vector<size_t> owner;
      for (size_t s = 0; s < sequences; ++s) {
        const auto left = static_cast<int64_t>(sequence(s).size()) - done[s];
        if (left == 0 || (random() % 3 == 0 && owner.size() + 1 < sequences - s)) continue;
        const int64_t count = seed == 0 ? 1 : std::min<int64_t>(left, 1 + static_cast<int64_t>(random() % 20));
        while (static_cast<int64_t>(pages[s].size()) * kPageTokens < done[s] + count) {
          pages[s].push_back(free_pages.back());
          free_pages.pop_back();
        }
        spans.push_back({static_cast<int64_t>(batch.size()), count, done[s], pages[s]});
        const auto part = sequence(s).subspan(static_cast<size_t>(done[s]), static_cast<size_t>(count));
        batch.insert(batch.end(), part.begin(), part.end());
        owner.push_back(s);
      }
      if (batch.empty()) {
        bool finished = true;
        for (size_t s = 0; s < sequences; ++s) finished &= done[s] == static_cast<int64_t>(sequence(s).size());
        if (finished) break;
        continue;
      }
      const at::Tensor hidden = decoder.forward(batch, spans, *kv);
      for (size_t i = 0; i < spans.size(); ++i) {
        actual.narrow(0, offsets[owner[i]] + spans[i].position, spans[i].count)
            .copy_(hidden.narrow(0, spans[i].row, spans[i].count));
        done[owner[i]] += spans[i].count;
      }
    }
    EXPECT_TRUE(same_bits(actual, expected)) << "seed " << seed;
  }
}

TEST_P(DecoderTest, ThreadsDoNotChangeABit) {
  std::vector<at::Tensor> hidden;
  std::vector<ParameterSet> gradients;
  for (int t : {1, 3}) {
    const Threads several(t);
    std::unique_ptr<Activations> kept;
    hidden.push_back(hidden_states(&kept));
    gradients.push_back(testing::make_parameters(GetParam().config));
    backward(testing::random_tensor(hidden[0].sizes(), 5), *kept, gradients.back());
  }
  EXPECT_TRUE(same_bits(hidden[0], hidden[1]));
  for (size_t i = 0; i < gradients[0].named.size(); ++i) {
    EXPECT_TRUE(same_bits(gradients[0].named[i].value, gradients[1].named[i].value)) << gradients[0].named[i].name;
  }
}

TEST_P(DecoderTest, TouchedWeightsAreUsed) {
  const at::Tensor before = hidden_states();
  const uint64_t version = decoder.version();
  const BlockTensors& block = decoder.parameters().blocks[0];
  (block.gate_up_2FH.defined() ? block.gate_up_2FH : block.expert_gate_up_XH).mul_(1.5);
  decoder.touch();
  EXPECT_GT(decoder.version(), version);
  const at::Tensor after = hidden_states();
  const auto weights = reference::copy_weights(decoder.parameters());
  const at::Tensor expected = reference::hidden(GetParam().config, weights, sequence(1)).detach();
  EXPECT_LT(relative_error(after.narrow(0, 1, 37), expected), 2e-6);
  EXPECT_GT(relative_error(after, before), 1e-3);
}

TEST_P(DecoderTest, PackedCopiesChangeNoBit) {
  const std::vector<int32_t> pages{0, 1, 2};
  const auto kv = decoder.backend().make_pages(3);
  const std::vector<RowSpan> span{{0, 37, 0, pages}};
  const auto trained = [&] { return hidden_states().narrow(0, 1, 37); };
  const auto inferred = [&] { return decoder.forward(sequence(1), span, *kv); };
  const at::Tensor expected = trained();
  EXPECT_TRUE(same_bits(inferred(), expected));
  EXPECT_TRUE(same_bits(trained(), expected)) << "with the copies of inference";
  decoder.release_packed();
  EXPECT_TRUE(same_bits(trained(), expected));
  EXPECT_TRUE(same_bits(inferred(), expected));
  decoder.parameters().blocks[1].gate_up_2FH.mul_(0.5);
  decoder.touch();
  const at::Tensor changed = trained();
  EXPECT_GT(relative_error(changed, expected), 1e-3);
  EXPECT_TRUE(same_bits(inferred(), changed));
}

TEST_P(DecoderTest, LogitsAreTheHeadProduct) {
  const ModelConfig& c = GetParam().config;
  const at::Tensor hidden = hidden_states();
  const bool value = c.head == GYRE_HEAD_VALUE;
  at::Tensor logits = at::empty({hidden.size(0), value ? 1 : c.vocab_size});
  decoder.logits(hidden, logits);
  const RootTensors& root = decoder.parameters().root;
  at::Tensor expected =
      value ? at::mm(hidden, root.score_1H.t()) + root.score_bias_1 : at::mm(hidden, root.head_VH.t());
  if (c.shape.logit_scale != 0) expected = expected * c.shape.logit_scale;
  if (c.shape.logit_cap != 0) expected = at::tanh(expected / c.shape.logit_cap) * c.shape.logit_cap;
  EXPECT_LT(relative_error(logits, expected), 1e-6);
  at::Tensor one = at::empty({1, logits.size(1)});
  decoder.logits(hidden.narrow(0, 40, 1), one);
  EXPECT_TRUE(same_bits(one, logits.narrow(0, 40, 1)));
}

INSTANTIATE_TEST_SUITE_P(
    Families, DecoderTest,
    ::testing::Values(Case{"llama", testing::llama_config()}, Case{"llama_bias", testing::llama_bias_config()},
                      Case{"qwen2", testing::qwen2_config()}, Case{"qwen3", testing::qwen3_config()},
                      Case{"sandwich", testing::sandwich_config()}, Case{"wide", testing::wide_config()},
                      Case{"partial", testing::partial_config()}, Case{"experts", testing::experts_config()},
                      Case{"shared_expert", testing::shared_expert_config()}, Case{"value", testing::value_config()}),
    [](const auto& info) { return info.param.name; });

TEST(Parameters, NamesAndSharing) {
  const ModelConfig config = testing::llama_bias_config();
  ParameterSet set = testing::make_parameters(config);
  EXPECT_EQ(set.named.front().name, "model.embed_tokens.weight");
  EXPECT_EQ(set.named.back().name, "lm_head.weight");
  int64_t named = 0;
  for (const NamedTensor& p : set.named) {
    p.value.fill_(1.0);
    named += p.value.numel();
  }
  double total = 0;
  for (const at::Tensor& flat : set.flats()) total += flat.sum().item<double>();
  EXPECT_EQ(total, static_cast<double>(named));  // every parameter lies in a flat storage, once
  const ParameterSet tied = testing::make_parameters(testing::llama_config());
  EXPECT_EQ(tied.root.head_VH.data_ptr(), tied.root.embed_VH.data_ptr());
  EXPECT_EQ(tied.named.back().name, "model.norm.weight");
}

}  // namespace
}  // namespace gyre
