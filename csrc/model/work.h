// How much a decoder has computed and read, counted from shapes: profiling divides it by time and by what the machine
// can do.
#pragma once

#include <cstdint>

#include "model/config.h"
#include "model/pass.h"

namespace gyre {

// Arithmetic that was carried out (recomputation included, shared prefixes once) and the least traffic that it takes.
struct Work {
  double flops = 0;  // of matrix products and attention; a multiply-add counts two
  double bytes = 0;  // weights once per pass, keys and values once per sequence and pass

  Work& operator+=(const Work& other) {
    flops += other.flops;
    bytes += other.bytes;
    return *this;
  }
};

Work operator-(const Work& a, const Work& b);
Work operator*(const Work& work, double times);

// All blocks over the rows of a pass; embedding, norms and rotations are not counted.
Work forward_work(const ModelConfig& config, const Pass& pass);
// Its backward pass: each product of the forward has two, and attention computes its scores again.
Work backward_work(const ModelConfig& config, const Pass& pass);
// `rows` rows of logits (or values).
Work head_work(const ModelConfig& config, int64_t rows);

}  // namespace gyre
