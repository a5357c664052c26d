#include "engine/request.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace gyre {

void StopMatcher::set_vocabulary(std::string data, std::vector<int64_t> offsets) {
  data_ = std::move(data);
  offsets_ = std::move(offsets);
}

// Ids behind the table are padding of the embedding matrix: they stand for no text.
void StopMatcher::append(Sequence& sequence, int32_t id) const {
  if (const auto token = static_cast<size_t>(id); token + 1 < offsets_.size())
    sequence.text.append(data_, offsets_[token], offsets_[token + 1] - offsets_[token]);
}

void StopMatcher::resume(Sequence& sequence) const {
  if (sequence.request.stop_strings.empty()) return;
  for (int64_t i = sequence.prompt_length(); i < sequence.length(); ++i) append(sequence, sequence.tokens[i]);
}

bool StopMatcher::advance(Sequence& sequence) const {
  const auto& stops = sequence.request.stop_strings;
  if (stops.empty()) return false;
  const size_t before = sequence.text.size();
  append(sequence, sequence.tokens.back());
  if (sequence.outputs() < sequence.request.sampling.min_tokens) return false;
  return std::ranges::any_of(stops, [&](const std::string& stop) {
    // A match that ended earlier was seen then (or forbidden by min_tokens): start where one can end in the new bytes.
    const size_t from = before + 1 > stop.size() ? before + 1 - stop.size() : 0;
    return sequence.text.find(stop, from) != std::string::npos;
  });
}

int64_t pool_pages(const gyre_engine_config& c, int64_t bytes_per_page) {
  if (c.kv_bytes != 0) return c.kv_bytes / bytes_per_page;
  int64_t pages = 0;
  return __builtin_mul_overflow(c.max_sequences, pages_for(c.max_length), &pages) ? std::numeric_limits<int64_t>::max()
                                                                                  : pages;
}

void check(const gyre_engine_config& c, const ModelConfig& model, int64_t bytes_per_page) {
  require(model.head == GYRE_HEAD_LM, "engine: the model has a value head, which predicts no tokens");
  require(c.max_sequences >= 1, "engine: max_sequences must be at least 1, got ", c.max_sequences);
  require(c.max_batch_tokens >= 1, "engine: max_batch_tokens must be at least 1, got ", c.max_batch_tokens);
  require(c.max_length >= 2, "engine: max_length must be at least 2 (a prompt token and a new one), got ",
          c.max_length);
  require(c.max_length <= model.max_positions, "engine: max_length ", c.max_length, " is more than the model's ",
          model.max_positions, " positions");
  require(c.kv_bytes >= 0, "engine: kv_bytes must not be negative, got ", c.kv_bytes);
  const int64_t pages = pool_pages(c, bytes_per_page), most = std::numeric_limits<int32_t>::max() - 1;
  require(pages >= 1, "engine: kv_bytes ", c.kv_bytes, " is less than one page of ", kPageTokens, " positions, ",
          bytes_per_page, " bytes");
  require(pages <= most, "engine: a KV pool of ", pages, " pages is too large, at most ", most,
          ": lower kv_bytes or max_sequences");
}

void check(const Request& request, const gyre_engine_config& config, const ModelConfig& model, int64_t bytes_per_page) {
  const std::string name = "request " + std::to_string(request.id) + ": ";
  const gyre_sampling& s = request.sampling;
  const int64_t prompt = static_cast<int64_t>(request.prompt.size()), vocab = model.vocab_size,
                pool = pool_pages(config, bytes_per_page);
  require(prompt >= 1, name, "the prompt is empty");
  const auto foreign = std::ranges::find_if(request.prompt, [&](int32_t id) { return id < 0 || id >= vocab; });
  if (foreign != request.prompt.end()) {
    throw std::invalid_argument(c10::str(name, "prompt token ", foreign - request.prompt.begin(), " is ", *foreign,
                                         ", outside the vocabulary of ", vocab));
  }
  require(s.temperature == 0 || (s.temperature >= 1e-4 && s.temperature <= 1e4), name,
          "temperature must be 0 (greedy) or between 1e-4 and 1e4, got ", s.temperature);
  require(s.top_k >= 0, name, "top_k must not be negative (0 = off), got ", s.top_k);
  require(s.top_p > 0 && s.top_p <= 1, name, "top_p must be above 0 and at most 1, got ", s.top_p);
  require(s.min_p >= 0 && s.min_p <= 1, name, "min_p must be between 0 and 1, got ", s.min_p);
  require(s.max_tokens >= 1, name, "max_tokens must be at least 1, got ", s.max_tokens);
  require(s.min_tokens >= 0 && s.min_tokens <= s.max_tokens, name, "min_tokens must be between 0 and max_tokens ",
          s.max_tokens, ", got ", s.min_tokens);
  const int64_t alternatives = std::min<int64_t>(GYRE_MAX_ALTERNATIVES, vocab);
  require(s.alternatives >= 0 && s.alternatives <= alternatives, name, "alternatives must be between 0 and ",
          alternatives, ", got ", s.alternatives);
  require(request.drawn >= 0 && request.drawn < std::min(prompt, s.max_tokens), name,
          "drawn must be between 0 and less than both the prompt's tokens and max_tokens, got ", request.drawn);
  require(!request.kept || request.drawn > 0, name, "it goes on from kept keys and values, but nothing of it is drawn");
  const int64_t all = config.max_sequences * pages_for(config.max_length);
  require(request.keep == GYRE_KEEP_NONE || pool >= all, name,
          "its keys and values can only be kept in a pool for max_sequences sequences of max_length tokens, ", all,
          " pages, but there are ", pool, ": leave kv_bytes 0 or lower max_sequences");
  for (const std::string& stop : request.stop_strings) require(!stop.empty(), name, "a stop string is empty");
  require(prompt < config.max_length, name, "the prompt has ", prompt,
          " tokens, but prompt and output together may have ", config.max_length, " (max_length)");
  // The last token is never computed.
  const int64_t pages = pages_for(prompt + std::min(s.max_tokens - request.drawn, config.max_length - prompt) - 1);
  require(pages <= pool, name, "a prompt of ", prompt, " and up to ", s.max_tokens, " new tokens needs ", pages,
          " KV pages, but the pool has ", pool, ": give the engine kv_bytes of at least ", pages * bytes_per_page);
}

}  // namespace gyre
