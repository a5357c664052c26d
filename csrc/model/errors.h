// Failures that the C ABI reports under a status of their own. Everything else is std::invalid_argument (the caller's
// mistake) or an internal error.
#pragma once

#include <stdexcept>

namespace gyre {

// A number that must be finite is not: the model has diverged.
struct NotFiniteError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An id that names nothing.
struct NotFoundError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace gyre
