// A draft model for speculative decoding: a small model of the policy's vocabulary draws the next tokens with the
// random numbers that the policy's draws will have. The closer its distributions are to the policy's, the more often a
// number draws the same token from both. An engine of its own makes the draft's passes, and finds the keys and values
// of what came true in its prefix cache.
//
// What the draft is worth is measured: how often its guesses come true, the time of its passes, and an account of the
// time that it has saved and cost, which ends what prompts or changed weights have made a loss.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "engine/pace.h"
#include "engine/request.h"

namespace gyre {

class Engine;

class Draft {
 public:
  // For the policy's engine of this configuration, whose pool has so many pages; so has the draft's.
  Draft(std::shared_ptr<Decoder> decoder, gyre_engine_config config, int64_t pages);
  ~Draft();

  // Gives each sequence up to `most` guesses: none where the draft has no room, and those before a stop id.
  void guess(std::span<Sequence* const> sequences, int64_t most);
  // The sequence's last token has been drawn. True when it was guessed and a row of the pass.
  bool learn(Sequence& sequence);
  // Probabilities that a guess is right after right ones: this one, and any.
  double chance(const Guess& guess) const { return chances_[guess.chance]; }
  double chance() const { return chance_; }
  // Time of a pass of the draft; 0: none measured.
  double seconds(int64_t sequences) const { return pace_.seconds(sequences); }

  // Whether the account bears another use, where one is thought to pay or only to be tried. `pass`: time of a pass of
  // the policy.
  bool affords(bool pays, double pass) const { return balance_ > (pays ? -kDebt * pass : 0); }
  void earn(double seconds, double pass) { balance_ = std::min(balance_ + seconds, kSavings * pass); }

  const Decoder& decoder() const { return *decoder_; }
  Engine& engine() const { return *engine_; }

 private:
  static constexpr double kDebt = 16, kSavings = 2;  // passes of the policy
  static constexpr int kChances = 6;                 // by the probability of the draft's token, 1 - 2^-i and more

  std::shared_ptr<Decoder> decoder_;
  std::unique_ptr<Engine> engine_;
  int64_t max_length_;
  uint64_t requests_ = 0;
  std::array<double, kChances> chances_ = {0.3, 0.5, 0.7, 0.8, 0.9, 0.95};
  double chance_ = 0.5;
  Pace pace_;
  double balance_ = std::numeric_limits<double>::infinity();  // the first pass that is measured makes it kSavings
};

}  // namespace gyre
