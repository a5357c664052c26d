// The C ABI of the engine, which samples. Conventions are those of gyre.h.
#ifndef GYRE_ENGINE_H
#define GYRE_ENGINE_H

#include "gyre.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct gyre_engine gyre_engine;

typedef struct gyre_engine_config {
  int64_t kv_bytes GYRE_DEFAULT(0);  // 0: enough for max_sequences of max_length
  int64_t max_sequences GYRE_DEFAULT(0), max_length GYRE_DEFAULT(0), max_batch_tokens GYRE_DEFAULT(0);
  bool prefix_cache GYRE_DEFAULT(true), cuda_graphs GYRE_DEFAULT(true);
  int64_t speculative_tokens GYRE_DEFAULT(0);  // at most, for a sequence and pass
  bool always_speculate GYRE_DEFAULT(false);
} gyre_engine_config;

typedef struct gyre_sampling {
  double temperature GYRE_DEFAULT(1.0);  // 0: the likeliest token
  int64_t top_k GYRE_DEFAULT(0);         // 0: all
  double top_p GYRE_DEFAULT(1.0), min_p GYRE_DEFAULT(0.0);
  int64_t max_tokens GYRE_DEFAULT(1), min_tokens GYRE_DEFAULT(0);
  uint64_t seed GYRE_DEFAULT(0);
  bool ignore_eos GYRE_DEFAULT(false);
  int64_t alternatives GYRE_DEFAULT(0);  // per token drawn: at most GYRE_MAX_ALTERNATIVES
} gyre_sampling;

enum { GYRE_MAX_ALTERNATIVES = 20 };

typedef struct gyre_alternative {
  int32_t token;
  float logprob;
} gyre_alternative;

typedef enum {
  GYRE_FINISH_NONE = 0,
  GYRE_FINISH_STOP = 1,
  GYRE_FINISH_LENGTH = 2,
  GYRE_FINISH_ABORT = 3,
  GYRE_FINISH_NOT_FINITE = 4  // the logits of its policy, while requests of other policies go on
} gyre_finish;

typedef enum { GYRE_KEEP_NONE = 0, GYRE_KEEP_ABORTED = 1, GYRE_KEEP_CUT = 2 } gyre_keep;

typedef struct gyre_request {
  uint64_t id;  // chosen by the caller, unique among unfinished requests
  const int32_t* prompt;
  int64_t prompt_len;
  gyre_sampling sampling;
  const int32_t* stop_ids;
  int64_t num_stop_ids;
  const char* const* stop_strings;  // bytes; need a vocabulary (gyre_engine_set_vocabulary)
  const int64_t* stop_string_lens;
  int64_t num_stop_strings;
  const gyre_model* policy;  // the base of the engine's model, or an adapter beside that; 0: the engine's model
  // The last so many tokens of the prompt, drawn for this request before. They count as output: positions of draws,
  // max_tokens, stop strings.
  int64_t drawn;
  int32_t keep;  // gyre_keep
  bool kept;     // what a sequence computes from the kept keys and values on is shared with nobody
} gyre_request;

typedef struct gyre_output {
  uint64_t id;
  int32_t finish;         // gyre_finish
  int64_t position;       // of the first of these tokens in the reply: 0 for a finished request
  int64_t num_tokens;     // new tokens, the stop token included
  int64_t cached_tokens;  // prompt tokens whose keys and values were found in the prefix cache
  int64_t token_offset;   // where this output's tokens start in the arrays of gyre_engine_poll
  int64_t alternatives;   // per token
  bool kept;              // its keys and values stay under its id
} gyre_output;

typedef struct gyre_engine_phase {
  double seconds;
  gyre_work work;
} gyre_engine_phase;

typedef struct gyre_engine_stats_t {
  int64_t waiting, running, finished;
  int64_t blocks_total, blocks_free, blocks_cached, blocks_peak, block_tokens;
  int64_t prompt_tokens, cached_tokens, prefill_tokens, decode_tokens, head_rows, preemptions, steps;
  int64_t proposed_tokens, accepted_tokens;
  gyre_engine_phase prefill, decode, sample;
  int64_t kv_bytes;
} gyre_engine_stats_t;

gyre_status gyre_engine_new(gyre_model* model, const gyre_engine_config* config, gyre_engine** out);
void gyre_engine_free(gyre_engine* engine);
// bytes of token i are data[offsets[i] .. offsets[i+1])
gyre_status gyre_engine_set_vocabulary(gyre_engine* engine, const uint8_t* data, const int64_t* offsets, int64_t count);
gyre_status gyre_engine_submit(gyre_engine* engine, const gyre_request* request);
// *unfinished: requests still waiting or running afterwards.
gyre_status gyre_engine_step(gyre_engine* engine, int64_t* unfinished);
// Takes finished outputs, or with `unfinished` the tokens that unfinished requests have drawn since the last such call
// (finish is then GYRE_FINISH_NONE): at most max_outputs, and only as many as fit in max_tokens; *count says how many.
// Token i's alternatives, in order of likelihood, begin at alternatives[i * GYRE_MAX_ALTERNATIVES]; 0: not wanted.
gyre_status gyre_engine_poll(gyre_engine* engine, bool unfinished, gyre_output* outputs, int64_t max_outputs,
                             int32_t* tokens, float* logprobs, float* sampling_logprobs, gyre_alternative* alternatives,
                             int64_t max_tokens, int64_t* count);
gyre_status gyre_engine_abort(gyre_engine* engine, uint64_t id);
// Frees all keys and values that requests have left behind (gyre_request.keep).
gyre_status gyre_engine_forget(gyre_engine* engine);
gyre_status gyre_engine_sleep(gyre_engine* engine);
void gyre_engine_stats(const gyre_engine* engine, gyre_engine_stats_t* out);
// After gyre_model_tensor_parallel: waits for the first rank's engine to make a step and computes this rank's shard of
// it. *more is false when the first has called gyre_engine_dismiss instead. An engine that failed in a step cannot be
// followed further: the group is to be aborted.
gyre_status gyre_engine_follow(gyre_engine* engine, bool* more);
// Ends gyre_engine_follow on the other ranks. Does nothing for a model that is not tensor parallel.
gyre_status gyre_engine_dismiss(gyre_engine* engine);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
