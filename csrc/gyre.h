// The C ABI of Gyre's trainer, and of its engine in gyre_engine.h: the only headers that cgo sees. Their one caller is
// the Go package torch, whose documentation says what functions, fields and constants mean; here is what the two sides
// agree on beyond that.
//
// Conventions
//  * Every function that can fail returns a gyre_status; when it is not GYRE_OK, gyre_message() says why. No C++
//    exception crosses this boundary.
//  * A handle is owned by whoever created it and released with its _free function, which accepts NULL. Engines and
//    optimizers keep their model, models their group; gradients go before their model.
//  * What is absent is zero. Where a comment says "0:", it says what the number 0, NULL or an empty string stands for:
//    nothing, or what is usual. No other value has a second meaning. Where no comment says it, 0 is a number like any
//    other, and a pointer is not NULL.
//  * Arrays are dense, caller-owned, as long as the caller says, and only read or written during the call.
//  * Structs of numbers are C++'s own and, field by field, Go's (torch/types.go): neither side converts them. A test
//    (torch/mirror_test.go) names each field that one side lacks, of structs that are converted too.
//  * Rows of a batch are packed: sequence s owns positions offsets[s] .. offsets[s+1]-1. Everything that has one value
//    per token is TOKEN-ALIGNED: entry t speaks of token ids[t] given the tokens before it in its sequence, so entry
//    offsets[s] (a first token) is never defined and must have mask 0.
#ifndef GYRE_H
#define GYRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define GYRE_DEFAULT(value) = value  // in C every field has to be set
#define GYRE_COMPARES(type) bool operator==(const type&) const = default;
#else
#define GYRE_DEFAULT(value)
#define GYRE_COMPARES(type)
#endif
#pragma GCC visibility push(default)  // the library hides everything else

#define GYRE_ABI_VERSION 20
#define GYRE_MESSAGE_SIZE 1024
#define GYRE_NAME_SIZE 128
#define GYRE_MAX_DIMS 8
#define GYRE_DEVICE_SIZE 16
#define GYRE_MAX_LAYERS 512  // that may differ from each other
#define GYRE_MAX_PAIRS 128   // of components of a head whose rotations are scaled one by one

typedef enum {
  GYRE_OK = 0,
  GYRE_INVALID_ARGUMENT = 1,
  GYRE_OUT_OF_MEMORY = 2,
  GYRE_NOT_FOUND = 3,
  GYRE_NOT_FINITE = 4,
  GYRE_UNSUPPORTED = 5,
  GYRE_INTERNAL = 6,
  GYRE_DISCONNECTED = 7  // a process group cannot go on: a rank ended, was too slow, or was told to stop
} gyre_status;

// Why the last function that failed on this thread did, at most GYRE_MESSAGE_SIZE - 1 bytes; until the next failure.
const char* gyre_message(void);

typedef enum { GYRE_F32 = 0, GYRE_F16 = 1, GYRE_BF16 = 2, GYRE_F64 = 3 } gyre_dtype;

typedef void* gyre_tensor;  // an at::Tensor* on the heap
typedef struct gyre_model gyre_model;
typedef struct gyre_gradients gyre_gradients;
typedef struct gyre_optimizer gyre_optimizer;
typedef struct gyre_group gyre_group;
typedef struct gyre_store gyre_store;

// ---- process ---------------------------------------------------------------------------------------------------

int32_t gyre_abi_version(void);
// "torch 2.13.0, f32 vector width 16, …": one line for doctor and run.json.
void gyre_build_info(char* out, size_t size);
gyre_status gyre_set_threads(int32_t threads);
int32_t gyre_threads(void);
int64_t gyre_peak_rss(void);  // the peak resident set of this process in bytes
// "NVIDIA H200 (139 GiB), …", or "none: " and what to do about it.
void gyre_cuda_info(char* out, size_t size);
// Measured on this machine: read bandwidth in bytes/s and, in the type of a CPU model's arithmetic, the GEMM rate in
// FLOP/s of Gyre's own linear kernel.
gyre_status gyre_measure(int32_t compute, double* bandwidth, double* gemm_flops);
// Measured on this machine: numbers per second that go through SwiGLU's kernel, an exponential each.
gyre_status gyre_measure_rows(double* numbers);

