// The decoder on Gyre's own kernels: every row of every result is the same bits in any batch, chunking or number of
// threads, so the sampler's log-probs are the trainer's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/block.h"
#include "backend/cpu/lora.h"
#include "kernels/buffer.h"
#include "kernels/rowwise.h"

namespace gyre {

// In the layout that the attention kernel reads (kernels/attention.h) and the configuration's precision, [layer][page].
// Not in huge pages: a rollout would wait longer for the system to clear those than attention gains by them.
class CpuPages : public KvPages {
 public:
  CpuPages(const ModelConfig& config, int64_t layers, int64_t num_pages);
  int64_t num_pages() const override { return num_pages_; }
  void copy_page(int64_t from, int64_t to) override;
  PageMemory layer(int64_t layer);

 private:
  int64_t num_pages_, page_bytes_, layers_;
  Precision precision_;
  at::Tensor keys_, values_;
};

// Copies of a model's matrices in the layout of the multiply kernel. The engine reads all of them for a few rows at a
// time and keeps them; a training pass has enough rows to pack one block after the other into the same memory.
class PackedWeights {
 public:
  // The parameters must outlive this object. int8: freeze() quantises the blocks.
  PackedWeights(const ParameterSet& parameters, Precision precision, bool int8)
      : parameters_(parameters), precision_(precision), int8_(int8) {}

  // The parameters changed.
  void touch() { ++version_; }
  // Packs all blocks unless that has been done for these parameters; calls also(i) while block i is here.
  void keep_blocks(const std::function<void(size_t)>& also = [](size_t) {});
  // Frees what keep_blocks() made, and the head's copy, unless nothing else holds the weights.
  void release_blocks();
  // Packs blocks up to `blocks` and the embedding for good and lets the pages of their parameters go.
  void freeze(size_t blocks, bool all);
  bool frozen() const { return frozen_; }
  // The embedding's copy, null while its parameters are there.
  const PackedMatrix* embedding() const;
  // Valid until the next call when the blocks are not kept.
  const PackedBlock& block(size_t i);
  const PackedMatrix& head();
  // Columns first .. first+count-1 of the head are columns `at` and on of `matrix`: of head() while the blocks are
  // kept, otherwise packed for this call and valid until the next.
  struct HeadColumns {
    const PackedMatrix& matrix;
    int64_t at;
  };
  HeadColumns head_columns(int64_t first, int64_t count);

 private:
  const at::Tensor& head_weight() const;
  Precision head_precision() const;

  const ParameterSet& parameters_;
  const Precision precision_;
  const bool int8_;
  uint64_t version_ = 1, blocks_version_ = 0, head_version_ = 0;
  std::vector<PackedBlock> blocks_;
  PackedBlock one_;
  PackedMatrix head_, head_part_, embedding_;
  size_t frozen_blocks_ = 0;
  bool frozen_ = false;
};

// What the first block takes in place of embeddings, and what becomes of its input's gradient.
void scale_embedding(const ModelConfig& config, at::Tensor& x_NH);

// What becomes of a head's products.
struct LogitShape {
  explicit LogitShape(const ModelConfig& config);
  void apply(float* logits, int64_t rows, int64_t columns, int64_t ld) const {
    bend_logits(logits, rows, columns, ld, by, cap);
  }
  bool any;  // otherwise nothing
  float by, cap;
};

struct CpuActivations : Activations {
  std::vector<int32_t> ids;              // of the rows
  std::shared_ptr<Buffer> memory;        // of the blocks' tensors
  std::vector<BlockActivations> blocks;  // with recomputation: only input_NH of each is defined
  at::Tensor last_NH,
      rstd_N;  // output of the last block; the final norm's statistics
};

// Hidden rows of some targets, dense, and as an adapter beside the head takes them.
struct HeadRows {
  // Something is dropped of the adapter's where `dropout` (may be null) says so.
  HeadRows(const at::Tensor& hidden_NH, std::span<const Target> targets, const Dropout* dropout = nullptr);
  // Adds d_RH, the gradient of the adapter's rows, to dx, that of the others; d_RH is used up.
  void add_gradient(at::Tensor& d_RH, float* dx) const;

  at::Tensor rows_RH, lora_RH;  // one tensor where nothing is dropped
  DropKey key{};
  std::vector<uint64_t> histories;
  float scale = 1;
};

// What networks on the same parameters share: a base, and those with an adapter beside it.
struct CpuBase {
  CpuBase(const ModelConfig& config, const ParameterSet& of)
      : parameters(of), packed(of, config.precision(), config.int8), ropes(config) {}
  // Copies for inference of parameters that are not here all the time. All ranks call it together.
  void prepare();
  void release();
  // As inference reads them.
  const ParameterSet& sampled() const { return beside_packed ? *beside_packed : parameters; }

