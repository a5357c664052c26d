// The wall between C++ and C: every fallible function of gyre.h is one call of guard(), so that no exception crosses
// the boundary and status and message come back together.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "backend/decoder.h"
#include "fsdp/group.h"
#include "fsdp/sharding.h"
#include "gyre.h"
#include "train/batch.h"

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

// named[i] with the index checked; throws std::invalid_argument.
const NamedTensor& named_parameter(const ParameterSet& set, int32_t i);

// The part of parameter i that this rank holds.
void hand_held(const ParameterSet& set, int32_t i, gyre_held* out, gyre_tensor* tensor);

// Spans over the arrays of a gyre_batch; gyre::validate checks what is in them. One of no sequences is that of a rank
// without work.
inline Batch batch_view(const gyre_batch& b) {
  if (b.num_sequences == 0) return {};
  const auto tokens = static_cast<size_t>(b.offsets[b.num_sequences]);
  return {.offsets = {b.offsets, static_cast<size_t>(b.num_sequences) + 1},
          .ids = {b.ids, tokens},
          .mask = {b.mask, tokens}};
}

}  // namespace gyre::capi
