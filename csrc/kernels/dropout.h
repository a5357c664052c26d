// Which numbers of a row are dropped: a function of a key, a stream, the row's own number and the place in the row.
#pragma once

#include <cstdint>

#include "kernels/isa.h"
#include "kernels/precision.h"

namespace gyre {

// A number is dropped where its random word is below `below`. Its word, of place i in a row with number r, is word
// (i / 16) mod 4 of philox4x32({i / 64 * 16 + i mod 16, r's lower half, r's upper half, stream}, key).
struct DropKey {
  uint64_t key;
  uint32_t stream, below;
};

// y[rows, width] = x with zeros where numbers are dropped; y may be x. Rows lie ldx and ldy floats apart.
GYRE_KERNEL(void, drop, const DropKey& key, const uint64_t* numbers, int64_t rows, int64_t width, const float* x,
            int64_t ldx, float* y, int64_t ldy);
// The same of operands (gemm.h) in that precision, rows of operand_width().
GYRE_KERNEL(void, drop_operands, const DropKey& key, const uint64_t* numbers, int64_t rows, int64_t width,
            Precision precision, const float* x, float* y);

}  // namespace gyre
