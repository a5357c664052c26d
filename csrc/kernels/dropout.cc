#include "kernels/dropout.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/gemm.h"
#include "kernels/panel.h"
#include "kernels/parallel.h"
#include "kernels/random.h"

namespace gyre {
namespace {

constexpr int64_t kCounters = 16, kBlockWords = 4 * kCounters;  // counters of a block, and their words

// Numbers of 32 bits in lanes of 64, whose upper halves mean nothing.
constexpr int64_t kHalf = kLanes / 2;
typedef uint64_t Wide __attribute__((vector_size(8 * kHalf)));
typedef uint32_t Numbers __attribute__((vector_size(4 * kHalf)));

Wide product(Wide a, Wide b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Wide>(_mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Wide>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__SSE2__) && !defined(__AVX__)
  return reinterpret_cast<Wide>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  return (a & 0xffffffff) * (b & 0xffffffff);
#endif
}

// All ones for the numbers of a block that are kept, zeros for others.
void keep_block(const DropKey& of, uint64_t row, int64_t block, uint32_t* keep) {
  Wide lanes;
  for (int64_t i = 0; i < kHalf; ++i) lanes[i] = static_cast<uint64_t>(i);
  for (int64_t first = 0; first < kCounters; first += kHalf) {
    Wide words[] = {Wide{}, Wide{} + row, Wide{} + (row >> 32), Wide{} + of.stream};
    auto& [a, b, c, d] = words;
    a += lanes + static_cast<uint64_t>(block * kCounters + first);
    uint32_t key[] = {static_cast<uint32_t>(of.key), static_cast<uint32_t>(of.key >> 32)};
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const Wide p = product(a, Wide{} + kPhiloxMultipliers[0]), q = product(c, Wide{} + kPhiloxMultipliers[1]);
      a = (q >> 32) ^ b ^ key[0], b = q;
      c = (p >> 32) ^ d ^ key[1], d = p;
      key[0] += kPhiloxSteps[0], key[1] += kPhiloxSteps[1];
    }
    for (int64_t j = 0; j < 4; ++j) {
      const auto kept = __builtin_convertvector(words[j], Numbers) >= of.below;  // -1 or 0
      std::memcpy(keep + j * kCounters + first, &kept, sizeof kept);
    }
  }
}

// Calls body(keep, row, first place, places) for all blocks of all rows.
template <class Body>
void for_blocks(const DropKey& of, const uint64_t* numbers, int64_t rows, int64_t width, Body&& body) {
  parallel_for(rows, std::max<int64_t>(1, 16384 / width), [&](int64_t r) {
    for (int64_t first = 0; first < width; first += kBlockWords) {
      uint32_t keep[kBlockWords];
      keep_block(of, numbers[r], first / kBlockWords, keep);
      body(keep, r, first, std::min(kBlockWords, width - first));
    }
  });
}

float where(float x, uint32_t keep) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & keep); }

}  // namespace

void drop(const DropKey& of, const uint64_t* numbers, int64_t rows, int64_t width, const float* x, int64_t ldx,
          float* y, int64_t ldy) {
  for_blocks(of, numbers, rows, width, [&](const uint32_t* keep, int64_t r, int64_t first, int64_t n) {
    const float* from = x + r * ldx + first;
    float* to = y + r * ldy + first;
    for (int64_t i = 0; i < n; ++i) to[i] = where(from[i], keep[i]);
  });
}

void drop_operands(const DropKey& of, const uint64_t* numbers, int64_t rows, int64_t width, Precision precision,
                   const float* x, float* y) {
  const int64_t ld = operand_width(precision, width);
  if (precision == Precision::kFloat32) return drop(of, numbers, rows, width, x, ld, y, ld);
  for_blocks(of, numbers, rows, width, [&](const uint32_t* keep, int64_t r, int64_t first, int64_t n) {
    const int64_t pairs = ceil_div(n, 2), at = r * ld + first / 2 * (kWords ? 1 : 2);
    for (int64_t i = 0; i < pairs; ++i) {
      const uint32_t even = keep[2 * i], odd = keep[2 * i + 1];
      if constexpr (kWords) {
        y[at + i] = where(x[at + i], (even & 0xffff) | (odd & 0xffff0000));
      } else {  // the odd position before the even one
        y[at + 2 * i] = where(x[at + 2 * i], odd), y[at + 2 * i + 1] = where(x[at + 2 * i + 1], even);
      }
    }
  });
}

}  // namespace gyre
