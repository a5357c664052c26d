// The wall between C++ and C: every fallible function of gyre.h is one call of guard(), so that no exception crosses
// the boundary and status and message come back together.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "backend/decoder.h"
#include "fsdp/group.h"
#include "fsdp/sharding.h"
#include "gyre.h"
#include "train/adamw.h"
#include "train/batch.h"
#include "train/gradients.h"

// What the opaque handles of gyre.h point to.
struct gyre_group {
  explicit gyre_group(gyre::GroupOptions options) : group(std::move(options)) {}
  gyre::Group group;
};

struct gyre_model {
  explicit gyre_model(const gyre::ModelConfig& config) : decoder(config) {}
  gyre_model(const gyre::ModelConfig& config, const gyre::Sharding& sharding)
      : decoder(config, gyre::shard(gyre::open_backend(config), config, sharding)), lanes(gyre::lanes_of(sharding)) {}
  gyre::Decoder decoder;
  gyre::Lanes lanes;
};

struct gyre_gradients {
  gyre_gradients(const gyre::Decoder& decoder, bool own) : gradients(decoder, own) {}
  gyre::Gradients gradients;
};

struct gyre_optimizer {
  gyre_optimizer(gyre::Decoder& decoder, const gyre_adamw_config& config) : adamw(decoder, config) {}
  gyre::AdamW adamw;
};

namespace gyre::capi {

// Copies the message, cut to GYRE_MESSAGE_SIZE, and returns the status.
inline gyre_status fail(gyre_error* err, gyre_status status, std::string_view message) noexcept {
  if (err != nullptr) {
    const size_t n = std::min(message.size(), size_t{GYRE_MESSAGE_SIZE - 1});
    std::memcpy(err->message, message.data(), n);
    err->message[n] = '\0';
  }
  return status;
}

// Throws std::invalid_argument when a pointer argument of the C ABI is NULL.
template <typename T>
T& deref(T* pointer, const char* name) {
  if (pointer == nullptr) throw std::invalid_argument(std::string(name) + " is NULL");
  return *pointer;
}

// Runs `body` without autograd and turns its exceptions into a status:
//   std::invalid_argument, std::out_of_range, c10::ValueError, c10::IndexError → INVALID_ARGUMENT
//   std::bad_alloc, c10::OutOfMemoryError, std::system_error of no memory    → OUT_OF_MEMORY
//   GroupError → DISCONNECTED, NotFiniteError → NOT_FINITE, NotFoundError → NOT_FOUND,
//   c10::NotImplementedError → UNSUPPORTED, anything else → INTERNAL
template <typename Body>
gyre_status guard(gyre_error* err, Body&& body) noexcept {
  try {
    at::NoGradGuard no_grad;
    std::forward<Body>(body)();
    return GYRE_OK;
  } catch (const NotFiniteError& e) {
    return fail(err, GYRE_NOT_FINITE, e.what());
  } catch (const GroupError& e) {
    return fail(err, GYRE_DISCONNECTED, e.what());
  } catch (const NotFoundError& e) {
    return fail(err, GYRE_NOT_FOUND, e.what());
  } catch (const std::invalid_argument& e) {
    return fail(err, GYRE_INVALID_ARGUMENT, e.what());
  } catch (const std::out_of_range& e) {
    return fail(err, GYRE_INVALID_ARGUMENT, e.what());
  } catch (const std::bad_alloc&) {
    return fail(err, GYRE_OUT_OF_MEMORY, "out of memory");
  } catch (const std::system_error& e) {  // a thread that could not be started, as a rule
    const bool memory =
        e.code() == std::errc::resource_unavailable_try_again || e.code() == std::errc::not_enough_memory;
    const std::string message = (memory ? "out of memory, or of threads: " : "") + std::string(e.what());
    return fail(err, memory ? GYRE_OUT_OF_MEMORY : GYRE_INTERNAL, message);
  } catch (const c10::OutOfMemoryError& e) {
    return fail(err, GYRE_OUT_OF_MEMORY, e.what_without_backtrace());
  } catch (const c10::ValueError& e) {
    return fail(err, GYRE_INVALID_ARGUMENT, e.what_without_backtrace());
  } catch (const c10::IndexError& e) {
    return fail(err, GYRE_INVALID_ARGUMENT, e.what_without_backtrace());
  } catch (const c10::NotImplementedError& e) {
    return fail(err, GYRE_UNSUPPORTED, e.what_without_backtrace());
  } catch (const c10::Error& e) {
    // The CPU allocator reports exhaustion as a plain failed check.
    const std::string_view message = e.what_without_backtrace();
    const bool memory = message.find("DefaultCPUAllocator") != std::string_view::npos;
    return fail(err, memory ? GYRE_OUT_OF_MEMORY : GYRE_INTERNAL, message);
  } catch (const std::exception& e) {
    return fail(err, GYRE_INTERNAL, e.what());
  } catch (...) {
    return fail(err, GYRE_INTERNAL, "an exception of unknown type");
  }
}

// A heap-allocated handle to the tensor, owned by the caller of the C function.
inline gyre_tensor new_tensor_handle(const at::Tensor& tensor) { return new at::Tensor(tensor); }

// named[i].value with the index checked; throws std::invalid_argument.
const NamedTensor& named_parameter(const ParameterSet& set, int32_t i);

// The part of parameter i that this rank holds.
void hand_held(const ParameterSet& set, int32_t i, gyre_held* out, gyre_tensor* tensor);

// Spans over the arrays of gyre_batch and over what is aligned with it.
//
// The lengths come from the offsets, of which only the last is looked at here; gyre::validate checks the rest.
inline Batch batch_view(const gyre_batch* batch) {
  const gyre_batch& b = deref(batch, "batch");
  if (b.num_sequences < 0) {
    throw std::invalid_argument("batch: num_sequences is " + std::to_string(b.num_sequences) + ", expected at least 0");
  }
  if (b.num_sequences == 0) return {};  // of a rank without work; refused where there is but one
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
  if (batch.ids.empty()) return {};
  return {&deref(values, name), batch.ids.size()};
}

// A token-aligned array that may be NULL, which gives an empty span.
template <typename T>
std::span<T> optional(T* values, const Batch& batch) {
  return values == nullptr ? std::span<T>() : std::span<T>(values, batch.ids.size());
}

}  // namespace gyre::capi
