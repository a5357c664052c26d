// Speculative decoding: proposed next tokens become further rows of their sequence in a pass, and every row is drawn
// from as ever. Draws count as long as they are what was proposed, so that only the time changes.
//
// What is proposed followed the same tokens before, in whatever the engine has read and drawn: agents repeat their
// prompts, their turns and each other. The random number of a draw is known beforehand (uniform(seed, position)), so
// with each token the share of [0, 1) is kept that drew it, and it is proposed for numbers in this share alone.
//
// How many tokens are proposed follows from what they have been worth: the share of right ones by the kind of match,
// which every drawn token tells, proposed or not; and the time of a row beside a pass's others, which passes tell.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/request.h"
#include "engine/sampler.h"

namespace gyre {

// The tokens that have followed others.
class LookUp {
 public:
  static constexpr std::array<int64_t, 4> kOrders = {2, 4, 8, 16};  // tokens that must be the same
  static constexpr int kKinds = 2 * kOrders.size();                 // of each order: drawn, or from a prompt

  struct Found {
    int32_t token;
    int kind;
  };

  LookUp() : buckets_(kBuckets) {}
  // The last of the tokens follows those before it. A prompt's share is all, and takes no drawn token's place.
  void learn(std::span<const int32_t> tokens, Share share, bool drawn);
  // What followed the last tokens and is drawn by this number; of several, the kind of the highest rate.
  std::optional<Found> find(std::span<const int32_t> tokens, double u, std::span<const double> rates) const;

 private:
  static constexpr size_t kBuckets = 1 << 16;
  struct Entry {
    uint32_t check = 0;  // of the tokens before
    int32_t token = -1;
    Share share;
  };
  using Bucket = std::array<Entry, 2>;  // the newer one first
  using Hashes = std::array<uint64_t, kOrders.size()>;

  // Of the last tokens, by order; returns for how many orders there are enough of them.
  static size_t hash(std::span<const int32_t> tokens, Hashes& hashes);

  std::vector<Bucket> buckets_;
};

// How long an engine's passes take, by the number of sequences and of the further rows that speculation adds: that
// of its n sequences' rows alone, times 1 + slope · further rows / n.
class Pace {
 public:
  // Whether a further row that is right with this probability pays, beside `extra` ones of which `right` are expected
  // to be right.
  bool pays(double probability, int64_t sequences, int64_t extra, double right) const;
  void measured(int64_t sequences, int64_t extra, double seconds);
  // Whether a pass of n sequences should try nothing, so that the time of their rows alone is known.
  bool unknown(int64_t sequences) const { return groups_[group(sequences)].tried >= kTries; }

 private:
  static constexpr double kFirstSlope = 0.3;
  static constexpr int kTries = 64;
  struct Passes {
    double slope = kFirstSlope;
    double seconds = 0;     // of a pass of so many rows
    int64_t sequences = 0;  // 0: none measured
    int tried = kTries;     // passes with further rows since the last one without
  };
  static size_t group(int64_t sequences);

  std::array<Passes, 16> groups_;  // by the binary logarithm of the number of sequences
};

class Speculation {
 public:
  // At most `most` proposed tokens for a sequence and pass; `always`: all that are found, whatever they are worth.
  Speculation(int64_t most, bool always, int64_t max_length) : most_(most), always_(always), max_length_(max_length) {}

  // Proposals for the sequences that the coming pass samples, handed to extend(); `alone`: it computes nothing else.
  void propose(std::span<Sequence* const> sampled, bool alone,
               const std::function<void(Sequence&, std::span<const int32_t>)>& extend);
  // The sequence's last token has been drawn.
  void learn(Sequence& sequence, const Draw& draw);
  // The pass that proposals were made for took so long.
  void measured(std::span<Sequence* const> sampled, bool alone, double seconds);

 private:
  // While proposals do not pay, and looking up takes a share of a pass's time, a part of the sequences tells whether
  // they would.
  static constexpr uint64_t kPart = 16;
  static constexpr int kPatience = 64;    // passes without proposals until then
  static constexpr double kCheap = 1e-4;  // seconds of a pass for each sequence, far more than looking up takes

  bool takes_part(const Sequence& s) const { return always_ || cheap_ || patience_ > 0 || s.request.id % kPart == 0; }
  // Tokens to propose, and for each the probability that all up to it are right.
  struct Chain {
    std::vector<int32_t> tokens{};
    std::vector<double> right{};
  };
  // How many tokens of each chain a pass is to try, and how many of all are expected to be right.
  struct Choice {
    std::vector<int64_t> taken;
    int64_t extra = 0;
    double right = 0;
  };

  // Learns a sequence's tokens up to a position that it has not learned from draws.
  void read(Sequence& sequence, int64_t until);
  Chain look_up(Sequence& sequence);
  Choice choose(std::span<const Chain> chains) const;

  int64_t most_;
  bool always_;
  int64_t max_length_;
  LookUp known_;
  std::array<double, LookUp::kKinds> rates_ = [] {
    std::array<double, LookUp::kKinds> all;
    all.fill(0.5);
    return all;
  }();
  Pace pace_;
  int patience_ = kPatience;
  bool cheap_ = true;
};

}  // namespace gyre
