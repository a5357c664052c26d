// Inner products of f32 vectors in f64.
#pragma once

#include <cstdint>
#include <span>

namespace gyre {

// Σ_i a[i]·b[i] over n entries. Product i is added to stripe i mod 8 and the stripes in order at the end, so that
// dot_pairs gives the same bits: out[pair] for all pairs a <= b of vectors, row by row of the upper triangle.
double dot(const float* a, const float* b, int64_t n);
void dot_pairs(std::span<const float* const> vectors, int64_t n, double* out);

}  // namespace gyre
