#include "capi/guard.h"

#include <algorithm>
#include <cstring>

namespace gyre::capi {

gyre_status fail(gyre_error* err, gyre_status status, std::string_view message) noexcept {
  if (err != nullptr) {
    const size_t n = std::min(message.size(), size_t{GYRE_MESSAGE_SIZE - 1});
    std::memcpy(err->message, message.data(), n);
    err->message[n] = '\0';
  }
  return status;
}

}  // namespace gyre::capi
