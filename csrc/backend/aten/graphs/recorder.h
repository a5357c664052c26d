// What libgyre_graphs.so gives to libgyre.so: operations on a GPU, recorded once and repeated with one launch.
#pragma once

#include <functional>
#include <memory>

namespace gyre {

class Recording {
 public:
  virtual ~Recording() = default;
  // With what is now in the tensors that were read, into those that were written.
  virtual void replay() = 0;
};

// Its recordings share the memory of what lies between, so each is played to its end before the next.
class Recorder {
 public:
  virtual ~Recorder() = default;
  // Runs the operations once, so that libraries have what they allocate at first use, then records them without
  // running them. They must neither wait for the device nor look at a value on it. Throws what libtorch throws.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& operations) = 0;
};

}  // namespace gyre

extern "C" gyre::Recorder* gyre_make_recorder(int device);
