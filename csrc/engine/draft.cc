#include "engine/draft.h"

#include <chrono>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "engine/engine.h"

namespace gyre {

Draft::Draft(std::shared_ptr<Decoder> decoder, gyre_engine_config config, int64_t pages)
    : decoder_(std::move(decoder)), max_length_(std::min(config.max_length, decoder_->config().max_positions)) {
  config.kv_bytes = pages * decoder_->bytes_per_page();
  config.max_length = max_length_;
  config.prefix_cache = true;
  config.speculative_tokens = 0;
  engine_ = std::make_unique<Engine>(*decoder_, config);
}

Draft::~Draft() = default;

void Draft::guess(std::span<Sequence* const> sequences, int64_t most) {
  using Seconds = std::chrono::duration<double>;
  const auto begun = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return Seconds(std::chrono::steady_clock::now() - begun).count(); };
  std::unordered_map<uint64_t, Sequence*> asked;
  for (Sequence* const s : sequences) {
    s->guesses.clear();
    s->guessed = s->length();
    Request r{.id = ++requests_, .prompt = s->tokens, .sampling = s->request.sampling, .stop_ids = s->request.stop_ids};
    r.drawn = s->outputs();  // draws go on from there
    const int64_t count = std::min({most, r.sampling.max_tokens - r.drawn - 1, max_length_ - s->length() - 1});
    if (count <= 0) continue;
    r.sampling.max_tokens = r.drawn + count;
    r.sampling.min_tokens = std::min(r.sampling.min_tokens, r.sampling.max_tokens);
    r.sampling.alternatives = 0;
    engine_->submit(std::move(r));
    asked.emplace(requests_, s);
  }
  double first = 0, before = 0, last = 0;
  int64_t passes = 0;
  try {
    for (int64_t unfinished = std::ssize(asked); unfinished > 0; ++passes) {
      before = elapsed();
      unfinished = engine_->step();
      last = elapsed() - before;
      if (passes == 0) first = last;
    }
  } catch (const NotFiniteError&) {  // the policy has lost nothing
    for (const auto& [id, s] : asked) engine_->abort(id);
  }
  while (const auto output = engine_->poll(max_length_)) {
    const auto found = asked.find(output->id);
    if (found == asked.end() || output->finish == GYRE_FINISH_ABORT) continue;
    Sequence& s = *found->second;
    const size_t end = output->tokens.size() - (output->finish == GYRE_FINISH_STOP ? 1 : 0);  // nothing follows a stop
    for (size_t i = s.outputs(); i < end; ++i) {
      const double others = -std::expm1(output->logprobs[i]), halvings = -std::log2(others);
      s.guesses.push_back({output->tokens[i], static_cast<int>(std::clamp(halvings, 0.0, kChances - 1.0))});
    }
  }
  if (passes == 0) return;
  balance_ -= elapsed();
  // Of prompts, and of what was drawn without the draft, only the account is to know.
  pace_.measured(std::ssize(asked), 0, (elapsed() - first + last) / static_cast<double>(passes));
}

bool Draft::learn(Sequence& s) {
  const int64_t i = s.length() - 1 - s.guessed;
  if (i < 0 || i >= std::ssize(s.guesses)) return false;
  constexpr double kStep = 1.0 / 32;
  const Guess guess = s.guesses[i];
  const bool right = guess.token == s.tokens.back();
  for (double* chance : {&chance_, &chances_[guess.chance]}) *chance += kStep * ((right ? 1 : 0) - *chance);
  if (!right) s.guesses.clear();
  return right && s.drafted && i < std::ssize(s.draft);
}

}  // namespace gyre
