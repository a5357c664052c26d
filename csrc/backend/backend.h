// The seam between what a model is (model/) and what computes it. Everything above, that is training, engine and C ABI,
// speaks to these interfaces and never asks which implementation stands behind them:
//
//   Backend   operations on sets of parameters: gradients, inner products,
//             sketches, AdamW; makes those below
//   Network   one model's mathematics: forward, backward, logits, scores, values
//   Inference what of it the engine reads, whole or a part
//   KvPages   a pool of keys and values
//
// An implementation is a folder here (cpu/: Gyre's kernels; aten/: libtorch's tensors, on the CPU and on GPUs) that
// registers itself with BackendKind; docs/architecture-backend.md says how to add one. Arguments are checked and work
// is counted before they get here (decoder.h, train/). Tensors are f32 on the backend's device unless said otherwise.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/parameters.h"
#include "model/pass.h"

namespace gyre {

class Peers;  // peers.h

// Keys and values in pages of kPageTokens positions.
class KvPages {
 public:
  virtual ~KvPages() = default;
  virtual int64_t num_pages() const = 0;
  // Copies the contents of one page to another in every layer (copy-on-write).
  virtual void copy_page(int64_t from, int64_t to) = 0;
  // Passes in which each sequence has one row may be computed in round shapes, so that a device can record and repeat
  // them. Backends without such a device go on as they do.
  virtual void decode_in_fixed_shapes(bool on) {}
};

// What a backend keeps of a low-rank adapter for passes.
class Adapter {
 public:
  virtual ~Adapter() = default;
};

// What the backward pass needs of one training forward; each backend keeps what it wants.
struct Activations {
  virtual ~Activations() = default;
  Pass pass;
  bool recompute = false;              // blocks keep their inputs only
  std::vector<at::Tensor> routers_NE;  // logits of each layer; of one without experts they mean nothing
};

// Token `token` is predicted from hidden row `row`.
struct Target {
  int64_t row;
  int32_t token;
};

// k tokens of each target, whose distribution is looked at as one of k + 1 outcomes: these, and any other token.
struct Support {
  int64_t k = 0;  // 0: none
  std::span<const int32_t> ids{};
};

// One entry per target: log-prob and entropy under softmax(logits / T), the logsumexp of logits / T, and Σ p·z under
// it; and where there is a support, its k tokens and the log-probs of its k + 1 outcomes.
struct Scores {
  std::vector<float> logprobs, entropies, logsumexp, mean_logit;
  std::vector<int32_t> support;
  std::vector<float> outcomes;
};

// Derivatives of an objective with respect to the log-probs and entropies of a chunk's targets (an empty span: zeros),
// and where its gradients are added: those of the hidden states to d_hidden_NH, those of the head to gradients. slopes
// are of a function of the support's outcomes: it changes by Σ slope · p · dz over all tokens, p and z being a token's
// probability and its logit / T.
struct ScoreGradient {
  std::span<const float> d_logprob, d_entropy;
  at::Tensor d_hidden_NH;
  ParameterSet* gradients;
  std::span<const float> slopes{};
};

// Called with the scores, entropies among them, of targets first, first + 1, ...: once per chunk, in order. Returns any
// number of gradients, which must stay valid until the next call.
using Objective = std::function<std::vector<ScoreGradient>(size_t first, const Scores& chunk)>;

// The gradient of an objective with respect to the hidden states, and where those with respect to the parameters go.
struct HiddenGradient {
  at::Tensor d_hidden_NH;
  ParameterSet* gradients;
  std::vector<at::Tensor> d_routers_NE{};  // of each layer's router logits besides; empty: nothing
};

// A model as the engine reads it.
class Inference {
 public:
  virtual ~Inference() = default;

