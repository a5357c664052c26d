// The wall between C++ and C: every fallible function of gyre.h is one call of guard(), so that no exception crosses
// the boundary and status and message come back together.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "gyre.h"
#include "model/errors.h"

namespace gyre::capi {

// Copies the message, cut to GYRE_MESSAGE_SIZE, and returns the status.
gyre_status fail(gyre_error* err, gyre_status status, std::string_view message) noexcept;

// Throws std::invalid_argument when a pointer argument of the C ABI is NULL.
template <typename T>
T& deref(T* pointer, const char* name) {
  if (pointer == nullptr) throw std::invalid_argument(std::string(name) + " is NULL");
  return *pointer;
}

// Runs `body` without autograd and turns its exceptions into a status:
//   std::invalid_argument, std::out_of_range, c10::ValueError, c10::IndexError → INVALID_ARGUMENT
//   std::bad_alloc, c10::OutOfMemoryError                                     → OUT_OF_MEMORY
//   NotFiniteError → NOT_FINITE, NotFoundError → NOT_FOUND, c10::NotImplementedError → UNSUPPORTED, anything else →
//   INTERNAL
template <typename Body>
gyre_status guard(gyre_error* err, Body&& body) noexcept {
  try {
    at::NoGradGuard no_grad;
    std::forward<Body>(body)();
    return GYRE_OK;
  } catch (const NotFiniteError& e) {
    return fail(err, GYRE_NOT_FINITE, e.what());
  } catch (const NotFoundError& e) {
    return fail(err, GYRE_NOT_FOUND, e.what());
  } catch (const std::invalid_argument& e) {
    return fail(err, GYRE_INVALID_ARGUMENT, e.what());
  } catch (const std::out_of_range& e) {
    return fail(err, GYRE_INVALID_ARGUMENT, e.what());
  } catch (const std::bad_alloc&) {
    return fail(err, GYRE_OUT_OF_MEMORY, "out of memory");
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

}  // namespace gyre::capi
