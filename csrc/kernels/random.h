// Random numbers that are functions of a key and a counter: no order of events can change them.
#pragma once

#include <array>
#include <cstdint>

namespace gyre {

// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011).
inline constexpr uint32_t kPhiloxMultipliers[] = {0xD2511F53, 0xCD9E8D57}, kPhiloxSteps[] = {0x9E3779B9, 0xBB67AE85};
inline constexpr int kPhiloxRounds = 10;

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = uint64_t{kPhiloxMultipliers[0]} * counter[0], b = uint64_t{kPhiloxMultipliers[1]} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key = {key[0] + kPhiloxSteps[0], key[1] + kPhiloxSteps[1]};
  }
  return counter;
}

// The output function of SplitMix64 (Steele, Lea and Flood 2014): 64 random bits for a counter, and a one-to-one map.
inline uint64_t split_mix(uint64_t counter) {
  uint64_t z = (counter + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace gyre
