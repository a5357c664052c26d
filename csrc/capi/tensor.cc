// Tensors of gyre.h: copies in and out with conversion.
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "capi/boundary.h"

namespace gyre::capi {
namespace {

// By gyre_dtype.
constexpr std::array kTypes = {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble};

// Throws for a tensor without memory.
at::Tensor& tensor_of(gyre_tensor handle) {
  at::Tensor& tensor = *static_cast<at::Tensor*>(handle);
  require(tensor.numel() == 0 || tensor.storage().data() != nullptr,
          "the tensor's values are on several ranks: use the part of it that is held here (gyre_model_held)");
  return tensor;
}

}  // namespace
}  // namespace gyre::capi

using namespace gyre::capi;

void gyre_tensor_free(gyre_tensor tensor) { delete static_cast<at::Tensor*>(tensor); }

gyre_status gyre_tensor_info(gyre_tensor tensor, gyre_tensor_info_t* out) {
  return guard([&] {
    const auto& t = *static_cast<const at::Tensor*>(tensor);
    gyre::require(t.dim() <= GYRE_MAX_DIMS, "the tensor has ", t.dim(), " dimensions");
    *out = {.ndim = static_cast<int32_t>(t.dim()), .shape = {}, .numel = t.numel()};
    std::ranges::copy(t.sizes(), out->shape);
  });
}

gyre_status gyre_tensor_copy_in(gyre_tensor tensor, gyre_dtype dtype, int32_t ndim, const int64_t* shape,
                                const void* data, size_t nbytes) {
  return guard([&] {
    at::Tensor& to = tensor_of(tensor);
    const at::IntArrayRef sizes(shape, static_cast<size_t>(ndim));
    gyre::require(std::ranges::equal(sizes, to.sizes()), "the data has shape ", sizes, ", expected the tensor's ",
                  to.sizes());
    const at::ScalarType type = kTypes.at(dtype);
    const size_t item = c10::elementSize(type);
    gyre::require(nbytes / item >= static_cast<size_t>(to.numel()), "the data has ", nbytes,
                  " bytes, too few for shape ", sizes);
    std::vector<double> aligned;  // a copy of data that is not, as in a mapped file
    if (reinterpret_cast<uintptr_t>(data) % item != 0) {
      aligned.resize((nbytes + sizeof(double) - 1) / sizeof(double));
      data = std::memcpy(aligned.data(), data, nbytes);
    }
    to.copy_(at::from_blob(const_cast<void*>(data), sizes, at::TensorOptions().dtype(type)));
  });
}

gyre_status gyre_tensor_copy_out(gyre_tensor tensor, gyre_dtype dtype, void* data, size_t nbytes) {
  return guard([&] {
    const at::Tensor& from = tensor_of(tensor);
    const at::ScalarType type = kTypes.at(dtype);
    const size_t want = static_cast<size_t>(from.numel()) * c10::elementSize(type);
    gyre::require(nbytes == want, "the destination has ", nbytes, " bytes, expected ", want, " for shape ",
                  from.sizes());
    const at::Tensor dense = from.to(at::kCPU, type).contiguous();
    if (nbytes > 0) std::memcpy(data, dense.const_data_ptr(), nbytes);
  });
}
