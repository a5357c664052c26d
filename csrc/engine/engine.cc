#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "engine/sampler.h"
#include "kernels/parallel.h"

namespace gyre {
namespace {

const gyre_engine_config& checked(const gyre_engine_config& config, const Decoder& decoder) {
  check(config, decoder.config(), decoder.bytes_per_page());
  return config;
}

// What a decoder does, and the time that passes, from here on.
class Meter {
 public:
  explicit Meter(const Decoder& decoder) : decoder_(decoder) {}

  double seconds() const { return std::chrono::duration<double>(Clock::now() - begun_).count(); }
  // Adds a share of it to a phase.
  void charge(gyre_engine_phase& phase, double share) const {
    phase.seconds += share * seconds();
    phase.work += (decoder_.work() - work_) * share;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Decoder& decoder_;
  const gyre_work work_ = decoder_.work();
  const Clock::time_point begun_ = Clock::now();
};

constexpr int64_t kHeadRows = 64;  // rows of logits kept at once

// Calls body(first, count, what computes the logits of these rows given their adapters) a few rows at a time.
template <typename Body>
void for_logits(Decoder& decoder, const at::Tensor& hidden_NH, std::span<const int64_t> rows, Body&& body) {
  const auto count = static_cast<int64_t>(rows.size());
  for (int64_t begin = 0; begin < count; begin += kHeadRows) {
    const int64_t n = std::min(kHeadRows, count - begin);
    body(begin, n, [&](std::span<const AdapterRows> adapters) {
      return decoder.row_logits(hidden_NH, rows.subspan(begin, n), adapters);
    });
  }
}

// A sequence's row that a token is drawn from: the one after so many proposed ones.
struct Drawing {
  const Sequence* sequence;
  int64_t ahead;
};

// Draws a token from row rows[i] of the hidden states; -1 from logits that are not finite, which throw where `alone`
// says that there are no other policies to go on. Throws what draw_token throws, but not for what follows proposed
// tokens: it fails again if they come true.
std::vector<Draw> draw_tokens(Decoder& decoder, const at::Tensor& hidden_NH, std::span<const int64_t> rows,
                              std::span<const Drawing> drawings, bool alone) {
  const int64_t vocab = decoder.config().vocab_size;
  std::vector<Draw> draws(rows.size());
  for_logits(decoder, hidden_NH, rows, [&](int64_t begin, int64_t n, auto&& compute) {
    std::vector<AdapterRows> adapters;
    for (int64_t r = 0; r < n; ++r) join_rows(adapters, drawings[begin + r].sequence->request.policy->adapter(), r, 1);
    const at::Tensor logits_RV = compute(adapters);
    const float* logits = logits_RV.const_data_ptr<float>();
    parallel_for(n, std::max<int64_t>(1, 16384 / vocab), [&](int64_t r) {
      const auto& [s, ahead] = drawings[begin + r];
      const gyre_sampling& sampling = s->request.sampling;
      const int64_t position = s->outputs() + ahead;
      const bool may_stop = sampling.ignore_eos || position >= sampling.min_tokens;
      try {
        draws[begin + r] = draw_token({logits + r * vocab, static_cast<size_t>(vocab)}, sampling, position,
                                      may_stop ? std::span<const int32_t>() : std::span(s->request.stop_ids));
      } catch (const NotFiniteError&) {
        if (alone && ahead == 0) throw;
      } catch (const std::invalid_argument&) {
        if (ahead == 0) throw;
      }
    });
  });
  return draws;
}

}  // namespace

Engine::Engine(Decoder& decoder, const gyre_engine_config& config)
    : decoder_(decoder),
      config_(checked(config, decoder)),
      weights_(decoder.version()),
      scheduler_(pool_pages(config, decoder.bytes_per_page()), config.max_sequences, config.max_batch_tokens,
                 config.prefix_cache) {
  // Elsewhere a row's bits depend on the pass around it.
  if (config.speculative_tokens > 0 && decoder.config().device() == "cpu")
    speculation_.emplace(config.speculative_tokens, config.always_speculate, config.max_length);
}

void Engine::set_vocabulary(std::string data, std::vector<int64_t> offsets) {
  stop_matcher_.set_vocabulary(std::move(data), std::move(offsets));
}

void Engine::submit(Request request) {
  const std::string name = "request " + std::to_string(request.id) + ": ";
  require(!decoder_.peers() || decoder_.peers()->part() == 0, name,
          "this rank samples together with others, of which the first takes requests");
  require(!scheduler_.contains(request.id), name, "an unfinished request has the same id");
  check(request, config_, decoder_.config(), decoder_.bytes_per_page());
  require(request.stop_strings.empty() || stop_matcher_.has_vocabulary(), name,
          "stop strings need the vocabulary to be set first");
  if (!request.policy) request.policy = {std::shared_ptr<const Decoder>(), &decoder_};
  const Decoder& policy = *request.policy;
  const bool beside = &policy.base() == &decoder_.base() && policy.config().head == GYRE_HEAD_LM && !decoder_.peers();
  require(&policy == &decoder_ || beside, name,
          "its policy is no language model beside the base of the engine's, or several ranks sample together");
  auto sequence = std::make_unique<Sequence>(std::move(request));
  stop_matcher_.resume(*sequence);
  if (sequence->request.kept) return scheduler_.resume(std::move(sequence), policy.version());
  scheduler_.drop(sequence->request.id);
  scheduler_.add(std::move(sequence));
}

void Engine::forget_older_weights() {
  const auto own = [&](const Sequence* s) { return s->request.policy.get() == &decoder_; };
  const bool changed = weights_ != decoder_.version();
  if (changed && !scheduler_.keeps() && std::ranges::all_of(scheduler_.by_arrival(), own)) scheduler_.forget();
  weights_ = decoder_.version();
  scheduler_.renew([](const Sequence& s) { return s.request.policy->version(); });
}

int64_t Engine::step() {
  forget_older_weights();
  if (scheduler_.unfinished() == 0) return 0;
  if (!kv_) make_pages(scheduler_.pages().total());
  std::vector<int32_t> copies;
  scheduler_.schedule([&](int32_t from, int32_t to) {
    kv_->copy_page(from, to);
    copies.insert(copies.end(), {from, to});
  });

  speculate();
  std::vector<Sequence*> sampled;
  EnginePass pass = plan(sampled);
  if (Peers* const peers = decoder_.peers()) {
    pass.num_pages = kv_->num_pages();
    pass.copies = std::move(copies);
    peers->broadcast(pass.encode());
  }
  const Meter whole(decoder_);
  const at::Tensor hidden_NH = forward(pass);
  const Meter meter(decoder_);
  std::vector<Drawing> drawings;
  for (const Sequence* s : sampled) {
    for (int64_t ahead = 0; ahead <= std::ssize(s->draft); ++ahead) drawings.push_back({s, ahead});
  }
  const std::vector<Draw> draws = draw_tokens(decoder_, hidden_NH, pass.sampled, drawings, one_policy());
  meter.charge(counts_.sample, 1);
  counts_.head_rows += static_cast<int64_t>(draws.size());

  // From here on nothing throws for reasons of the model, so that a failed step leaves every request as it was.
  ++counts_.steps;
  if (speculation_) speculation_->measured(sampled, pass.decodes(), whole.seconds());
  std::vector<std::pair<uint64_t, gyre_finish>> ends;
  auto rest = std::span(draws);
  for (Sequence* const s : sampled) {
    const size_t count = s->draft.size() + 1;
    ends.emplace_back(s->request.id, advance(*s, rest.first(count)));
    rest = rest.subspan(count);
  }
  scheduler_.commit();
  for (const auto& [id, reason] : ends) {
    if (reason != GYRE_FINISH_NONE) finish(id, reason);
  }
  return scheduler_.unfinished();
}

// Proposes tokens for those sequences that the coming pass samples.
void Engine::speculate() {
  if (!speculation_) return;
  std::vector<Sequence*> sampled;
  bool alone = true;
  for (const auto& s : scheduler_.running()) {
    if (s->samples()) sampled.push_back(s.get());
    alone &= s->scheduled == 0 || s->decoding();
  }
  speculation_->propose(sampled, alone, [&](Sequence& s, std::span<const int32_t> draft) {
    scheduler_.extend(s, draft);
    counts_.proposed_tokens += std::ssize(s.draft);
  });
}

bool Engine::one_policy() const {
  const std::vector<Sequence*> all = scheduler_.by_arrival();
  return std::ranges::all_of(all, [&](const Sequence* s) { return s->request.policy == all.front()->request.policy; });
}

void Engine::make_pages(int64_t count) {
  kv_ = decoder_.make_pages(count);
  kv_->decode_in_fixed_shapes(config_.cuda_graphs);
}

// The scheduled rows. `sampled` receives the sequences that are to have a new token.
EnginePass Engine::plan(std::vector<Sequence*>& sampled) const {
  EnginePass pass;
  std::vector<Sequence*> all;
  for (const auto& s : scheduler_.running()) {
    if (s->scheduled > 0) all.push_back(s.get());
  }
  std::ranges::stable_sort(all, {}, &Sequence::weights);  // rows of one adapter lie together
  for (Sequence* const s : all) {
    const auto row = static_cast<int64_t>(pass.ids.size());
    pass.spans.push_back({row, s->scheduled, s->computed, s->pages, s->request.policy->adapter()});
    const auto first = s->tokens.begin() + s->computed;
    pass.ids.insert(pass.ids.end(), first, first + s->scheduled - std::ssize(s->draft));
    pass.ids.insert(pass.ids.end(), s->draft.begin(), s->draft.end());
    pass.decode_rows += s->decoding() ? s->scheduled : std::ssize(s->draft);
    if (!s->samples()) continue;
    sampled.push_back(s);
    for (int64_t i = s->pending() - 1; i < s->scheduled; ++i) pass.sampled.push_back(row + i);
  }
  if (pass.ids.empty()) throw std::logic_error("engine: nothing could be scheduled although requests are waiting");
  return pass;
}

// Runs the rows through the decoder.
at::Tensor Engine::forward(const EnginePass& pass) {
  const auto rows = static_cast<int64_t>(pass.ids.size());
  const Meter meter(decoder_);
  at::Tensor hidden_NH = decoder_.forward(pass.ids, pass.spans, *kv_);
  const double decode_share = static_cast<double>(pass.decode_rows) / static_cast<double>(rows);
  counts_.decode_tokens += pass.decode_rows;
  counts_.prefill_tokens += rows - pass.decode_rows;
  meter.charge(counts_.decode, decode_share);
  meter.charge(counts_.prefill, 1 - decode_share);
  return hidden_NH;
}

bool Engine::follow() {
  Peers* const peers = decoder_.peers();
  require(peers != nullptr && peers->part() > 0, "engine: it has no peer to follow: it takes requests itself");
  const std::string bytes = peers->broadcast({});
  if (bytes.empty()) return false;
  const EnginePass pass(bytes);
  if (kv_ && kv_->num_pages() != pass.num_pages) kv_.reset();
  if (!kv_) make_pages(pass.num_pages);
  for (size_t i = 0; i + 1 < pass.copies.size(); i += 2) kv_->copy_page(pass.copies[i], pass.copies[i + 1]);
  const at::Tensor hidden_NH = forward(pass);
  const Meter meter(decoder_);
  for_logits(decoder_, hidden_NH, pass.sampled,
             [](int64_t, int64_t, auto&& compute) { compute(std::span<const AdapterRows>()); });
  meter.charge(counts_.sample, 1);
  counts_.head_rows += static_cast<int64_t>(pass.sampled.size());
  ++counts_.steps;
  return true;
}

void Engine::dismiss() {
  if (Peers* const peers = decoder_.peers()) peers->broadcast({});
}

// Appends drawn tokens, the first one and those that follow what was proposed and drawn; says whether the last ends the
// sequence.
gyre_finish Engine::advance(Sequence& s, std::span<const Draw> draws) {
  gyre_finish reason = append(s, draws.front());
  for (size_t i = 1; i < draws.size() && reason == GYRE_FINISH_NONE; ++i) {
    if (s.draft[i - 1] != s.tokens.back() || draws[i].token < 0) break;
    reason = append(s, draws[i]);
    ++counts_.accepted_tokens;
  }
  return reason;
}

// Appends a drawn token and says whether it ends the sequence.
gyre_finish Engine::append(Sequence& s, const Draw& draw) {
  if (draw.token < 0) return GYRE_FINISH_NOT_FINITE;
  s.tokens.push_back(draw.token);
  s.logprobs.push_back(draw.logprob);
  s.sampling_logprobs.push_back(draw.sampling_logprob);
  s.alternatives.insert(s.alternatives.end(), draw.alternatives.begin(), draw.alternatives.end());
  if (speculation_) speculation_->learn(s, draw);
  const gyre_sampling& sampling = s.request.sampling;
  const auto& ids = s.request.stop_ids;
  if (stop_matcher_.advance(s)) return GYRE_FINISH_STOP;
  if (!sampling.ignore_eos && std::ranges::find(ids, draw.token) != ids.end()) return GYRE_FINISH_STOP;
  if (s.outputs() >= sampling.max_tokens || s.length() >= config_.max_length) return GYRE_FINISH_LENGTH;
  return GYRE_FINISH_NONE;
}

void Engine::finish(uint64_t id, gyre_finish reason) {
  std::unique_ptr<Sequence> s = scheduler_.remove(id, reason);
  finished_.push_back({.id = id,
                       .finish = reason,
                       .position = 0,
                       .tokens = {s->tokens.begin() + s->prompt_length(), s->tokens.end()},
                       .logprobs = std::move(s->logprobs),
                       .sampling_logprobs = std::move(s->sampling_logprobs),
                       .alternatives = std::move(s->alternatives),
                       .cached_tokens = s->cached,
                       .kept = !s->pages.empty()});
  if (!s->pages.empty()) scheduler_.keep(std::move(s));
}

std::optional<Output> Engine::poll(int64_t max_tokens) {
  if (finished_.empty() || static_cast<int64_t>(finished_.front().tokens.size()) > max_tokens) return std::nullopt;
  Output output = std::move(finished_.front());
  finished_.pop_front();
  return output;
}

std::vector<Output> Engine::progress(int64_t max_outputs, int64_t max_tokens) {
  std::vector<Output> partial;
  for (Sequence* s : scheduler_.by_arrival()) {
    if (static_cast<int64_t>(partial.size()) >= max_outputs || max_tokens <= 0) break;
    const int64_t from = s->reported, count = std::min(s->outputs() - from, max_tokens);
    if (count == 0) continue;
    const auto part = [&](const auto& all, int64_t first, int64_t each = 1) {
      return std::decay_t<decltype(all)>(all.begin() + first, all.begin() + first + count * each);
    };
    const int64_t top = s->request.sampling.alternatives;
    partial.push_back({.id = s->request.id,
                       .finish = GYRE_FINISH_NONE,
                       .position = from,
                       .tokens = part(s->tokens, s->prompt_length() + from),
                       .logprobs = part(s->logprobs, from),
                       .sampling_logprobs = part(s->sampling_logprobs, from),
                       .alternatives = part(s->alternatives, from * top, top),
                       .cached_tokens = s->cached});
    s->reported += count;
    max_tokens -= count;
  }
  return partial;
}

void Engine::abort(uint64_t id) {
  if (scheduler_.contains(id)) {
    finish(id, GYRE_FINISH_ABORT);
  } else if (std::ranges::none_of(finished_, [id](const Output& o) { return o.id == id; })) {
    throw NotFoundError("abort: no request has id " + std::to_string(id));
  }
}

void Engine::forget() { scheduler_.drop_all(); }

void Engine::sleep() {
  forget();
  scheduler_.forget();
  kv_.reset();
  decoder_.release_packed();
}

gyre_engine_stats_t Engine::stats() const {
  gyre_engine_stats_t s = counts_;
  s.waiting = scheduler_.waiting();
  s.running = scheduler_.unfinished() - s.waiting;
  s.finished = static_cast<int64_t>(finished_.size());
  s.block_tokens = kPageTokens;
  s.blocks_total = scheduler_.pages().total();
  s.blocks_free = scheduler_.pages().free();
  s.blocks_cached = scheduler_.pages().cached();
  s.blocks_peak = scheduler_.pages().peak();
  s.prompt_tokens = scheduler_.prompt_tokens();
  s.cached_tokens = scheduler_.cached_tokens();
  s.preemptions = scheduler_.preemptions();
  s.kv_bytes = kv_ ? s.blocks_total * decoder_.bytes_per_page() : 0;
  return s;
}

}  // namespace gyre
