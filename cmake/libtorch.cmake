# Finds libtorch and makes the imported target gyre_torch. The registry's wheel for Linux is the CUDA build, whose
# find_package(Torch) asks for a CUDA toolkit; the CPU libraries alone (torch_cpu, c10) need none, so the target is our own.

set(_candidates "${LIBTORCH}" "$ENV{LIBTORCH}")
if(Torch_DIR)
  list(APPEND _candidates "${Torch_DIR}/../../..")
endif()
if(EXISTS "${CMAKE_SOURCE_DIR}/build/libtorch.path")
  file(STRINGS "${CMAKE_SOURCE_DIR}/build/libtorch.path" _saved LIMIT_COUNT 1)
  list(APPEND _candidates "${_saved}")
endif()
execute_process(
  COMMAND python3 -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
  OUTPUT_VARIABLE _python_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
list(APPEND _candidates "${_python_torch}")

foreach(_dir IN LISTS _candidates)
  if(_dir AND EXISTS "${_dir}/include/ATen/ATen.h" AND EXISTS "${_dir}/lib")
    get_filename_component(GYRE_TORCH_ROOT "${_dir}" ABSOLUTE)
    break()
  endif()
endforeach()
if(NOT GYRE_TORCH_ROOT)
  message(FATAL_ERROR "libtorch not found. Run `make setup`, or pass -DLIBTORCH=<folder with include/ and lib/>.")
endif()

set(_version_file "${GYRE_TORCH_ROOT}/include/torch/headeronly/version.h")
if(NOT EXISTS "${_version_file}")
  set(_version_file "${GYRE_TORCH_ROOT}/include/torch/csrc/api/include/torch/version.h")
endif()
file(STRINGS "${_version_file}" _version REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX MATCHALL "[0-9]+" _numbers "${_version}")
list(JOIN _numbers "." GYRE_TORCH_VERSION)
message(STATUS "libtorch ${GYRE_TORCH_VERSION}: ${GYRE_TORCH_ROOT}")

set(GYRE_TORCH_LIB "${GYRE_TORCH_ROOT}/lib")
# Nothing is linked from its CUDA half: the first model on a GPU loads it (csrc/backend/aten/cuda.h), and no CUDA header is needed.
if(EXISTS "${GYRE_TORCH_LIB}/libtorch_cuda.so")
  message(STATUS "  it has CUDA")
elseif(GYRE_CUDA)
  message(FATAL_ERROR "GYRE_CUDA is on, but the libtorch in ${GYRE_TORCH_ROOT} has no CUDA (lib/libtorch_cuda.so). "
    "pip install torch, and pass -DLIBTORCH=<site-packages>/torch.")
endif()
add_library(gyre_torch INTERFACE)
target_include_directories(gyre_torch SYSTEM INTERFACE
  "${GYRE_TORCH_ROOT}/include" "${GYRE_TORCH_ROOT}/include/torch/csrc/api/include")
target_link_directories(gyre_torch INTERFACE "${GYRE_TORCH_LIB}")
# libgomp comes with the wheel: linking that copy (and no other) keeps one OpenMP runtime in the process.
file(GLOB _gomp "${GYRE_TORCH_LIB}/libgomp*.so*")
target_link_libraries(gyre_torch INTERFACE torch_cpu c10 ${_gomp})
target_link_options(gyre_torch INTERFACE "-Wl,--allow-shlib-undefined")

# Process groups (csrc/fsdp/c10d.cc). The wheels have c10d's headers but not Gloo's, which they include: declarations of our own stand in.
set(GYRE_C10D_INCLUDE "")
if(EXISTS "${GYRE_TORCH_ROOT}/include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp")
  set(GYRE_C10D ON)
  if(NOT EXISTS "${GYRE_TORCH_ROOT}/include/gloo/context.h")
    set(GYRE_C10D_INCLUDE "${CMAKE_SOURCE_DIR}/csrc/fsdp/declarations")
  endif()
else()
  set(GYRE_C10D OFF)
  message(STATUS "  it has no process groups (c10d): a run is one process")
endif()

# CUDA graphs (csrc/backend/aten/graphs) and NCCL's group (csrc/fsdp/nccl): where libtorch has its CUDA half, and CUDA's and NCCL's headers are
# there. They come with the wheels that torch asks for (nvidia/ beside torch/), but for crt/, or with a CUDA toolkit.
set(GYRE_GRAPHS OFF)
set(GYRE_NCCL OFF)
if(EXISTS "${GYRE_TORCH_LIB}/libtorch_cuda.so")
  file(GLOB _nvidia "${GYRE_TORCH_ROOT}/../nvidia/*/include")
  find_path(GYRE_NCCL_INCLUDE nccl.h HINTS ${_nvidia})
  find_path(GYRE_CUDA_INCLUDE cuda_runtime_api.h HINTS ${_nvidia} /usr/local/cuda/include)
  find_path(GYRE_CUDA_CRT_INCLUDE crt/host_config.h HINTS ${_nvidia} /usr/local/cuda/include)  # which cuda_runtime.h includes
  if(GYRE_CUDA_INCLUDE AND GYRE_CUDA_CRT_INCLUDE)
    set(GYRE_GRAPHS ON)
  endif()
  if(GYRE_GRAPHS AND GYRE_NCCL_INCLUDE AND GYRE_C10D)
    set(GYRE_NCCL ON)
  elseif(GYRE_C10D)
    message(STATUS "  no NCCL (and without CUDA's headers no CUDA graphs), so a model on GPUs is one process: nccl.h, cuda_runtime_api.h or crt/host_config.h is missing "
      "(pip install nvidia-nccl-cu13 nvidia-cuda-runtime nvidia-cuda-crt)")
  endif()
endif()
