#include "backend/aten/cuda.h"

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

namespace gyre {
namespace {

// The driver's library comes with the driver, never with libtorch.
void* driver() {
  static void* const handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return handle;
}

// A library in the folder of the one that an address belongs to, which the loader knows.
std::string beside(const void* address, const std::string& library) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return library;
  const std::string_view other = info.dli_fname;
  const size_t slash = other.rfind('/');
  return std::string(slash == std::string_view::npos ? "" : other.substr(0, slash + 1)) + library;
}

std::string cuda_library() {
  return beside(reinterpret_cast<const void*>(&at::get_cpu_capability), "libtorch_cuda.so");
}

// The same results from the same numbers where libtorch knows how; cuBLAS reads the variable when it starts.
void prefer_repeatable() {
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

CudaState look() {
  if (driver() == nullptr) {
    return {.problem =
                "this machine has no NVIDIA driver (libcuda.so.1); "
                "install it, or set model.device to cpu"};
  }
  const std::string library = cuda_library();
  if (dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    const char* error = dlerror();
    return {.problem = "libtorch's CUDA library does not load (" + std::string(error ? error : library) +
                       "); build against a CUDA libtorch: pip install torch, "
                       "then LIBTORCH=<its folder> make setup build"};
  }
  const auto& hooks = at::detail::getCUDAHooks();
  const int devices = hooks.hasCUDA() ? static_cast<int>(hooks.deviceCount()) : 0;
  if (devices == 0) {
    return {.problem =
                "the NVIDIA driver shows no GPU that libtorch can use; "
                "look at nvidia-smi (is the driver as new as "
                "libtorch's CUDA?) and at CUDA_VISIBLE_DEVICES"};
  }
  prefer_repeatable();
  return {.devices = devices, .problem = {}};
}

}  // namespace

void* cuda_part(const std::string& library, const char* function, std::string* problem) {
  const std::string path = beside(reinterpret_cast<const void*>(&cuda_state), library);
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const found = handle == nullptr ? nullptr : dlsym(handle, function);
  if (found == nullptr) {
    const char* const error = dlerror();
    *problem = error ? error : path;
  }
  return found;
}

// From the driver's C interface, which needs no CUDA headers.
std::string describe_gpu(int index) {
  using Init = int (*)(unsigned);
  using Get = int (*)(int*, int);
  using Name = int (*)(char*, int, int);
  using Memory = int (*)(size_t*, int);
  const auto init = reinterpret_cast<Init>(dlsym(driver(), "cuInit"));
  const auto get = reinterpret_cast<Get>(dlsym(driver(), "cuDeviceGet"));
  const auto name_of = reinterpret_cast<Name>(dlsym(driver(), "cuDeviceGetName"));
  const auto memory_of = reinterpret_cast<Memory>(dlsym(driver(), "cuDeviceTotalMem_v2"));
  int device = 0;
  char name[128] = {};
  size_t bytes = 0;
  if (!init || !get || !name_of || !memory_of || init(0) != 0 || get(&device, index) != 0 ||
      name_of(name, sizeof name, device) != 0 || memory_of(&bytes, device) != 0) {
    return "";
  }
  return std::string(name) + " (" + std::to_string(bytes >> 30) + " GiB)";
}

const CudaState& cuda_state() {
  static const CudaState state = look();
  return state;
}

std::string describe_cuda() {
  const CudaState& state = cuda_state();
  if (state.devices == 0) return "none: " + state.problem;
  std::string line;
  for (int i = 0; i < state.devices; ++i) line += (i == 0 ? "" : ", ") + describe_gpu(i);
  return line;
}

}  // namespace gyre