// A variant of the kernels for one instruction set.
typedef struct gyre_isa {
  char name[32];
  bool runs_here, in_use;
  bool bf16_is_faster;           // products of bf16 numbers take clearly less time than those of f32 ones
  double f32_flops, bf16_flops;  // FLOP/s of matrix products from the caches; 0: not measured, or it does not run here
} gyre_isa;
// Variant i, in ascending order of preference. Past the last: one without a name.
gyre_status gyre_describe_isa(int32_t i, bool measure, gyre_isa* out);

// ---- tensors ---------------------------------------------------------------------------------------------------

typedef struct gyre_tensor_info_t {
  int32_t ndim;
  int64_t shape[GYRE_MAX_DIMS], numel;
} gyre_tensor_info_t;

void gyre_tensor_free(gyre_tensor tensor);
gyre_status gyre_tensor_info(gyre_tensor tensor, gyre_tensor_info_t* out);
// The data is dense and row-major.
gyre_status gyre_tensor_copy_in(gyre_tensor tensor, gyre_dtype dtype, int32_t ndim, const int64_t* shape,
                                const void* data, size_t nbytes);
gyre_status gyre_tensor_copy_out(gyre_tensor tensor, gyre_dtype dtype, void* data, size_t nbytes);

// ---- model -----------------------------------------------------------------------------------------------------

typedef enum { GYRE_SILU = 0, GYRE_GELU_TANH = 1 } gyre_activation;
// What a layer is like. Bits: it sees the last `window` positions, its own among them; its heads do not rotate, or by
// local_rope; an MLP of intermediate_size is in the place of experts.
typedef enum { GYRE_LAYER_WINDOW = 1, GYRE_LAYER_NOPE = 2, GYRE_LAYER_LOCAL = 4, GYRE_LAYER_DENSE = 8 } gyre_layer;
typedef enum { GYRE_HEAD_LM = 0, GYRE_HEAD_VALUE = 1 } gyre_head;  // value: one scalar per position (the critic)

// Type of a model's arithmetic; parameters and gradients are f32 in any case. AUTO: bfloat16 on a GPU, float32
// elsewhere. On the CPU bfloat16 is the type of the factors of matrix products, keys and values among them; sums and
// all else are f32 (csrc/kernels/precision.h).
typedef enum { GYRE_COMPUTE_AUTO = 0, GYRE_COMPUTE_F32 = 1, GYRE_COMPUTE_BF16 = 2 } gyre_compute;

// The modules that a low-rank adapter (LoRA, Hu et al. 2022) may stand beside, by their Hugging Face names. Bits.
typedef enum {
  GYRE_LORA_Q = 1,
  GYRE_LORA_K = 2,
  GYRE_LORA_V = 4,
  GYRE_LORA_O = 8,
  GYRE_LORA_GATE = 16,
  GYRE_LORA_UP = 32,
  GYRE_LORA_DOWN = 64,
  GYRE_LORA_EMBED = 128,
  GYRE_LORA_HEAD = 256,
  GYRE_LORA_ALL = 511,  // of a model without experts
  // Of a mixture, all experts of a layer in one: A [experts · rank, in], B [out, rank · experts], its columns the first
  // one's for every expert, then the second one's, …
  GYRE_LORA_EXPERTS_GATE_UP = 512,
  GYRE_LORA_EXPERTS_DOWN = 1024,
  GYRE_LORA_EXPERTS = 1536
} gyre_lora_target;

