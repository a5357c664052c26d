// Declarations that stand in for Gloo's headers, which PyTorch's wheels lack: just what c10d's ProcessGroupGloo.hpp
// mentions. Nothing here is defined or laid out by Gyre; the code is in libtorch.
#pragma once

#include <chrono>
#include <memory>

namespace gloo {
namespace transport {
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = 0;
};
}  // namespace transport

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
  std::chrono::milliseconds getTimeout() const;
};
}  // namespace gloo
