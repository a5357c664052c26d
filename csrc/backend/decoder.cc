#include "backend/decoder.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/random.h"

namespace gyre {
namespace {

std::vector<BackendKind>& kinds() {
  static std::vector<BackendKind> all;
  return all;
}

float inverse_of(double temperature) {
  require(std::isfinite(temperature) && temperature > 0, "score: temperature is ", temperature,
          ", expected a number > 0");
  return static_cast<float>(1.0 / temperature);
}

}  // namespace

BackendKind::BackendKind(std::string names, int rank, bool (*accepts)(const ModelConfig&),
                         std::unique_ptr<Backend> (*make)(const ModelConfig&))
    : devices(std::move(names)), priority(rank), takes(accepts), open(make) {
  const auto lower = [&](const BackendKind& k) { return k.priority <= priority; };
  kinds().insert(std::ranges::find_if(kinds(), lower), *this);
}

std::unique_ptr<Backend> open_backend(const ModelConfig& config) {
  std::string known;
  for (const BackendKind& kind : kinds()) {
    if (kind.takes(config)) return kind.open(config);
    known += (known.empty() ? "" : ", ") + kind.devices;
  }
  throw std::invalid_argument(c10::str("model device: got \"", config.device(), "\", expected ", known));
}

uint64_t sketch_signs(uint64_t counter) { return split_mix(counter); }

std::vector<SketchRun> sketch_runs(const ParameterSet& set) {
  std::vector<SketchRun> runs;
  int64_t entry = 0;
  uint64_t counter = 0;
  for (const NamedTensor& parameter : set.named) {
    runs.push_back({parameter.value, entry, counter});
    entry += parameter.value.numel();
    counter += static_cast<uint64_t>((parameter.value.numel() + 63) / 64);
  }
  return runs;
}

// Copies from memory that is not pinned wait for what the device does before.
at::Tensor upload(const at::Tensor& host, at::Device device) {
  return device.is_cpu() ? host.clone() : host.pin_memory().to(device, /*non_blocking=*/true);
}

void require_gathered(const ParameterSet& parameters, bool prepared) {
  require(parameters.always_here() || prepared,
          "sampling from a model in shards: its weights must be gathered first, by all ranks together");
}

std::unique_ptr<Network> Network::adapted(const ModelConfig& config, const ParameterSet&) {
  throw std::invalid_argument(c10::str("adapter: the backend of device \"", config.device(), "\" has none"));
}

Decoder::Decoder(const ModelConfig& config) : Decoder(config, open_backend(config)) {}

Decoder::Decoder(const ModelConfig& config, std::shared_ptr<const Backend> backend, Decoder* base)
    : config_(config),
      base_(base == nullptr ? this : base),
      backend_(std::move(backend)),
      parameters_(backend_->make_set()),
      network_(base == nullptr ? backend_->make_network(config_, parameters_)
                               : base->network_->adapted(config_, parameters_)) {}

uint64_t Decoder::next_version() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

void Decoder::touch() {
  version_ = next_version();
  if (parameters_.residence) parameters_.residence->change();
  network_->touch();
  if (part_) part_->touch();
}

void Decoder::prepare() {
  sampling().prepare();
  parameters_.let_go();
  base_->parameters_.let_go();
}

void Decoder::share(std::shared_ptr<Peers> peers) {
  base_->require_parameters("sampling over several ranks together");
  require(config_.head == GYRE_HEAD_LM, "sampling over several ranks together: the model has a value head");
  const Slicing slicing(config_, peers->parts());
  part_backend_ = open_backend(slicing.config(peers->part()));
  largest_part_ = open_backend(slicing.largest());
  part_ = part_backend_->make_part(config_, base_->parameters_, adapter() == nullptr ? nullptr : &parameters_, peers);
  peers_ = std::move(peers);
}

std::unique_ptr<KvPages> Decoder::make_pages(int64_t num_pages) const {
  return (part_ ? *part_backend_ : *backend_).make_pages(num_pages);
}

int64_t Decoder::bytes_per_page() const { return (part_ ? *largest_part_ : *backend_).bytes_per_page(); }

void Decoder::end_passes() {
  for (const ParameterSet* set : {&std::as_const(parameters_), &base_->parameters_}) {
    if (set->residence) set->residence->rest();
  }
}

// In the order of a network's pass.
void Decoder::empty_pass(bool backward, std::span<ParameterSet* const> gradients) {
  const ReadParameters read{base_->parameters_, base_ == this ? nullptr : &parameters_};
  read.enter(kRoot);
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    read.enter(i);
    read.leave(i);
  }
  if (!backward) return;
  for (int64_t i = config_.num_layers - 1; i >= 0; --i) {
    read.enter(i);
    for (const ParameterSet* g : gradients) g->enter(i), g->leave(i);
    read.leave(i);
  }
  for (const ParameterSet* g : gradients) g->enter(kRoot), g->leave(kRoot);
}

void Decoder::freeze(int32_t filled) {
  require(config_.frozen, "model freeze: the configuration does not say that the model is frozen");
  require_parameters("model freeze");
  if (!parameters_.always_here() || part_) {  // spread over ranks: what is here at a time is little already
    if (filled == static_cast<int32_t>(parameters_.named.size())) touch();
    return;
  }
  const auto count = static_cast<size_t>(filled);
  const bool all = count == parameters_.named.size();
  // Those before the block of the first parameter that is not filled. Blocks differ in their number of parameters.
  constexpr std::string_view kBlock = "model.layers.";
  const std::string next = all ? "" : parameters_.named[count].name;
  const int64_t blocks = next.starts_with(kBlock) ? std::stoll(next.substr(kBlock.size())) : config_.num_layers;
  if (count > 0) network_->freeze(parameters_, static_cast<size_t>(blocks), all);
  if (all) frozen_ = true;
}