  // The parameters changed: whatever was derived from them is stale.
  virtual void touch() = 0;
  // Frees what only inference keeps, until it comes again.
  virtual void release() = 0;
  // Makes now whatever infer() and logits() need of parameters that are not here all the time. Others make it when it
  // is needed.
  virtual void prepare() {}
  // Writes the rows' keys and values into `kv` and returns the final-norm hidden states of all rows, [N, H].
  virtual at::Tensor infer(std::span<const int32_t> ids, const Pass& pass, KvPages& kv) = 0;
  // logits_RV = hidden_RH · head^T; a value head gives [R, 1], bias included. Rows may be part of a wider tensor. Of
  // several processes that infer together the first receives them. `adapters`: as in a pass.
  virtual void logits(const at::Tensor& hidden_RH, std::span<const AdapterRows> adapters, at::Tensor& logits_RV) = 0;
};

// A copy on the device of a tensor of the host, which may go or change as soon as this returns; the host does not wait
// for the device.
at::Tensor upload(const at::Tensor& host, at::Device device);

// Throws std::invalid_argument when an Inference has not been prepared whose parameters are not here all the time.
void require_gathered(const ParameterSet& parameters, bool prepared);

class Network : public Inference {
 public:
  // A network on this one's parameters with an adapter beside them, which is what its gradients are of. This one and
  // `parameters`, the adapter's, must outlive it. Throws std::invalid_argument where the backend has no adapters.
  virtual std::unique_ptr<Network> adapted(const ModelConfig& config, const ParameterSet& parameters);
  // What adapted() was given, as passes name it; null for a base.
  virtual Adapter* adapter() { return nullptr; }
  // All rows through that, if there is one.
  std::vector<AdapterRows> own_rows(int64_t rows) {
    if (adapter() == nullptr) return {};
    return {{adapter(), 0, rows}};
  }

  // Of a frozen configuration: `parameters`, the network's own, are filled up to the first `blocks` blocks, the
  // embedding before them, and all of them when `all`. What nothing but packing reads may be let go.
  virtual void freeze(ParameterSet& parameters, size_t blocks, bool all) {
    if (all) touch();
  }

  // Training: whole packed sequences through this network's own adapter, whose keys and values need no pool. The hidden
  // states are those of infer(), bit for bit where the backend promises it. `keep` (may be null) receives what
  // backward() needs.
  virtual at::Tensor forward(std::span<const int32_t> ids, Pass pass, bool recompute,
                             std::unique_ptr<Activations>* keep) = 0;
  // Adds to each of `all` the parameter gradients of Σ <d_hidden_NH, hidden_NH>. Several go back through one block
  // after the other together: what they have in common is computed once.
  virtual void backward(const std::vector<HiddenGradient>& all, const Activations& kept) = 0;

  // Log-probs and entropies (zeros unless wanted) of the targets, in chunks: no [tokens, V] tensor of a whole
  // micro-batch is ever there. k > 0: and the support of their k likeliest tokens, the first the likeliest.
  virtual Scores score(const at::Tensor& hidden_NH, std::span<const Target> targets, float inverse_temperature,
                       bool want_entropy, int64_t k) = 0;
  // The same scores chunk by chunk, on a given support, and backward from what the objective makes of them. The logits
  // are computed once, whatever the number of gradients. dropout: of the pass that gave the hidden states.
  virtual void score_backward(const at::Tensor& hidden_NH, std::span<const Target> targets, float inverse_temperature,
                              const Support& support, const Dropout& dropout, const Objective& objective) = 0;
  // Adds the value head's gradients of Σ d_values[i]·V(targets[i].row) and returns that of the hidden states.
  virtual at::Tensor value_backward(const at::Tensor& hidden_NH, std::span<const Target> targets,
                                    std::span<const double> d_values, ParameterSet& gradients) = 0;
};

// The constants of one AdamW step, in the order of operations of torch.optim.AdamW.
struct AdamWCoefficients {
  float scale;         // gradient clipping
  float one_minus_b1;  // first moment
  float b2, one_minus_b2;
  float correction;  // sqrt(1 - beta2^t)
  float eps;
  float keep;       // 1 - lr · weight decay
  float step_size;  // lr / (1 - beta1^t)
};

// Entries of a parameter as a sketch sees them: where the first stands among all entries, and its signs' counter.
struct SketchRun {
  at::Tensor values;  // contiguous
  int64_t entry;
  uint64_t counter;
};
// All entries of a set: a run for every parameter.
std::vector<SketchRun> sketch_runs(const ParameterSet& set);

// Without state: several may stand for one configuration. Sets in a call were made by backends of equal configurations.
class Backend {
 public:
  virtual ~Backend() = default;