// y += scale · (x Aᵀ) Bᵀ beside each target, A [rank, in] and B [out, rank] in f32, products in the model's type.
typedef struct gyre_lora {
  int32_t rank GYRE_DEFAULT(0);  // 0: no adapter
  uint32_t targets GYRE_DEFAULT(0);
  double scale GYRE_DEFAULT(0);
  GYRE_COMPARES(gyre_lora)
} gyre_lora;

// How a rotary embedding is scaled: the frequencies of its theta are divided by divisors, cosines and sines are
// multiplied by magnitude. 0: 1.
typedef struct gyre_rope {
  double magnitude, divisors[GYRE_MAX_PAIRS];
  GYRE_COMPARES(gyre_rope)
} gyre_rope;

// What a decoder is made of beyond its sizes; zeros are a Llama's. A family is a row of such values.
typedef struct gyre_shape {
  // Norms: none before attention and MLP; others on what these add to the residual stream; weights that are a scale
  // less 1; of queries and keys over all heads together.
  bool no_input_norms, output_norms, unit_norms, wide_qk_norm;
  bool rope_interleaved;  // a pair is two neighbours, not one of each half
  int32_t activation;     // gyre_activation, of the gate
  int32_t rotary_dims;    // leading components of a head that rotate; 0: all
  double query_scale;     // of scores; 0: 1 / sqrt(head_dim)
  double score_cap;       // scores become cap · tanh(score / cap); 0: they do not
  double logit_cap;       // and logits
  double logit_scale;     // factors of logits, embeddings and what is added to the residual stream; 0: 1
  double embedding_scale, residual_scale;
  int64_t window;
  // A mixture in place of a layer's MLP: a router in float32 chooses some of the experts for each row, whose outputs
  // are weighed by the router's softmax over all experts, or normalised: over the chosen. 0: there are none.
  int64_t experts, chosen_experts, expert_size;
  int64_t shared_size;  // width of an MLP beside them; 0: there is none
  bool normalized_routing;
  uint8_t layers[GYRE_MAX_LAYERS];  // gyre_layer of each
  double local_theta;               // of layers with GYRE_LAYER_LOCAL
  gyre_rope rope, local_rope;       // of rope_theta, of local_theta
  GYRE_COMPARES(gyre_shape)
} gyre_shape;

typedef struct gyre_model_config {
  int32_t head;
  int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim, max_positions;
  double rms_norm_eps, rope_theta;
  bool qkv_bias, out_bias, mlp_bias, qk_norm, tie_embeddings;
  gyre_shape shape;
  gyre_lora lora;  // of gyre_model_adapt: the parameters are the adapter's
  // What computes. "cpu": Gyre's kernels. "cuda", "cuda:1": tensor operations on that GPU. "aten": the same operations
  // on the CPU, to check them, and the kernels against them. 0: "cpu".
  char device[GYRE_DEVICE_SIZE];
  int32_t compute;  // gyre_compute
  // For sampling and scoring alone: the model frees its f32 parameters as they are filled (gyre_model_freeze), so that
  // memory holds only what inference reads. Backends other than the kernels keep them, but refuse training as well.
  bool frozen;
  // Of a frozen model: the matrices of its blocks are codes of int8, symmetric per output channel, which products
  // multiply as the numbers that they stand for. Only the kernels do that, in one process.
  bool int8;
  GYRE_COMPARES(gyre_model_config)
} gyre_model_config;

// How a model lies over ranks: see "models over ranks" below.
typedef enum { GYRE_SHARD_NONE = 0, GYRE_SHARD_OPTIMIZER = 1, GYRE_SHARD_FULL = 2 } gyre_shard;

typedef struct gyre_sharding {
  gyre_group* group;   // 0: one process
  int32_t shard;       // gyre_shard
  int32_t replicas;    // copies of the model, each sharded over size / replicas neighbours
  int32_t prefetch;    // blocks under way while one computes
  bool bfloat16;       // between ranks; otherwise float32
  bool deterministic;  // sums of gradients by lanes, the same bits for every number of ranks that divides them
  int32_t lanes;       // of all ranks together, when deterministic
} gyre_sharding;

