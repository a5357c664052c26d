// c10d's NCCL group, in a library of its own (libgyre_nccl.so): it is linked against libtorch's CUDA half, which
// libgyre.so loads only where there is a GPU, and compiled where CUDA's and NCCL's headers are.
#define USE_C10D_NCCL
#include "fsdp/nccl/nccl.h"

#include <chrono>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

extern "C" __attribute__((visibility("default"))) c10d::Backend* gyre_make_nccl(c10d::Store* store, int rank, int size,
                                                                                double timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout * 1000));
  auto held = c10::intrusive_ptr<c10d::Store>::reclaim_copy(store);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(held, rank, size, options).release();
}
