// The one decoder: a model on a backend. The same network serves prefill, decode and the training forward, so that a
// token's hidden state is the same bits whichever of them computed it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/peers.h"

namespace gyre {

class Decoder {
 public:
  explicit Decoder(const ModelConfig& config);
  // On a backend for this configuration. base: what an adapter lies beside, which must outlive it; `config` is then the
  // base's with the adapter's own and not frozen. Throws std::invalid_argument for settings that make no adapter.
  Decoder(const ModelConfig& config, std::shared_ptr<const Backend> backend, Decoder* base = nullptr);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  const ModelConfig& config() const { return config_; }
  const Backend& backend() const { return *backend_; }
  const std::shared_ptr<const Backend>& shared_backend() const { return backend_; }
  ParameterSet& parameters() { return parameters_; }
  const ParameterSet& parameters() const { return parameters_; }
  // Whose parameters the passes of both read; itself for a decoder without an adapter.
  const Decoder& base() const { return *base_; }
  // Null for a base.
  Adapter* adapter() const { return network_->adapter(); }
  // Weights changed: keys and values of older ones are invalid.
  void touch();
  // Another number for every decoder and after every change.
  uint64_t version() const { return version_; }
  // Of a frozen configuration: the first `filled` parameters, in the order of their names, have their values.
  void freeze(int32_t filled);
  // Throws std::invalid_argument when parameters have been let go.
  void require_parameters(const char* what) const;
  void release_packed() { sampling().release(); }
  // All ranks call it together (Inference::prepare).
  void prepare();
  // From here on inference is these processes' together, each with a part of the model; training is not touched by it.
  // Throws std::invalid_argument when the model cannot be divided so.
  void share(std::shared_ptr<Peers> peers);
  // Null for one process.
  Peers* peers() const { return peers_.get(); }
  // A pool for inference here; bytes_per_page is the same on all peers.
  std::unique_ptr<KvPages> make_pages(int64_t num_pages) const;
  int64_t bytes_per_page() const;

  // Whether parameters come from other ranks during a pass, so that all ranks make the same number of passes, of the
  // same kind and with the same buffers in the same order.
  bool in_step() const { return backend_->in_step(); }
  // The pass of a rank that has no rows: takes part in the other ranks' exchange of parameters, and for a backward pass
  // of gradients.
  void empty_pass(bool backward, std::span<ParameterSet* const> gradients);
  // To be called after a caller's last pass: frees what was gathered for them.
  void end_passes();

  // Gradient checkpointing (Chen et al. 2016).
  void set_recompute(bool on) { recompute_ = on; }

  // Inference (Inference::infer).
  at::Tensor forward(std::span<const int32_t> ids, std::span<const RowSpan> spans, KvPages& kv);
  // Training: whole packed sequences. `keep` (may be null) receives what backward needs. Throws std::invalid_argument
  // where something is to be dropped and there is no adapter that this can be done with.
  at::Tensor forward(const Packing& packing, std::unique_ptr<Activations>* keep, const gyre_dropout& dropout = {});
  void backward(const std::vector<HiddenGradient>& all, const Activations& kept);

  // logits_RV = hidden_RH · head^T for a few rows. A value head gives [R, 1], bias included.
  void logits(const at::Tensor& hidden_RH, at::Tensor& logits_RV);
  // Inference: the logits of some rows of hidden_NH, dense in this process's memory, [R, V]. Of peers the first has
  // them. `adapters`: of these rows, as in a pass.
  at::Tensor row_logits(const at::Tensor& hidden_NH, std::span<const int64_t> rows,
                        std::span<const AdapterRows> adapters = {});

  Scores score(const at::Tensor& hidden_NH, std::span<const Target> targets, double temperature, bool want_entropy,
               int64_t k = 0);
  // Scores the targets as score() does and goes backward from what the objective makes of them. dropout: that of the
  // forward pass.
  void score_backward(const at::Tensor& hidden_NH, std::span<const Target> targets, double temperature,
                      const Objective& objective, const Support& support = {}, const Dropout& dropout = {});

  // One value per target, of a value head.
  std::vector<float> values(const at::Tensor& hidden_NH, std::span<const Target> targets);
  // Adds the head's gradients of Σ d_values[i]·V_i and returns the gradient of the hidden states.
  at::Tensor value_backward(const at::Tensor& hidden_NH, std::span<const Target> targets,
                            std::span<const double> d_values, ParameterSet& gradients);

  // Everything computed with this decoder so far.
  const gyre_work& work() const { return work_; }

 private:
  static uint64_t next_version();
  int64_t head_width() const { return config_.head == GYRE_HEAD_VALUE ? 1 : config_.vocab_size; }
  Inference& sampling() const { return part_ ? *part_ : *network_; }
  // Of what all peers compute together.
  double own_share() const { return peers_ ? 1.0 / peers_->parts() : 1.0; }

  ModelConfig config_;
  const Decoder* const base_;
  std::shared_ptr<const Backend> backend_;
  ParameterSet parameters_;
  std::unique_ptr<Network> network_;
  std::shared_ptr<Peers> peers_;
  std::unique_ptr<Backend> part_backend_, largest_part_;  // of the part's configuration, and of the largest
  std::unique_ptr<Inference> part_;
  uint64_t version_ = next_version();
  bool recompute_ = false, frozen_ = false;
  gyre_work work_;
};

}  // namespace gyre
