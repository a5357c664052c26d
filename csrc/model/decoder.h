// The one decoder: the same block code serves prefill, decode and the training forward, so that a token's hidden state
// is the same bits whichever of them computed it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/activations.h"
#include "model/config.h"
#include "model/kv_pages.h"
#include "model/packed_weights.h"
#include "model/packing.h"
#include "model/parameters.h"
#include "model/pass.h"
#include "model/work.h"

namespace gyre {

class DeviceDecoder;

// The gradient of an objective with respect to the hidden states, and where those with respect to the parameters go.
struct HiddenGradient {
  at::Tensor d_hidden_NH;
  ParameterSet* gradients;
};

class Decoder {
 public:
  explicit Decoder(const ModelConfig& config);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder();

  const ModelConfig& config() const { return config_; }
  ParameterSet& parameters() { return parameters_; }
  const ParameterSet& parameters() const { return parameters_; }
  // Weights changed: packed copies are rebuilt on next use.
  void touch() {
    packed_.touch();
    activations_.reset();
  }
  uint64_t version() const { return packed_.version(); }
  // Frees the packed copies of the blocks, which inference keeps (another copy of most weights), until it comes again.
  void release_packed() { packed_.release_blocks(); }

  // Keep only the blocks' inputs in training forwards and recompute the rest during backward: about a tenth of the
  // memory for a third more arithmetic, and the same gradients bit for bit (Chen et al. 2016, gradient checkpointing).
  void set_recompute(bool on) { recompute_ = on; }

  // Inference: writes the rows' keys and values into `kv` and returns the final-norm hidden states of ALL rows, [N, H].
  at::Tensor forward(std::span<const int32_t> ids, std::span<const RowSpan> spans, KvPages& kv);

  // Training: whole packed sequences. The rows' hidden states equal those of the inference forward bit for bit.
  // `keep` (may be null) receives what backward needs.
  at::Tensor forward(const Packing& packing, std::unique_ptr<Activations>* keep);

  // Adds to each of `gradients` the parameter gradients of Σ <d_hidden_NH, hidden_NH>. Several, such as those of a
  // loss's components, go back through one block after the other together: what they have in common is computed once.
  void backward(const std::vector<HiddenGradient>& all, const Activations& kept);

  // The output matrix, [V, H] (value head: [1, H]), packed.
  PackedWeights::HeadColumns head_columns(int64_t first, int64_t count) { return packed_.head_columns(first, count); }
  // Head: logits_RV = hidden_RH · head^T for a few rows (row-invariant kernel). A value head gives [R, 1], bias
  // included.
  void logits(const at::Tensor& hidden_RH, at::Tensor& logits_RV);

  // The logits of some rows of hidden_NH, dense in this process's memory, [R, V].
  at::Tensor row_logits(const at::Tensor& hidden_NH, std::span<const int64_t> rows);

  // Everything computed with this decoder so far.
  const Work& work() const { return work_; }
  // For what is computed with its weights elsewhere.
  void count(const Work& work) { work_ += work; }

 private:
  ModelConfig config_;
  ParameterSet parameters_;
  bool recompute_ = false;
  Work work_;
  PackedWeights packed_;
  RopeTable rope_;
  // What the last training pass kept: the next one uses the same memory, until an update or inference frees it.
  std::shared_ptr<Buffer> activations_;
  std::unique_ptr<DeviceDecoder> device_;  // the whole decoder when it is not the CPU kernels
  int64_t head_width() const { return config_.head == HeadKind::kValue ? 1 : config_.vocab_size; }
  void check(std::span<const int32_t> ids) const;
  KvPages one_layer_pages(const Pass& pass) const;
  void embed(std::span<const int32_t> ids, at::Tensor& x_NH) const;
  void place(Activations& keep);
  at::Tensor run(std::span<const int32_t> ids, const Pass& pass, KvPages& kv, bool share_pages, Activations* keep);
};

}  // namespace gyre