// All parameters are f32 and zero until filled through gyre_model_parameter + gyre_tensor_copy_in + gyre_model_touch.
// sharding: of a group, all of whose ranks call it with the same arguments. 0: a model of one process.
gyre_status gyre_model_new(const gyre_model_config* config, const gyre_sharding* sharding, gyre_model** out);
// A low-rank adapter beside a base, as a model of its own: its parameters are A and B of every target (and with a value
// head that head's), all zero, and every function of models, gradients, optimizers and engines is of them alone. The
// base is shared and never changes; it may be frozen.
gyre_status gyre_model_adapt(gyre_model* base, const gyre_lora* lora, int32_t head, const gyre_sharding* sharding,
                             gyre_model** out);
void gyre_model_free(gyre_model* model);
int32_t gyre_model_parameter_count(const gyre_model* model);
// Parameter i: its Hugging Face name and a tensor that aliases the model's storage (free the handle, the storage
// stays).
gyre_status gyre_model_parameter(const gyre_model* model, int32_t i, char name[GYRE_NAME_SIZE], gyre_tensor* out);
gyre_status gyre_model_touch(gyre_model* model);
// Of a frozen model, in place of gyre_model_touch: the first `filled` parameters have their values.
gyre_status gyre_model_freeze(gyre_model* model, int32_t filled);
gyre_status gyre_model_device(const gyre_model* model, char* out, size_t size);
gyre_status gyre_model_set_recompute(gyre_model* model, bool on);

// Whole sequences from position 0. What several of them begin with is computed once, which changes no bit of a token's
// results.
typedef struct gyre_batch {
  int64_t num_sequences;
  const int64_t* offsets;  // num_sequences + 1
  const int32_t* ids;      // offsets[num_sequences]
  const uint8_t* mask;     // 1 where a token-aligned value is wanted / trained on
  // The tokens whose log-probs are meant where the mask is 1, given the ids before them; 0: ids.
  const int32_t* targets GYRE_DEFAULT(0);
} gyre_batch;

// k tokens for each token with mask 1, in their order, and k + 1 log-probs for each: those of the k, and that of all
// other tokens together, which means nothing where k is the vocabulary.
typedef struct gyre_support {
  int64_t k GYRE_DEFAULT(0);  // 0: none
  int32_t* ids GYRE_DEFAULT(0);
  float* logprobs GYRE_DEFAULT(0);
} gyre_support;
// Token-aligned, 0 where the mask is 0. entropies, and likeliest, which receives the k likeliest tokens: 0: not wanted.
gyre_status gyre_model_score(gyre_model* model, const gyre_batch* batch, double temperature, float* logprobs,
                             float* entropies, const gyre_support* likeliest);
gyre_status gyre_model_values(gyre_model* model, const gyre_batch* batch, float* values);
// Of every position of one sequence, [len x vocab] row-major; for tests.
gyre_status gyre_model_logits(gyre_model* model, const int32_t* ids, int64_t len, float* logits);

// Floating-point operations (a multiply-add counts two), and the bytes that had to be read at least.
typedef struct gyre_work {
  double flops GYRE_DEFAULT(0), bytes GYRE_DEFAULT(0);
} gyre_work;
void gyre_model_work(const gyre_model* model, gyre_work* out);

// ---- gradients -------------------------------------------------------------------------------------------------
// One buffer shaped like the model's parameters. Backward passes ADD into it.

