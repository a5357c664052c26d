// A third backend: counts what is asked of it and leaves the work to the kernels. That it trains and samples shows that
// nothing above the seam knows who computes. Device "toy".
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "backend/backend.h"

namespace gyre::testing {

inline std::map<std::string, int64_t>& toy_calls() {
  static std::map<std::string, int64_t> calls;
  return calls;
}

class ToyNetwork : public Network {
 public:
  explicit ToyNetwork(std::unique_ptr<Network> inner) : inner_(std::move(inner)) {}
  void touch() override { inner("touch").touch(); }
  void release() override { inner("release").release(); }
  at::Tensor infer(std::span<const int32_t> ids, const Pass& pass, KvPages& kv) override {
    return inner("infer").infer(ids, pass, kv);
  }
  at::Tensor forward(std::span<const int32_t> ids, Pass pass, bool recompute,
                     std::unique_ptr<Activations>* keep) override {
    return inner("forward").forward(ids, std::move(pass), recompute, keep);
  }
  void backward(const std::vector<HiddenGradient>& all, const Activations& kept) override {
    inner("backward").backward(all, kept);
  }
  void logits(const at::Tensor& hidden_RH, std::span<const AdapterRows> adapters, at::Tensor& logits_RV) override {
    inner("logits").logits(hidden_RH, adapters, logits_RV);
  }
  Scores score(const at::Tensor& hidden_NH, std::span<const Target> targets, float inverse_temperature,
               bool want_entropy, int64_t k) override {
    return inner("score").score(hidden_NH, targets, inverse_temperature, want_entropy, k);
  }
  void score_backward(const at::Tensor& hidden_NH, std::span<const Target> targets, float inverse_temperature,
                      const Support& support, const Dropout& dropout, const Objective& objective) override {
    inner("score_backward").score_backward(hidden_NH, targets, inverse_temperature, support, dropout, objective);
  }
  at::Tensor value_backward(const at::Tensor& hidden_NH, std::span<const Target> targets,
                            std::span<const double> d_values, ParameterSet& gradients) override {
    return inner("value_backward").value_backward(hidden_NH, targets, d_values, gradients);
  }

 private:
  Network& inner(const char* call) {
    ++toy_calls()[call];
    return *inner_;
  }
  std::unique_ptr<Network> inner_;
};

class ToyBackend : public Backend {
 public:
  explicit ToyBackend(ModelConfig config) {
    config.set_device("cpu");
    inner_ = open_backend(config);
  }
  std::string describe() const override { return "toy over " + inner("describe").describe(); }
  std::unique_ptr<Network> make_network(const ModelConfig& config, const ParameterSet& parameters) const override {
    return std::make_unique<ToyNetwork>(inner("make_network").make_network(config, parameters));
  }
  std::unique_ptr<Inference> make_part(const ModelConfig& config, const ParameterSet& parameters,
                                       const ParameterSet* adapter, std::shared_ptr<Peers> peers) const override {
    return inner("make_part").make_part(config, parameters, adapter, std::move(peers));
  }
  std::unique_ptr<KvPages> make_pages(int64_t n) const override { return inner("make_pages").make_pages(n); }
  int64_t bytes_per_page() const override { return inner("bytes_per_page").bytes_per_page(); }
  at::Tensor make_flat(int64_t count) const override { return inner("make_flat").make_flat(count); }
  ParameterSet make_set() const override { return inner("make_set").make_set(); }
  void zero(ParameterSet& set) const override { inner("zero").zero(set); }
  void add(ParameterSet& to, const ParameterSet& from, float scale) const override {
    inner("add").add(to, from, scale);
  }
  void products(std::span<const ParameterSet* const> sets, std::span<double> out) const override {
    inner("products").products(sets, out);
  }
  void sketch(const ParameterSet& set, std::span<float> out) const override { inner("sketch").sketch(set, out); }
  void sketch_runs_into(std::span<const SketchRun> runs, std::span<float> out) const override {
    inner("sketch_runs_into").sketch_runs_into(runs, out);
  }
  void adamw(ParameterSet& parameters, ParameterSet& first, ParameterSet& second, const ParameterSet& gradients,
             const AdamWCoefficients& c) const override {
    inner("adamw").adamw(parameters, first, second, gradients, c);
  }

 private:
  const Backend& inner(const char* call) const {
    ++toy_calls()[call];
    return *inner_;
  }
  std::unique_ptr<Backend> inner_;
};

inline const BackendKind kToy(
    "toy", 0, [](const ModelConfig& c) { return c.device() == "toy"; },
    [](const ModelConfig& c) -> std::unique_ptr<Backend> { return std::make_unique<ToyBackend>(c); });

}  // namespace gyre::testing
