// Adapters beside small bases.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/decoder.h"
#include "tests/model_fixture.h"
#include "tests/train_fixture.h"
#include "train/passes.h"

namespace gyre::lora_test {

inline constexpr gyre_lora kAll{
    .rank = 3, .targets = GYRE_LORA_ALL & ~(GYRE_LORA_EMBED | GYRE_LORA_HEAD), .scale = 0.7};

// A decoder with the tensors of another, let go where the configuration is frozen.
inline std::unique_ptr<Decoder> copy_of(const Decoder& from, ModelConfig config) {
  auto decoder = std::make_unique<Decoder>(config);
  const auto& named = from.parameters().named;
  for (size_t i = 0; i < named.size(); ++i) {
    decoder->parameters().named[i].value.copy_(named[i].value);
    if (config.frozen) decoder->freeze(static_cast<int32_t>(i + 1));
  }
  if (!config.frozen) decoder->touch();
  return decoder;
}

inline std::unique_ptr<Decoder> frozen_copy(const Decoder& from) {
  ModelConfig config = from.config();
  config.frozen = true;
  return copy_of(from, config);
}

inline std::unique_ptr<Decoder> adapter_on(Decoder& base, gyre_lora lora, uint64_t seed, int32_t head = GYRE_HEAD_LM,
                                           bool zero_b = false) {
  ModelConfig config = base.config();
  config.lora = lora, config.head = head, config.frozen = false;
  auto decoder = std::make_unique<Decoder>(config, open_backend(config), &base);
  for (NamedTensor& p : decoder->parameters().named) {
    const bool b = p.name.find("lora_B") != std::string::npos || p.name.find("embedding_B") != std::string::npos;
    testing::fill(p.value, ++seed, b && zero_b ? 0.0f : 0.3f);
  }
  decoder->touch();
  return decoder;
}

inline std::map<std::string, at::Tensor> by_name(const ParameterSet& set) {
  std::map<std::string, at::Tensor> all;
  for (const NamedTensor& p : set.named) all[p.name] = p.value;
  return all;
}

// The name of a module's A, and of its weight.
struct Module {
  std::string a, b, weight;
};
inline std::vector<Module> modules_of(const ParameterSet& adapter) {
  std::vector<Module> all;
  for (const NamedTensor& p : adapter.named) {
    if (const size_t at = p.name.find(".lora_A.weight"); at != std::string::npos) {
      const std::string module = p.name.substr(0, at);
      all.push_back({p.name, module + ".lora_B.weight", module + ".weight"});
    }
  }
  return all;
}

struct Trained {
  std::unique_ptr<Gradients> gradients;
  std::vector<float> logprobs;
};

inline Trained train(Decoder& decoder, const train_test::OwnedBatch& batch, const gyre_dropout& dropout = {}) {
  Trained t{std::make_unique<Gradients>(decoder), std::vector<float>(batch.ids.size())};
  gyre_policy_loss loss = train_test::ppo_loss();
  loss.task = train_test::kNllTask;  // without kinks, at which rounding would count
  loss.entropy_coef = 0.05;
  auto* const into = reinterpret_cast<gyre_gradients*>(t.gradients.get());
  const auto terms = train_test::terms(into, into, into);
  gyre_policy_inputs inputs = train_test::inputs_of(batch);
  inputs.dropout = dropout;
  policy_backward(decoder, batch.view(), inputs, loss, terms, t.logprobs.data());
  return t;
}

}  // namespace gyre::lora_test