// own: what is added is this rank's alone, until gyre_gradients_add to another buffer.
gyre_status gyre_gradients_new(const gyre_model* model, bool own, gyre_gradients** out);
void gyre_gradients_free(gyre_gradients* g);
gyre_status gyre_gradients_zero(gyre_gradients* g);
gyre_status gyre_gradients_add(gyre_gradients* g, const gyre_gradients* other, double scale);
// Adds the model's parameters to a buffer that is not one rank's own: the difference of two models, or of two moments.
gyre_status gyre_gradients_add_weights(gyre_gradients* g, const gyre_model* model, double scale);
// per_parameter: one value per gyre_model_parameter index; 0: not wanted.
gyre_status gyre_gradients_dot(const gyre_gradients* a, const gyre_gradients* b, double* total, double* per_parameter);
// The same of all pairs a <= b of n buffers, row by row of the upper triangle, reading each buffer once:
// out[pair * gyre_model_parameter_count + i].
gyre_status gyre_gradients_products(const gyre_gradients* const* buffers, int32_t n, double* out);
gyre_status gyre_gradients_sketch(const gyre_gradients* g, int64_t dimension, float* out);

// ---- losses ----------------------------------------------------------------------------------------------------

// A policy loss (csrc/train/losses): its name, and its constants up to the first without a name, each with its legal
// interval ("[0,1]", "[0,)") or names, which count from 0 ("tv,kl"), and the value that it has where none is given.
#define GYRE_LOSS_CONSTANTS 8
typedef struct gyre_loss_constant {
  const char *name, *range;
  double value;
} gyre_loss_constant;
// What a loss reads of a token that only the whole mini-batch tells.
typedef enum {
  GYRE_OVER_BATCH_NONE = 0,
  GYRE_OVER_BATCH_MEAN_LOG_RATIO = 1,
  GYRE_OVER_BATCH_CLIP_COV = 2,
  GYRE_OVER_BATCH_KL_COV = 3
} gyre_over_batch;
typedef struct gyre_loss {
  const char* name;
  bool compares GYRE_DEFAULT(false);  // reads advantages and old log-probs; if not, the KL term is off
  int32_t over_batch GYRE_DEFAULT(GYRE_OVER_BATCH_NONE);
  gyre_loss_constant constants[GYRE_LOSS_CONSTANTS];
} gyre_loss;
gyre_loss gyre_loss_at(int32_t i);  // past the last: one without a name

typedef struct gyre_task_loss {
  int32_t index;  // of gyre_loss_at
  double constants[GYRE_LOSS_CONSTANTS];
} gyre_task_loss;

typedef enum { GYRE_KL_NONE, GYRE_KL_K1, GYRE_KL_ABS, GYRE_KL_K2, GYRE_KL_K3, GYRE_KL_SUPPORT } gyre_kl;

typedef enum { GYRE_TERM_TASK = 0, GYRE_TERM_ENTROPY = 1, GYRE_TERM_KL = 2, GYRE_TERM_BALANCE = 3 } gyre_term_kind;

typedef struct gyre_policy_loss {
  gyre_task_loss task;
  double temperature;
  double entropy_coef;
  int32_t kl;                // which estimator, as a loss term
  bool kl_straight_through;  // value of the estimator, gradient of k2 (verl's "+" suffix)
  double kl_coef;
  double balance_coef;
} gyre_policy_loss;

typedef struct gyre_dropout {
  double probability GYRE_DEFAULT(0);  // below 1; 0: nothing
  uint64_t key GYRE_DEFAULT(0);
} gyre_dropout;

typedef struct gyre_policy_inputs {
  // All token-aligned. 0: nothing reads it, unless something else is said.
  const float* old_logprobs;
  const float* behaviour GYRE_DEFAULT(NULL);   // of the policy that drew the tokens; 0: old_logprobs
  const float* over_batch GYRE_DEFAULT(NULL);  // gyre_loss::over_batch
  const float* importance GYRE_DEFAULT(NULL);  // weighs the task term alone; 0: 1
  const float* advantages;                     // of task terms that bring none of their own
  const float* ref_logprobs;                   // of estimators of the KL divergence
  const float* weights;                        // of terms that bring none of their own
  gyre_support support GYRE_DEFAULT({});       // of the reference, when kl is GYRE_KL_SUPPORT
  gyre_dropout dropout GYRE_DEFAULT({});
} gyre_policy_inputs;

