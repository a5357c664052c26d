// The wall between C++ and C: every fallible function of gyre.h is one call of guard(), so that no exception crosses
// the boundary and status and message come back together.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <functional>
#include <memory>
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

// What the opaque handle of gyre.h points to. Engines and optimizers share it.
struct gyre_model {
  // Over ranks unless `sharding` is null; beside a base unless that is null.
  gyre_model(const gyre::ModelConfig& config, const gyre::Sharding* sharding, std::shared_ptr<gyre_model> of = nullptr)
      : group(sharding == nullptr || sharding->group == nullptr ? nullptr : sharding->group->own),
        base(std::move(of)),
        decoder(config, gyre::open_backend(config, sharding), base == nullptr ? nullptr : &base->decoder) {}
  std::shared_ptr<gyre_model> own;          // the caller's; empty once freed
  const std::shared_ptr<gyre_group> group;  // null: one process
  const std::shared_ptr<gyre_model> base;   // that an adapter lies beside
  gyre::Decoder decoder;
};

namespace gyre::capi {

// Base of what is made from a model. It goes after the classes that follow it.
struct OfModel {
  std::shared_ptr<gyre_model> model;
};

// A handle that its caller shares with others, and its release.
template <typename T, typename... Args>
T* make(Args&&... args) {
  auto made = std::make_shared<T>(std::forward<Args>(args)...);
  made->own = made;
  return made.get();
}
template <typename T>
void release(T* handle) {
  if (handle != nullptr) const auto last = std::move(handle->own);
}

inline thread_local char last_message[GYRE_MESSAGE_SIZE] = "";

// Keeps the message, cut to GYRE_MESSAGE_SIZE, and returns the status.
inline gyre_status fail(gyre_status status, std::string_view message) noexcept {
  last_message[message.copy(last_message, GYRE_MESSAGE_SIZE - 1)] = '\0';
  return status;
}

// Calls f(args...) without autograd and turns its exceptions into a status:
//   std::invalid_argument, std::out_of_range, c10::ValueError, c10::IndexError → INVALID_ARGUMENT
//   std::bad_alloc, c10::OutOfMemoryError, std::system_error of no memory    → OUT_OF_MEMORY
//   GroupError → DISCONNECTED, NotFiniteError → NOT_FINITE, NotFoundError → NOT_FOUND,
//   c10::NotImplementedError → UNSUPPORTED, anything else → INTERNAL
template <typename F, typename... Args>
gyre_status guard(F&& f, Args&&... args) noexcept {
  try {
    at::NoGradGuard no_grad;
    std::invoke(std::forward<F>(f), std::forward<Args>(args)...);
    return GYRE_OK;
  } catch (const NotFiniteError& e) {
    return fail(GYRE_NOT_FINITE, e.what());
  } catch (const GroupError& e) {
    return fail(GYRE_DISCONNECTED, e.what());
  } catch (const NotFoundError& e) {
    return fail(GYRE_NOT_FOUND, e.what());
  } catch (const std::invalid_argument& e) {
    return fail(GYRE_INVALID_ARGUMENT, e.what());
  } catch (const std::out_of_range& e) {
    return fail(GYRE_INVALID_ARGUMENT, e.what());
  } catch (const std::bad_alloc&) {
    return fail(GYRE_OUT_OF_MEMORY, "out of memory");
  } catch (const std::system_error& e) {  // a thread that could not be started, as a rule
    const bool memory =
        e.code() == std::errc::resource_unavailable_try_again || e.code() == std::errc::not_enough_memory;
    const std::string message = (memory ? "out of memory, or of threads: " : "") + std::string(e.what());
    return fail(memory ? GYRE_OUT_OF_MEMORY : GYRE_INTERNAL, message);
  } catch (const c10::OutOfMemoryError& e) {
    return fail(GYRE_OUT_OF_MEMORY, e.what_without_backtrace());
  } catch (const c10::ValueError& e) {
    return fail(GYRE_INVALID_ARGUMENT, e.what_without_backtrace());
  } catch (const c10::IndexError& e) {
    return fail(GYRE_INVALID_ARGUMENT, e.what_without_backtrace());
  } catch (const c10::NotImplementedError& e) {
    return fail(GYRE_UNSUPPORTED, e.what_without_backtrace());
  } catch (const c10::Error& e) {
    // The CPU allocator reports exhaustion as a plain failed check.
    const std::string_view message = e.what_without_backtrace();
    const bool memory = message.find("DefaultCPUAllocator") != std::string_view::npos;
    return fail(memory ? GYRE_OUT_OF_MEMORY : GYRE_INTERNAL, message);
  } catch (const std::exception& e) {
    return fail(GYRE_INTERNAL, e.what());
  } catch (...) {
    return fail(GYRE_INTERNAL, "an exception of unknown type");
  }
}

// guard() of `*out = f(args...)`.
template <typename T, typename F, typename... Args>
gyre_status guard_to(T* out, F&& f, Args&&... args) noexcept {
  return guard([&] { *out = std::invoke(std::forward<F>(f), std::forward<Args>(args)...); });
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
          .mask = {b.mask, tokens},
          .targets = {b.targets, b.targets == nullptr ? 0 : tokens}};
}

}  // namespace gyre::capi