  // Where it computes and in which type: "cpu, float32".
  virtual std::string describe() const = 0;

  // Neither the configuration nor the parameters may go before the network does.
  virtual std::unique_ptr<Network> make_network(const ModelConfig& config, const ParameterSet& parameters) const = 0;
  // What infers together with its peers, each having a part of the parameters' heads, columns and rows. This backend's
  // configuration is that of the part, `config` and the parameters are whole. adapter: its parameters, which all rows
  // pass through, null for none. Throws std::invalid_argument where a part has no adapters.
  virtual std::unique_ptr<Inference> make_part(const ModelConfig& config, const ParameterSet& parameters,
                                               const ParameterSet* adapter, std::shared_ptr<Peers> peers) const = 0;
  virtual std::unique_ptr<KvPages> make_pages(int64_t num_pages) const = 0;
  virtual int64_t bytes_per_page() const = 0;

  // Zeros where the parameters are.
  virtual at::Tensor make_flat(int64_t count) const = 0;
  // Zero-filled. Gradients and an optimizer's moments may be kept in another way than parameters.
  virtual ParameterSet make_set() const = 0;
  virtual ParameterSet make_gradients() const { return make_set(); }
  virtual ParameterSet make_moments() const { return make_set(); }
  // Gradients of this process alone, where make_gradients() gives such as join those of others.
  virtual ParameterSet make_own_gradients() const { return make_gradients(); }
  // Whether parameters come from other processes in the course of a pass, so that these must make the same passes; and
  // how many that are when this one needs `own` of them.
  virtual bool in_step() const { return false; }
  virtual int64_t passes(int64_t own) const { return own; }
  virtual void zero(ParameterSet& set) const = 0;
  virtual void add(ParameterSet& to, const ParameterSet& from, float scale) const = 0;
  // Entries of a parameter that products() sums by themselves, from its first on, before it adds these sums in order;
  // 0: it does otherwise.
  virtual int64_t product_block() const { return 0; }
  // Inner products in f64 of all pairs a <= b, row by row of the upper triangle, for every named parameter i, each set
  // read once: out[pair * parameters + i].
  virtual void products(std::span<const ParameterSet* const> sets, std::span<double> out) const = 0;
  // Writes a count sketch (Charikar, Chen and Farach-Colton 2002) of m = out.size() entries: entry i of the parameters
  // laid one after another is added with the sign of sketch_signs() into out[i mod m].
  virtual void sketch(const ParameterSet& set, std::span<float> out) const { sketch_runs_into(sketch_runs(set), out); }
  // The part of it that some runs make.
  virtual void sketch_runs_into(std::span<const SketchRun> runs, std::span<float> out) const = 0;
  virtual void adamw(ParameterSet& parameters, ParameterSet& first, ParameterSet& second, const ParameterSet& gradients,
                     const AdamWCoefficients& c) const = 0;
};

// The signs of 64 entries of a sketch, the lowest bit first, a set one meaning minus: entries 64 k .. 64 k + 63 of a
// parameter have counter c + k, where c is the number of such runs in the parameters before it.
uint64_t sketch_signs(uint64_t counter);

// A kind of backend. A static object of this type in the implementation's folder makes it known.
struct BackendKind {
  std::string devices;  // what it answers to, for messages: "cuda, cuda:N"
  int priority;         // where several take a configuration, the highest is chosen
  bool (*takes)(const ModelConfig& config);
  std::unique_ptr<Backend> (*open)(const ModelConfig& config);  // throws std::invalid_argument saying what is missing

  BackendKind(std::string devices, int priority, bool (*takes)(const ModelConfig&),
              std::unique_ptr<Backend> (*open)(const ModelConfig&));
};

// The backend of a configuration's device and type. Throws std::invalid_argument, with what to do about it, for a
// configuration that no backend takes.
std::unique_ptr<Backend> open_backend(const ModelConfig& config);

}  // namespace gyre