typedef struct gyre_term {
  const char* name;                         // NUL-terminated, unique in a call; for messages
  int32_t kind GYRE_DEFAULT(0);             // gyre_term_kind; a KL term without an estimator is zero
  const float* advantages GYRE_DEFAULT(0);  // token-aligned, of a task term; 0: those of the inputs
  const float* weights GYRE_DEFAULT(0);     // token-aligned; 0: those of the inputs
  gyre_gradients* into GYRE_DEFAULT(0);     // the gradient is ADDED; 0: statistics only
} gyre_term;

// Sums over the masked tokens of this call, in f64.
typedef struct gyre_term_stats {
  double loss, value, clipped, clipped_lower;
} gyre_term_stats;

typedef struct gyre_policy_stats {
  double tokens, log_ratio, logprob_gap_max;
} gyre_policy_stats;

// Forward and backward of one micro-batch. term_stats holds one entry per term (both may be empty: a forward
// pass). logprobs_out / entropies_out (token-aligned): 0: not wanted.
gyre_status gyre_policy_backward(gyre_model* model, const gyre_batch* batch, const gyre_policy_inputs* inputs,
                                 const gyre_policy_loss* loss, const gyre_term* terms, int32_t num_terms,
                                 float* logprobs_out, float* entropies_out, gyre_policy_stats* stats,
                                 gyre_term_stats* term_stats);

typedef struct gyre_value_stats {
  double tokens, loss, clipped, value_sum;
} gyre_value_stats;

// clip: 0: off, and nothing reads old_values. values_out: 0: not wanted.
gyre_status gyre_value_backward(gyre_model* critic, const gyre_batch* batch, const float* returns,
                                const float* old_values, const float* weights, double clip, const gyre_dropout* dropout,
                                gyre_gradients* gradients, float* values_out, gyre_value_stats* stats);

// ---- optimizer -------------------------------------------------------------------------------------------------

typedef struct gyre_adamw_config {
  double beta1, beta2, eps, weight_decay;  // decoupled weight decay on every parameter, as torch.optim.AdamW
} gyre_adamw_config;

gyre_status gyre_optimizer_new(gyre_model* model, const gyre_adamw_config* config, gyre_optimizer** out);
void gyre_optimizer_free(gyre_optimizer* opt);
// max_norm: 0: gradients are not scaled.
gyre_status gyre_optimizer_step(gyre_optimizer* opt, gyre_gradients* gradients, double lr, double max_norm,
                                double* grad_norm, bool* applied);
int64_t gyre_optimizer_steps(const gyre_optimizer* opt);
gyre_status gyre_optimizer_set_steps(gyre_optimizer* opt, int64_t steps);
gyre_status gyre_optimizer_configure(gyre_optimizer* opt, const gyre_adamw_config* config);  // of the steps to come

// ---- models over ranks -----------------------------------------------------------------------------------------
// Functions marked COLLECTIVE are called by all ranks, in the same order. So is everything that makes a pass with
// GYRE_SHARD_FULL (gyre_policy_backward with the same buffers in the same order; a rank without work gives a batch of
// no sequences) and, in all modes, what reads sums of gradients (_dot, _products, _sketch) and gyre_optimizer_step,
// before which gradients become sums over all ranks by themselves.

// COLLECTIVE. Makes an engine's copy of the weights, block by block: with GYRE_SHARD_FULL before the first step of any
// engine after an update or gyre_engine_sleep. Does nothing in the other modes.
gyre_status gyre_model_gather(gyre_model* model);
// COLLECTIVE over the group: engines made from here on sample with all of its ranks together. Requests go to the engine
// of the group's first rank; the others call gyre_engine_follow.
gyre_status gyre_model_tensor_parallel(gyre_model* model, gyre_group* group);
// Whether gyre_model_tensor_parallel would divide a model of this configuration over so many ranks:
// GYRE_INVALID_ARGUMENT says which numbers it can be divided over.
gyre_status gyre_check_tensor_parallel(const gyre_model_config* config, int32_t ranks);
// Passes that follow belong to this lane, one of this rank's, in rising order until the buffer is zeroed or read.
gyre_status gyre_gradients_begin_lane(gyre_gradients* g, int32_t lane);

