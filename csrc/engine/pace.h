// How long an engine's passes take, by the number of sequences and of the further rows that speculation adds: the
// policy's and those of its draft.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gyre {

// Time of a pass: that of its n sequences' rows alone, times 1 + slope · further rows / n.
class Pace {
 public:
  // Whether a further row that is right with this probability pays, beside `extra` ones of which `right` are expected
  // to be right.
  bool pays(double probability, int64_t sequences, int64_t extra, double right) const;
  void measured(int64_t sequences, int64_t extra, double seconds);
  // Whether a pass of n sequences should try nothing, so that the time of their rows alone is known.
  bool unknown(int64_t sequences) const { return groups_[group(sequences)].tried >= kTries; }
  // Of a pass of n sequences' rows alone; 0: none measured.
  double seconds(int64_t sequences) const { return groups_[group(sequences)].seconds; }
  double slope(int64_t sequences) const { return groups_[group(sequences)].slope; }

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

}  // namespace gyre
