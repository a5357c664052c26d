// Generation by continuous batching over the trainer's own decoder.
//
//   submit ─▶ waiting ─▶ running ─▶ finished ─▶ poll
//                 ▲          │           │
//                 └ no pages ┴───────────┴─▶ prefix cache: keys and values for
//                 whoever begins with the same tokens
//
// A step is one forward pass over the rows that the scheduler chose (scheduler.h), and one drawn token (draw_tokens)
// for each sequence whose last known token was among them, or several where proposals come true (speculation.h). The
// decoder's rows do not depend on their neighbours and draws are keyed by (seed, position), so a request's tokens and
// log-probs are the same bits in any company, chunking, order of arrival or preemption, with or without the prefix
// cache.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/decoder.h"
#include "engine/pass.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/speculation.h"
#include "gyre_engine.h"

namespace gyre {

class Engine {
 public:
  // Throws std::invalid_argument when the configuration cannot work. The decoder must outlive the engine.
  Engine(Decoder& decoder, const gyre_engine_config& config);

  // Needed by stop strings.
  void set_vocabulary(std::string data, std::vector<int64_t> offsets);
  // Queues a request. Throws std::invalid_argument when it is malformed or could not run even alone.
  void submit(Request request);
  // Returns the number of requests that are waiting or running afterwards. A step that throws has changed no request.
  // Logits that are not finite throw, or end their request where others go on with another policy.
  int64_t step();
  // The oldest finished output, unless it has more than max_tokens tokens.
  std::optional<Output> poll(int64_t max_tokens);
  // The tokens that unfinished requests have drawn since the last call, in order of submission: at most max_outputs
  // requests and max_tokens tokens, the rest with the next call. A finished request is still polled whole.
  std::vector<Output> progress(int64_t max_outputs, int64_t max_tokens);
  // Ends an unfinished request: its output so far is polled with GYRE_FINISH_ABORT. Nothing to do for a request that
  // has just finished; throws NotFoundError for an id that is unknown.
  void abort(uint64_t id);
  // For tensor-parallel ranks (Decoder::share), of which the first one's engine takes the requests: on the others,
  // waits for the first one's next pass and makes it too. Returns false when the first has called dismiss() instead.
  bool follow();
  // On the first rank: ends the follow() of the others, until this engine makes another step. One rank: does nothing.
  void dismiss();
  // Frees what requests have left behind (Request::keep).
  void forget();
  // Frees the KV pool and the packed weights until the next step. The prefix cache is emptied, unfinished requests are
  // computed again.
  void sleep();
  gyre_engine_stats_t stats() const;

 private:
  void forget_older_weights();
  void make_pages(int64_t count);
  bool one_policy() const;
  void speculate();
  EnginePass plan(std::vector<Sequence*>& sampled) const;
  at::Tensor forward(const EnginePass& pass);
  gyre_finish advance(Sequence& sequence, std::span<const Draw> draws);
  gyre_finish append(Sequence& sequence, const Draw& draw);
  void finish(uint64_t id, gyre_finish finish);

  Decoder& decoder_;
  gyre_engine_config config_;
  uint64_t weights_;  // decoder version that the pool's contents were computed with
  Scheduler scheduler_;
  StopMatcher stop_matcher_;
  std::optional<Speculation> speculation_;
  std::unique_ptr<KvPages> kv_;
  std::deque<Output> finished_;
  gyre_engine_stats_t counts_{};  // what the engine itself counts up
};

}  // namespace gyre
