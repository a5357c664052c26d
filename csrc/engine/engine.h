// Generation by continuous batching over the trainer's own decoder.
//
//   submit ─▶ waiting ─▶ running ─▶ finished ─▶ poll
//                 ▲          │           │
//                 └ no pages ┴───────────┴─▶ prefix cache: keys and values for
//                 whoever begins with the same tokens
//
// A step is one forward pass over the rows that the scheduler chose (scheduler.h), and one drawn token (draw_tokens)
// for each sequence whose last known token was among them. The decoder's rows do not depend on their neighbours and
// draws are keyed by (seed, position), so a request's tokens and log-probs are the same bits in any company, chunking,
// order of arrival or preemption, with or without the prefix cache.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/decoder.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"

namespace gyre {

// Time spent on a kind of work, and how much of it was done.
struct Phase {
  double seconds = 0;
  Work work;
};

// Requests, pages and kv_bytes are those of now, everything else counts up from the engine's creation.
struct EngineStats {
  int64_t waiting = 0, running = 0, finished = 0;  // finished: not polled yet
  int64_t pages_total = 0, pages_free = 0;         // free: hold nothing
  int64_t pages_cached = 0;                        // held by the prefix cache alone
  int64_t pages_peak = 0;                          // most that running sequences have held together
  int64_t prompt_tokens = 0, cached_tokens = 0;    // of requests that have run; found in the prefix cache
  int64_t prefill_tokens = 0;                      // rows computed of prompts and of anything computed again
  int64_t decode_tokens = 0;                       // rows computed of freshly drawn tokens
  int64_t head_rows = 0;                           // rows of logits
  int64_t preemptions = 0, steps = 0;
  Phase prefill, decode;  // in the decoder; a mixed pass is split by its rows
  Phase sample;           // logits and draws
  int64_t kv_bytes = 0;   // address space of the pool: 0 before the first step and after sleep()
};

class Engine {
 public:
  // Throws std::invalid_argument when the configuration cannot work. The decoder must outlive the engine.
  Engine(Decoder& decoder, const EngineConfig& config);

  // Needed by stop strings.
  void set_vocabulary(std::string data, std::vector<int64_t> offsets);
  // Queues a request. Throws std::invalid_argument when it is malformed or could not run even alone.
  void submit(Request request);
  // Returns the number of requests that are waiting or running afterwards. A step that throws has changed no request.
  int64_t step();
  // The oldest finished output, unless it has more than max_tokens tokens.
  std::optional<Output> poll(int64_t max_tokens);
  // The tokens that unfinished requests have drawn since they were told here, in order of submission: at most
  // max_outputs requests and max_tokens tokens, the rest with the next call. A finished request is polled whole.
  std::vector<Output> progress(int64_t max_outputs, int64_t max_tokens);
  // Ends an unfinished request: its output so far is polled with kAbort. Nothing to do for a request that has just
  // finished; throws NotFoundError for an id that is unknown.
  void abort(uint64_t id);
  // Frees the KV pool and the packed weights until the next step. The prefix cache is emptied, unfinished requests are
  // computed again.
  void sleep();
  EngineStats stats() const;

 private:
  void forget_older_weights();
  at::Tensor forward(std::vector<Sequence*>& sampled, std::vector<int64_t>& sampled_rows);
  Finish advance(Sequence& sequence, const Draw& draw, int64_t* stop_index) const;
  void finish(uint64_t id, Finish finish, int64_t stop_index);

  Decoder& decoder_;
  EngineConfig config_;
  uint64_t weights_;  // decoder version that the pool's contents were computed with
  Scheduler scheduler_;
  StopMatcher stop_matcher_;
  std::unique_ptr<KvPages> kv_;
  std::deque<Output> finished_;
  EngineStats counts_;  // what the engine itself counts up
};

}  // namespace gyre
