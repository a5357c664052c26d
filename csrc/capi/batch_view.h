// Spans over the arrays of gyre_batch and over what is aligned with it.
#pragma once

#include <span>
#include <stdexcept>
#include <string>

#include "capi/guard.h"
#include "train/batch.h"

namespace gyre::capi {

// The lengths come from the offsets, of which only the last is looked at here; gyre::validate checks the rest.
inline Batch batch_view(const gyre_batch* batch) {
  const gyre_batch& b = deref(batch, "batch");
  if (b.num_sequences < 1) {
    throw std::invalid_argument("batch: num_sequences is " + std::to_string(b.num_sequences) + ", expected at least 1");
  }
  const int64_t tokens = (&deref(b.offsets, "batch offsets"))[b.num_sequences];
  if (tokens < 1)
    throw std::invalid_argument("batch: the last offset is " + std::to_string(tokens) + ", expected at least 1");
  const size_t n = static_cast<size_t>(tokens);
  return {.offsets = {b.offsets, static_cast<size_t>(b.num_sequences) + 1},
          .ids = {&deref(b.ids, "batch ids"), n},
          .mask = {&deref(b.mask, "batch mask"), n}};
}

// A token-aligned array that must be given.
template <typename T>
std::span<T> required(T* values, const Batch& batch, const char* name) {
  return {&deref(values, name), batch.ids.size()};
}

// A token-aligned array that may be NULL, which gives an empty span.
template <typename T>
std::span<T> optional(T* values, const Batch& batch) {
  return values == nullptr ? std::span<T>() : std::span<T>(values, batch.ids.size());
}

}  // namespace gyre::capi
