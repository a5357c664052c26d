// The GPU half of libtorch. It is loaded when a model first asks for it, and only where there is an NVIDIA driver: one
// libgyre serves both kinds of machine, and commands that need no GPU do not wait for half a gigabyte of kernels.
#pragma once

#include <string>

namespace gyre {

struct CudaState {
  int devices = 0;      // GPUs that this process may use
  std::string problem;  // why there is none, and what to do
};

// Looks once and remembers. Must come before anything that makes libtorch look for CUDA itself (autograd does), since
// libtorch remembers too.
const CudaState& cuda_state();

// A function of a library of ours that is linked against libtorch's CUDA half and lies beside this one where it could
// be built. Null, and why, where it is not.
void* cuda_part(const std::string& library, const char* function, std::string* problem);

// "NVIDIA H200 (139 GiB)"; empty when the driver does not say.
std::string describe_gpu(int index);

// All of them in one line, or why there is none.
std::string describe_cuda();

}  // namespace gyre