void Decoder::require_parameters(const char* what) const {
  require(!frozen_, what, ": the model was opened for sampling and scoring alone; its parameters are let go");
}

at::Tensor Decoder::forward(std::span<const int32_t> ids, std::span<const RowSpan> spans, KvPages& kv) {
  const Pass pass = inference_pass(static_cast<int64_t>(ids.size()), spans);
  work_ += forward_work(config_, pass) * own_share();
  return sampling().infer(ids, pass, kv);
}

at::Tensor Decoder::forward(const Packing& packing, std::unique_ptr<Activations>* keep, const gyre_dropout& dropout) {
  if (keep != nullptr) require_parameters("backward");
  Pass pass = training_pass(packing);
  if (dropout.probability != 0) {
    require(dropout.probability > 0 && dropout.probability < 1, "dropout: the probability is ", dropout.probability,
            ", expected 0 to 1 without 1");
    require(adapter() != nullptr, "dropout: the model has no adapter whose inputs could be dropped");
    require((config_.lora.targets & GYRE_LORA_EXPERTS) == 0, "dropout: adapters of experts have none");
    pass.dropout = drop_rows(packing, dropout);
  }
  work_ += forward_work(config_, pass);
  return network_->forward(packing.ids, std::move(pass), recompute_, keep);
}

void Decoder::backward(const std::vector<HiddenGradient>& all, const Activations& kept) {
  if (all.empty()) return;
  network_->backward(all, kept);
  work_ += backward_work(config_, kept.pass) * static_cast<double>(all.size());
  if (kept.recompute) work_ += forward_work(config_, kept.pass);
}

void Decoder::logits(const at::Tensor& hidden_RH, at::Tensor& logits_RV) {
  network_->logits(hidden_RH, network_->own_rows(hidden_RH.size(0)), logits_RV);
  work_ += head_work(config_, hidden_RH.size(0));
}

at::Tensor Decoder::row_logits(const at::Tensor& hidden_NH, std::span<const int64_t> rows,
                               std::span<const AdapterRows> adapters) {
  const auto n = static_cast<int64_t>(rows.size());
  const bool together = std::ranges::adjacent_find(rows, [](int64_t a, int64_t b) { return b != a + 1; }) == rows.end();
  const at::Tensor rows_R = at::from_blob(const_cast<int64_t*>(rows.data()), {n}, at::kLong);
  const at::Tensor hidden_RH = together && n > 0 ? hidden_NH.narrow(0, rows[0], n)
                                                 : hidden_NH.index_select(0, upload(rows_R, hidden_NH.device()));
  at::Tensor logits_RV = at::empty({n, head_width()}, hidden_RH.options());
  sampling().logits(hidden_RH, adapters, logits_RV);
  work_ += head_work(config_, n) * own_share();
  return logits_RV.to(at::kCPU);
}

Scores Decoder::score(const at::Tensor& hidden_NH, std::span<const Target> targets, double temperature,
                      bool want_entropy, int64_t k) {
  Scores scores = network_->score(hidden_NH, targets, inverse_of(temperature), want_entropy, k);
  work_ += head_work(config_, static_cast<int64_t>(targets.size()));
  return scores;
}

void Decoder::score_backward(const at::Tensor& hidden_NH, std::span<const Target> targets, double temperature,
                             const Objective& objective, const Support& support, const Dropout& dropout) {
  require_parameters("backward");
  const auto counted = [&](size_t first, const Scores& chunk) {
    std::vector<ScoreGradient> gradients = objective(first, chunk);
    const double products = 1 + (config_.lora.rank > 0 ? 1 : 2) * static_cast<double>(gradients.size());
    work_ += head_work(config_, static_cast<int64_t>(chunk.logprobs.size())) * products;
    return gradients;
  };
  network_->score_backward(hidden_NH, targets, inverse_of(temperature), support, dropout, counted);
}

std::vector<float> Decoder::values(const at::Tensor& hidden_NH, std::span<const Target> targets) {
  at::Tensor values_N1 = at::empty({hidden_NH.size(0), 1}, hidden_NH.options());
  logits(hidden_NH, values_N1);
  const at::Tensor host_N1 = values_N1.to(at::kCPU);
  const float* all = host_N1.const_data_ptr<float>();
  std::vector<float> values(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) values[i] = all[targets[i].row];
  return values;
}

at::Tensor Decoder::value_backward(const at::Tensor& hidden_NH, std::span<const Target> targets,
                                   std::span<const double> d_values, ParameterSet& gradients) {
  return network_->value_backward(hidden_NH, targets, d_values, gradients);
}

TokenOwners::TokenOwners(const Slicing& slicing, int part, std::span<const int32_t> ids)
    : counts(static_cast<size_t>(slicing.parts())), places(ids.size()) {
  std::vector<int> owner(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    while (ids[i] >= slicing[owner[i]].vocab.first + slicing[owner[i]].vocab.count) ++owner[i];
    places[i] = counts[static_cast<size_t>(owner[i])]++;
    if (owner[i] == part) own.push_back(static_cast<int32_t>(ids[i] - slicing[part].vocab.first));
  }
  std::vector<int64_t> before(counts.size());
  for (size_t p = 1; p < counts.size(); ++p) before[p] = before[p - 1] + counts[p - 1];
  for (size_t i = 0; i < ids.size(); ++i) places[i] += before[static_cast<size_t>(owner[i])];
}

}  // namespace gyre
