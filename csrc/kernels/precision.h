// In which type products are computed. bfloat16 means: both factors rounded to bf16 (to nearest even, denormals to
// zero), sums in f32, denormal numbers as zeros, in the order of one of the processors' own instructions:
//   VDPBF16PS  of every pair of inner positions first the odd one's product is added, then the even one's, each with
//   one
//              rounding
//   TDPBF16PS  (AMX) of every 16 pairs the even ones' products make one chain of fused multiply-adds that starts at
//              zero, the odd ones' another; the sum of both is added
// Ordinary fused multiply-adds give the bits of either when they treat denormals in that way.
#pragma once

#include <bit>
#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace gyre {

enum class Precision : int32_t { kFloat32, kBfloat16 };

inline constexpr int64_t bytes_of(Precision p) { return p == Precision::kBfloat16 ? 2 : 4; }

inline uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);  // a quiet NaN
  if ((bits & 0x7f800000) == 0) return static_cast<uint16_t>(bits >> 16 & 0x8000);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float from_bf16(uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); }

// While it lives, this thread's denormal inputs and results are zeros.
class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }  // FTZ, DAZ
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#elif defined(__aarch64__)
  FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" ::"r"(before_ | uint64_t{1} << 24));  // FZ
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" ::"r"(before_)); }

 private:
  uint64_t before_;
#else
  FlushDenormals() {}  // NOLINT: so that an object of it is no unused variable
#endif
 public:
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;
};

}  // namespace gyre
