// Which experts of a mixture compute a row (Shazeer et al. 2017): those with the largest router logits, the first of
// equal ones. It depends on nothing but the row, so that sampler and trainer always choose the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gyre.h"

namespace gyre {

// softmax(logits) of one row, in f64.
void softmax_row(std::span<const float> logits, std::span<double> probabilities);

// The experts of one row, in ascending order.
void choose_experts(std::span<const float> logits, std::span<int32_t> chosen);

// All rows of a pass by experts. A pair is a row and an expert of it; pairs lie one expert after another, rows of each
// in order.
struct Routes {
  // logits: [rows, experts]
  Routes(const gyre_shape& shape, const float* logits, int64_t rows);

  // From gradients of the pairs' weights: adds to those of the logits, [rows, experts].
  void backward(std::span<const float> d_weights, float* d_logits) const;

  // The rows of an expert's pairs.
  std::span<const int32_t> rows_of(size_t expert) const {
    return std::span(rows).subspan(static_cast<size_t>(first[expert]),
                                   static_cast<size_t>(first[expert + 1] - first[expert]));
  }
  int64_t pairs() const { return static_cast<int64_t>(rows.size()); }

  std::vector<int64_t> first;   // pair of each expert, and how many there are
  std::vector<int32_t> rows;    // of pairs
  std::vector<float> weights;   // of pairs
  std::vector<int32_t> chosen;  // [rows, chosen] experts, ascending
  std::vector<int32_t> places;  // their pairs

 private:
  std::span<const float> logits_of(int64_t row) const;

  const gyre_shape& shape_;
  const float* logits_;
};

}  // namespace gyre