// What this rank holds of a parameter: entries first and on, as a flat tensor that aliases the storage; and which of
// the parameter's entries it writes to a checkpoint: each is written by one rank. One process holds and writes all.
typedef struct gyre_held {
  int64_t first, own_first, own_count;
} gyre_held;
gyre_status gyre_model_held(const gyre_model* model, int32_t i, gyre_held* out, gyre_tensor* tensor);
gyre_status gyre_gradients_held(const gyre_gradients* g, int32_t i, gyre_held* out, gyre_tensor* tensor);
// which: 0 = first moment, 1 = second moment.
gyre_status gyre_optimizer_held(const gyre_optimizer* opt, int32_t which, int32_t i, gyre_held* out,
                                gyre_tensor* tensor);

// ---- process group ---------------------------------------------------------------------------------------------
// The ranks of a run. These functions may be called from any thread, one collective at a time, and may block for the
// group's timeout; collectives of a sharded model may run beside them. A group that failed stays failed.

// A table of keys and values that all ranks reach: c10d's FileStore in a file, for the ranks of one machine, or its
// TCPStore. A listening socket makes this process the server of its port, and is the store's from then on; 0: another
// process serves. A client waits for the server, at most so many seconds. From any thread.
gyre_status gyre_store_open_file(const char* path, gyre_store** out);
gyre_status gyre_store_open_tcp(const char* host, int32_t port, int32_t listener, double seconds, gyre_store** out);
// Groups that were made with the store may outlive it.
void gyre_store_free(gyre_store* store);
gyre_status gyre_store_set(gyre_store* store, const char* key, const void* data, int64_t size);
// Does not wait. *data: 0: there is no such key.
gyre_status gyre_store_find(gyre_store* store, const char* key, void** data, int64_t* size);
// Sets a key that nobody has set; *held: the value that it has then.
gyre_status gyre_store_claim(gyre_store* store, const char* key, const void* data, int64_t size, void** held,
                             int64_t* held_size);
// Frees what a function below or above has handed over.
void gyre_bytes_free(void* data);

typedef struct gyre_group_config {
  int32_t rank, size;
  gyre_store* store;    // 0: a group of one
  const char* prefix;   // of the group's keys
  const char* backend;  // "gloo"; "nccl" for models on GPUs (libgyre_nccl.so: compiled and linked, never run)
  const char* bind;     // address, host name or interface of the connections between ranks
  double timeout;       // seconds that a rank waits for another
  int32_t first;        // what messages call rank 0 of this group: its rank in the run
} gyre_group_config;

gyre_status gyre_group_new(const gyre_group_config* config, gyre_group** out);
// Ranks that still wait for this one fail, once the models made with the group are gone too.
void gyre_group_free(gyre_group* group);
// Makes whatever waits here, and everything after it, fail with the reason. Other ranks are not told.
void gyre_group_abort(gyre_group* group, const char* reason);
// *data: what each rank gave, one after the other; sizes has one entry per rank.
gyre_status gyre_group_all_gather(gyre_group* group, const void* mine, int64_t size, int64_t* sizes, void** data);

// What has been sent so far, by kind.
typedef enum {
  GYRE_CARGO_CONTROL = 0,
  GYRE_CARGO_WEIGHTS = 1,
  GYRE_CARGO_GRADIENTS = 2,
  GYRE_CARGO_ACTIVATIONS = 3,
  GYRE_CARGO_KINDS = 4
} gyre_cargo;
typedef struct gyre_traffic {
  double sent;    // bytes
  double waited;  // seconds in which this rank could not go on
} gyre_traffic;
void gyre_group_traffic(const gyre_group* group, gyre_traffic out[GYRE_CARGO_KINDS]);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