  const ParameterSet& parameters;
  PackedWeights packed;
  // Of parameters that are not here all the time: what inference needs of them besides packed matrices.
  std::unique_ptr<ParameterSet> beside_packed;
  Ropes ropes;
};

class CpuNetwork : public Network {
 public:
  CpuNetwork(const ModelConfig& config, const ParameterSet& parameters);
  // With an adapter, whose parameters are given.
  CpuNetwork(const ModelConfig& config, const ParameterSet& adapter, std::shared_ptr<CpuBase> base);

  void touch() override;
  void release() override;
  void prepare() override;
  std::unique_ptr<Network> adapted(const ModelConfig& config, const ParameterSet& parameters) override {
    return std::make_unique<CpuNetwork>(config, parameters, base_);
  }
  Adapter* adapter() override { return adapter_.get(); }
  void freeze(ParameterSet&, size_t blocks, bool all) override { packed_.freeze(blocks, all); }
  at::Tensor infer(std::span<const int32_t> ids, const Pass& pass, KvPages& kv) override;
  at::Tensor forward(std::span<const int32_t> ids, Pass pass, bool recompute,
                     std::unique_ptr<Activations>* keep) override;
  void backward(const std::vector<HiddenGradient>& all, const Activations& kept) override;
  void logits(const at::Tensor& hidden_RH, std::span<const AdapterRows> adapters, at::Tensor& logits_RV) override;
  Scores score(const at::Tensor& hidden_NH, std::span<const Target> targets, float inverse_temperature,
               bool want_entropy, int64_t k) override;
  void score_backward(const at::Tensor& hidden_NH, std::span<const Target> targets, float inverse_temperature,
                      const Support& support, const Dropout& dropout, const Objective& objective) override;
  at::Tensor value_backward(const at::Tensor& hidden_NH, std::span<const Target> targets,
                            std::span<const double> d_values, ParameterSet& gradients) override;

 private:
  void place(CpuActivations& keep);
  at::Tensor run(const ParameterSet& weights, std::span<const int32_t> ids, const Pass& pass, CpuPages& kv,
                 bool share_pages, CpuActivations* keep);
  // What a block has of the adapters of a pass.
  static std::vector<LoraRows> lora_rows(const Pass& pass, size_t block);
  // The rows of tokens as the first block takes them.
  void embed(const ParameterSet& weights, std::span<const int32_t> ids, const Pass& pass, at::Tensor& x_NH);
  // Of the value head: the adapter's where there is one.
  const RootTensors& value_root();
  void logits_block(const HeadRows& rows, int64_t first, int64_t columns, float* logits);
  Scores keep_logits(const HeadRows& rows, std::span<const Target> targets, float inverse, Buffer& logits);
  void chunk_backward(const HeadRows& rows, std::span<const Target> targets, float inverse, const Scores& scores,
                      const float* kept, const ScoreGradient& gradient);

  const ModelConfig& config_;
  const std::shared_ptr<CpuBase> base_;
  const ParameterSet& parameters_;  // the base's
  const ReadParameters read_;
  PackedWeights& packed_;  // the base's
  const std::unique_ptr<CpuAdapter> adapter_;
  // What the last training pass kept: the next one uses the same memory, until an update or inference frees it.
  std::shared_ptr<Buffer> activations_;
};

// A part of the decoder, for sampling together with its peers. Every output is the same chain of additions as in one
// process, on whichever peer, so log-probs are the trainer's bit for bit.
class CpuPart : public Inference {
 public:
  // Of the whole model, and the adapter that all rows pass through (may be null); they must outlive this object.
  CpuPart(const ModelConfig& config, const ParameterSet& parameters, const ParameterSet* adapter,
          std::shared_ptr<Peers> peers);

  void touch() override;
  void release() override;
  void prepare() override;
  at::Tensor infer(std::span<const int32_t> ids, const Pass& pass, KvPages& kv) override;
  void logits(const at::Tensor& hidden_RH, std::span<const AdapterRows> adapters, at::Tensor& logits_RV) override;

 private:
  struct PartBlock {
    PackedBlock packed;
    BlockTensors beside;
  };

  at::Tensor embed(std::span<const int32_t> ids) const;
  void prepare_adapter();

  const ParameterSet& parameters_;
  const ParameterSet* const adapter_;
  const TensorParallel parallel_;
  const ModelConfig config_;  // of the part
  Ropes ropes_;
  std::vector<PartBlock> blocks_;  // none: not made
  std::vector<PackedLoraBlock> lora_;
  std::unique_ptr<PackedLoraRoot> lora_root_;  // null: not made
  PackedMatrix embedding_, head_;              // some rows of the vocabulary; a tied embedding is the head
  at::Tensor final_norm_H_;
};

}  // namespace gyre
