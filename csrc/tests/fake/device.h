// A device that is none: libtorch's PrivateUse1 over memory of this process that the device's operations alone may
// touch. It stands for a GPU in tests, as model.device = "fake" and "fake:1", and finds on the CPU what a GPU would:
//
//   - a tensor's address cannot be read or written: a host that does crashes, with a stack
//   - memory that nothing has written, or that is free, holds NaNs (as integers -1)
//   - an operation on tensors of two devices, or of a device and the host, throws
//   - recordings (they stand for CUDA graphs) throw where the host waits, copies, or keeps memory that was made in one;
//     their replay reads and writes where they were recorded, and throws when that has been freed
//   - a ledger counts launches, copies and waits
//
// Operations are libtorch's own on the CPU. What they prove of numbers holds for the order of operations, not for how a
// GPU's kernels round. Everything runs at once and in order: races between streams do not show.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/aten/decode.h"

namespace gyre::fake {

constexpr int kDevices = 2;

// Makes the device known to libtorch. A process must not also use a GPU: some of libtorch asks for "the accelerator".
void start();

// What happened since the process began.
struct Ledger {
  int64_t launches = 0;  // operations; of a replay one
  int64_t to_device = 0, to_device_bytes = 0, to_host = 0, to_host_bytes = 0;
  int64_t waits = 0;  // of the host for the device, copies from and to memory that is not pinned among them
  int64_t allocations = 0, allocated_bytes = 0;
  std::map<std::string, int64_t> names;  // launches by operation, and "wait: …"
};
Ledger operator-(Ledger a, const Ledger& b);
// The ledger's names line by line, the most frequent first: for messages of tests.
std::string describe(const Ledger& ledger);
Ledger ledger();

void count_launch(const std::string& operation);
void count_wait(const std::string& why);
void count_copy(bool to_device, int64_t bytes);
void count_allocation(int64_t bytes);

// Memory. Addresses of the device stand for memory at another address of the same distance from its beginning.
c10::Allocator* allocator();
bool ours(const at::Tensor& t);
// A tensor of the host over the memory of one of the device; others as they are. It owns nothing.
at::Tensor open(const at::Tensor& t);
bool pinned(const void* address);
c10::Allocator* pinned_allocator();

// Blocks of memory that were allocated while something was recorded: they stay its own until it goes.
class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();
  // Bytes of the blocks that are still in use, and how many these are.
  std::pair<int64_t, int64_t> kept() const;
  void poison();

 private:
  friend struct Memory;
  std::map<char*, bool> in_use_;  // guarded by Memory's mutex
};

// What is recorded on this thread, or null.
struct Recording {
  Pool pool;
  std::vector<std::function<void()>> calls;
  std::map<char*, uint64_t> outside;  // blocks that were there before, and their numbers
};
extern thread_local Recording* recording;
// Throws, naming what, when something is recorded.
void refuse_recording(const std::string& what);
std::unique_ptr<Recorder> recorder();
// Throws when a block that a recording reads or writes has been freed since.
void require_outside(const Recording& of);

}  // namespace gyre::fake
