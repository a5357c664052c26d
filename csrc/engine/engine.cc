#include "engine/engine.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <stdexcept>
#include <utility>

#include "kernels/parallel.h"
#include "model/errors.h"

namespace gyre {
namespace {

constexpr int64_t kHeadRows = 64;  // rows of logits kept at once

void require(bool holds, const std::string& message) {
  if (!holds) throw std::invalid_argument(message);
}

const EngineConfig& checked(const EngineConfig& c, const ModelConfig& model) {
  require(model.head == HeadKind::kLanguageModel, "engine: the model has a value head, which predicts no tokens");
  require(c.max_sequences >= 1, "engine: max_sequences must be at least 1, got " + std::to_string(c.max_sequences));
  require(c.max_batch_tokens >= 1,
          "engine: max_batch_tokens must be at least 1, got " + std::to_string(c.max_batch_tokens));
  require(c.max_length >= 2,
          "engine: max_length must be at least 2 (a prompt token and a new one), got " + std::to_string(c.max_length));
  require(c.max_length <= model.max_positions, "engine: max_length " + std::to_string(c.max_length) +
                                                   " is more than the model's " + std::to_string(model.max_positions) +
                                                   " positions");
  require(c.kv_bytes >= 0, "engine: kv_bytes must not be negative, got " + std::to_string(c.kv_bytes));
  return c;
}

int64_t pool_pages(const EngineConfig& c, const ModelConfig& model) {
  const int64_t page = KvPages::bytes_per_page(model);
  const int64_t pages = c.kv_bytes == 0 ? c.max_sequences * pages_for(c.max_length) : c.kv_bytes / page;
  require(pages >= 1, "engine: kv_bytes " + std::to_string(c.kv_bytes) + " is less than one page of " +
                          std::to_string(kPageTokens) + " positions, " + std::to_string(page) + " bytes");
  require(pages <= std::numeric_limits<int32_t>::max(),
          "engine: a KV pool of " + std::to_string(pages) + " pages is too large");
  return pages;
}

}  // namespace

Engine::Engine(Decoder& decoder, const EngineConfig& config)
    : decoder_(decoder),
      config_(checked(config, decoder.config())),
      weights_(decoder.version()),
      scheduler_(pool_pages(config, decoder.config()), config.max_sequences, config.max_batch_tokens) {}

void Engine::set_vocabulary(std::string data, std::vector<int64_t> offsets) {
  stop_matcher_.set_vocabulary(std::move(data), std::move(offsets));
}

void Engine::check(const Request& request) const {
  const std::string name = "request " + std::to_string(request.id) + ": ";
  const Sampling& s = request.sampling;
  const int64_t prompt = static_cast<int64_t>(request.prompt.size()), vocab = decoder_.config().vocab_size;
  require(!scheduler_.contains(request.id), name + "an unfinished request has the same id");
  require(prompt >= 1, name + "the prompt is empty");
  const auto foreign = std::ranges::find_if(request.prompt, [&](int32_t id) { return id < 0 || id >= vocab; });
  if (foreign != request.prompt.end())
    throw std::invalid_argument(name + "prompt token " + std::to_string(foreign - request.prompt.begin()) + " is " +
                                std::to_string(*foreign) + ", outside the vocabulary of " + std::to_string(vocab));
  require(s.temperature == 0 || (s.temperature >= 1e-4 && s.temperature <= 1e4),
          name + "temperature must be 0 (greedy) or between 1e-4 and 1e4, got " + std::to_string(s.temperature));
  require(s.top_k >= 0, name + "top_k must not be negative (0 = off), got " + std::to_string(s.top_k));
  require(s.top_p > 0 && s.top_p <= 1, name + "top_p must be above 0 and at most 1, got " + std::to_string(s.top_p));
  require(s.min_p >= 0 && s.min_p <= 1, name + "min_p must be between 0 and 1, got " + std::to_string(s.min_p));
  require(s.max_tokens >= 1, name + "max_tokens must be at least 1, got " + std::to_string(s.max_tokens));
  require(s.min_tokens >= 0 && s.min_tokens <= s.max_tokens, name + "min_tokens must be between 0 and max_tokens " +
                                                                 std::to_string(s.max_tokens) + ", got " +
                                                                 std::to_string(s.min_tokens));
  require(request.stop_strings.empty() || stop_matcher_.has_vocabulary(),
          name + "stop strings need the vocabulary to be set first");
  for (const std::string& stop : request.stop_strings) require(!stop.empty(), name + "a stop string is empty");
  require(prompt < config_.max_length, name + "the prompt has " + std::to_string(prompt) +
                                           " tokens, but prompt and output together may have " +
                                           std::to_string(config_.max_length) + " (max_length)");
  // The last token is never computed.
  const int64_t pages = pages_for(prompt + std::min(s.max_tokens, config_.max_length - prompt) - 1);
  require(pages <= scheduler_.pages().total(),
          name + "a prompt of " + std::to_string(prompt) + " and up to " + std::to_string(s.max_tokens) +
              " new tokens needs " + std::to_string(pages) + " KV pages, but the pool has " +
              std::to_string(scheduler_.pages().total()) + ": give the engine kv_bytes of at least " +
              std::to_string(pages * KvPages::bytes_per_page(decoder_.config())));
}

void Engine::submit(Request request) {
  check(request);
  scheduler_.add(std::make_unique<Sequence>(std::move(request)));
}

void Engine::forget_older_weights() {
  if (weights_ == decoder_.version()) return;
  scheduler_.forget();
  weights_ = decoder_.version();
}

int64_t Engine::step() {
  forget_older_weights();
  if (scheduler_.unfinished() == 0) return 0;
  scheduler_.schedule();

  std::vector<int32_t> ids;
  std::vector<RowSpan> spans;
  std::vector<Sequence*> sampled;
  std::vector<int64_t> sampled_rows;
  for (const auto& s : scheduler_.running()) {
    if (s->scheduled == 0) continue;
    spans.push_back({static_cast<int64_t>(ids.size()), s->scheduled, s->computed, s->pages});
    const auto first = s->tokens.begin() + s->computed;
    ids.insert(ids.end(), first, first + s->scheduled);
    if (!s->samples()) continue;
    sampled.push_back(s.get());
    sampled_rows.push_back(static_cast<int64_t>(ids.size()) - 1);
  }
  if (ids.empty()) throw std::logic_error("engine: nothing could be scheduled although requests are waiting");

  if (!kv_) kv_.emplace(decoder_.config(), scheduler_.pages().total());
  const at::Tensor hidden_NH = decoder_.forward(ids, spans, *kv_);
  const std::vector<Draw> draws = draw(hidden_NH, sampled_rows, sampled);

  // From here on nothing throws for reasons of the model, so that a failed step leaves every request as it was.
  ++steps_;
  for (const auto& s : scheduler_.running()) {
    (s->decoding() ? decode_tokens_ : prefill_tokens_) += s->scheduled;
    s->computed += s->scheduled;
  }
  for (size_t i = 0; i < sampled.size(); ++i) {
    int64_t stop_index = -1;
    const Finish reason = advance(*sampled[i], draws[i], &stop_index);
    if (reason != Finish::kNone) finish(sampled[i]->request.id, reason, stop_index);
  }
  return scheduler_.unfinished();
}

std::vector<Draw> Engine::draw(const at::Tensor& hidden_NH, std::span<const int64_t> rows,
                               std::span<Sequence* const> sequences) {
  const int64_t hidden = decoder_.config().hidden_size, vocab = decoder_.config().vocab_size;
  const int64_t count = static_cast<int64_t>(rows.size());
  std::vector<Draw> draws(count);
  std::vector<std::exception_ptr> failures(count);
  for (int64_t begin = 0; begin < count; begin += kHeadRows) {
    const int64_t n = std::min(kHeadRows, count - begin);
    at::Tensor hidden_RH = at::empty({n, hidden}, hidden_NH.options());
    for (int64_t r = 0; r < n; ++r)
      std::memcpy(hidden_RH.mutable_data_ptr<float>() + r * hidden,
                  hidden_NH.const_data_ptr<float>() + rows[begin + r] * hidden, hidden * sizeof(float));
    at::Tensor logits_RV = at::empty({n, vocab}, hidden_NH.options());
    decoder_.logits(hidden_RH, logits_RV);
    const float* logits = logits_RV.const_data_ptr<float>();
    parallel_for(n, std::max<int64_t>(1, 16384 / vocab), [&](int64_t r) {
      const Sequence& s = *sequences[begin + r];
      const Sampling& sampling = s.request.sampling;
      const bool may_stop = sampling.ignore_eos || s.outputs() >= sampling.min_tokens;
      try {
        draws[begin + r] = draw_token({logits + r * vocab, static_cast<size_t>(vocab)}, sampling, s.outputs(),
                                      may_stop ? std::span<const int32_t>() : std::span(s.request.stop_ids));
      } catch (...) {
        failures[begin + r] = std::current_exception();
      }
    });
  }
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return draws;
}

// Appends the drawn token and says whether it ends the sequence.
Finish Engine::advance(Sequence& s, const Draw& draw, int64_t* stop_index) const {
  s.tokens.push_back(draw.token);
  s.logprobs.push_back(draw.logprob);
  s.sampling_logprobs.push_back(draw.sampling_logprob);
  const Sampling& sampling = s.request.sampling;
  *stop_index = stop_matcher_.advance(s);
  if (!sampling.ignore_eos && std::ranges::find(s.request.stop_ids, draw.token) != s.request.stop_ids.end()) {
    *stop_index = -1;
    return Finish::kStop;
  }
  if (*stop_index >= 0) return Finish::kStop;
  if (s.outputs() >= sampling.max_tokens || s.length() >= config_.max_length) return Finish::kLength;
  return Finish::kNone;
}

void Engine::finish(uint64_t id, Finish reason, int64_t stop_index) {
  const std::unique_ptr<Sequence> s = scheduler_.remove(id);
  cached_tokens_ += s->cached;
  prompt_tokens_ += s->prompt_length();
  finished_.push_back({.id = id,
                       .finish = reason,
                       .tokens = {s->tokens.begin() + s->prompt_length(), s->tokens.end()},
                       .logprobs = std::move(s->logprobs),
                       .sampling_logprobs = std::move(s->sampling_logprobs),
                       .stop_index = stop_index,
                       .cached_tokens = s->cached});
}

std::optional<Output> Engine::poll(int64_t max_tokens) {
  if (finished_.empty() || static_cast<int64_t>(finished_.front().tokens.size()) > max_tokens) return std::nullopt;
  Output output = std::move(finished_.front());
  finished_.pop_front();
  return output;
}

void Engine::abort(uint64_t id) {
  if (scheduler_.contains(id)) {
    finish(id, Finish::kAbort, -1);
  } else if (std::ranges::none_of(finished_, [id](const Output& o) { return o.id == id; })) {
    throw NotFoundError("abort: no request has id " + std::to_string(id));
  }
}

void Engine::sleep() {
  scheduler_.forget();
  kv_.reset();
  decoder_.release_packed();
}

EngineStats Engine::stats() const {
  EngineStats s;
  s.waiting = scheduler_.waiting();
  s.running = scheduler_.unfinished() - s.waiting;
  s.finished = static_cast<int64_t>(finished_.size());
  s.pages_total = scheduler_.pages().total();
  s.pages_free = scheduler_.pages().free();
  s.prefill_tokens = prefill_tokens_;
  s.decode_tokens = decode_tokens_;
  s.cached_tokens = cached_tokens_;
  s.prompt_tokens = prompt_tokens_;
  s.preemptions = scheduler_.preemptions();
  s.steps = steps_;
  s.kv_bytes = kv_ ? s.pages_total * KvPages::bytes_per_page(decoder_.config()) : 0;
  return s;
}

}  // namespace gyre
