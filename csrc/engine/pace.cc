#include "engine/pace.h"

#include <algorithm>
#include <bit>

namespace gyre {

size_t Pace::group(int64_t sequences) { return std::min<size_t>(std::bit_width(static_cast<uint64_t>(sequences)), 15); }

bool Pace::pays(double probability, int64_t sequences, int64_t extra, double right) const {
  constexpr double kMargin = 1.7;  // 1.3 was 4 % slower than plain decoding for 16 sequences
  const double slope = groups_[group(sequences)].slope, n = static_cast<double>(sequences);
  return probability * (n + slope * static_cast<double>(extra)) > kMargin * slope * (n + right);
}

// A step of least squares towards what was measured, outliers cut off: others may have had the cores.
void Pace::measured(int64_t sequences, int64_t extra, double seconds) {
  auto& [slope, expected, before, tried] = groups_[group(sequences)];
  const double n = static_cast<double>(sequences), more = static_cast<double>(extra) / n;
  if (before == 0) {
    expected = seconds / (1 + slope * more);
  } else {
    expected *= 1 + slope * (n / static_cast<double>(before) - 1);
  }
  before = sequences;
  const double error = std::clamp(seconds / expected - (1 + slope * more), -0.5, 0.5);
  expected *= 1 + (extra > 0 ? 0.05 : tried < kTries ? 0.2 : 0.5) * error;
  tried = extra > 0 ? tried + 1 : 0;
  if (extra == 0) {
    slope += 0.001 * (kFirstSlope - slope);  // tried again one day
  } else {
    slope = std::clamp(slope + 0.2 * error * more / (0.1 + more * more), 0.01, 1.5);
  }
}

}  // namespace gyre
