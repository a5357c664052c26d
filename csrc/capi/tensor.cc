// Tensors of gyre.h: creation, and copies in and out with conversion.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "capi/boundary.h"

namespace gyre::capi {
namespace {

at::ScalarType scalar_type(gyre_dtype dtype) {
  switch (dtype) {
    case GYRE_F32:
      return at::kFloat;
    case GYRE_F16:
      return at::kHalf;
    case GYRE_BF16:
      return at::kBFloat16;
    case GYRE_F64:
      return at::kDouble;
    case GYRE_I64:
      return at::kLong;
    case GYRE_I32:
      return at::kInt;
  }
  throw std::invalid_argument("dtype is " + std::to_string(static_cast<int>(dtype)) +
                              ", expected a gyre_dtype (0 to 5)");
}

gyre_dtype dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return GYRE_F32;
    case at::kHalf:
      return GYRE_F16;
    case at::kBFloat16:
      return GYRE_BF16;
    case at::kDouble:
      return GYRE_F64;
    case at::kLong:
      return GYRE_I64;
    case at::kInt:
      return GYRE_I32;
    default:
      throw std::invalid_argument(std::string("the tensor's element type ") + c10::toString(tensor.scalar_type()) +
                                  " has no gyre_dtype");
  }
}

at::Tensor& tensor_of(gyre_tensor handle) { return deref(static_cast<at::Tensor*>(handle), "tensor"); }

// Throws for a tensor without memory.
void require_memory(const at::Tensor& tensor) {
  if (tensor.numel() > 0 && tensor.storage().data() == nullptr) {
    throw std::invalid_argument(
        "the tensor's values are on several ranks: use the part of it that is held here (gyre_model_held)");
  }
}

std::string text(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return out + "]";
}

std::span<const int64_t> shape_of(int32_t ndim, const int64_t* shape) {
  if (ndim < 0 || ndim > GYRE_MAX_DIMS || (ndim > 0 && shape == nullptr)) {
    throw std::invalid_argument("ndim is " + std::to_string(ndim) + ", expected 0 to " + std::to_string(GYRE_MAX_DIMS) +
                                " with as many sizes");
  }
  return {shape, static_cast<size_t>(ndim)};
}

std::vector<int64_t> dense_strides(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    if (__builtin_mul_overflow(stride, std::max<int64_t>(shape[i], 1), &stride)) {
      throw std::invalid_argument("shape " + text(shape) + " has more elements than fit 64 bits");
    }
  }
  return strides;
}

// Throws unless every element addressed by shape and strides lies within nbytes.
void check_bounds(std::span<const int64_t> shape, std::span<const int64_t> strides, size_t item, size_t nbytes) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  int64_t last = 0;  // index of the furthest element
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t reach;
    if (strides[i] < 0) throw std::invalid_argument("strides " + text(strides) + " hold a negative one");
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &reach) || __builtin_add_overflow(last, reach, &last)) {
      throw std::invalid_argument("shape " + text(shape) + " with strides " + text(strides) +
                                  " reaches beyond 64 bits");
    }
  }
  if (static_cast<uint64_t>(last) >= nbytes / item) {
    throw std::invalid_argument("shape " + text(shape) + " with strides " + text(strides) + " and " +
                                std::to_string(item) + "-byte elements reaches element " + std::to_string(last) +
                                ", but the data has " + std::to_string(nbytes) + " bytes");
  }
}

bool aligned(const void* data, size_t item) { return reinterpret_cast<uintptr_t>(data) % item == 0; }

void copy_in(at::Tensor& to, at::ScalarType type, std::span<const int64_t> strides, const void* data, size_t nbytes) {
  const size_t item = c10::elementSize(type);
  std::vector<double> storage;  // for data that is not aligned, as in a mapped file
  if (!aligned(data, item)) {
    storage.resize((nbytes + sizeof(double) - 1) / sizeof(double));
    std::memcpy(storage.data(), data, nbytes);
    data = storage.data();
  }
  to.copy_(at::from_blob(const_cast<void*>(data), to.sizes(), strides, at::TensorOptions().dtype(type)));
}

}  // namespace
}  // namespace gyre::capi

using namespace gyre::capi;

gyre_status gyre_tensor_new(gyre_dtype dtype, int32_t ndim, const int64_t* shape, gyre_tensor* out, gyre_error* err) {
  return guard(err, [&] {
    const auto sizes = shape_of(ndim, shape);
    if (std::any_of(sizes.begin(), sizes.end(), [](int64_t n) { return n < 0; })) {
      throw std::invalid_argument("shape " + text(sizes) + " holds a negative size");
    }
    dense_strides(sizes);
    deref(out, "out") = new_tensor_handle(at::zeros(sizes, at::TensorOptions().dtype(scalar_type(dtype))));
  });
}

void gyre_tensor_free(gyre_tensor tensor) { delete static_cast<at::Tensor*>(tensor); }

gyre_status gyre_tensor_info(gyre_tensor tensor, gyre_tensor_info_t* out, gyre_error* err) {
  return guard(err, [&] {
    const at::Tensor& t = tensor_of(tensor);
    if (t.dim() > GYRE_MAX_DIMS)
      throw std::invalid_argument("the tensor has " + std::to_string(t.dim()) + " dimensions");
    gyre_tensor_info_t info{
        .dtype = dtype_of(t), .ndim = static_cast<int32_t>(t.dim()), .shape = {}, .numel = t.numel()};
    std::copy(t.sizes().begin(), t.sizes().end(), info.shape);
    deref(out, "out") = info;
  });
}

gyre_status gyre_tensor_copy_in(gyre_tensor tensor, gyre_dtype dtype, int32_t ndim, const int64_t* shape,
                                const int64_t* strides, const void* data, size_t nbytes, gyre_error* err) {
  return guard(err, [&] {
    at::Tensor& to = tensor_of(tensor);
    require_memory(to);
    const auto sizes = shape_of(ndim, shape);
    if (!std::equal(sizes.begin(), sizes.end(), to.sizes().begin(), to.sizes().end())) {
      throw std::invalid_argument("the data has shape " + text(sizes) + ", expected the tensor's " + text(to.sizes()));
    }
    std::vector<int64_t> steps = dense_strides(sizes);
    if (strides != nullptr) steps.assign(strides, strides + sizes.size());
    const at::ScalarType type = scalar_type(dtype);
    check_bounds(sizes, steps, c10::elementSize(type), nbytes);
    if (to.numel() > 0) copy_in(to, type, steps, &deref(static_cast<const char*>(data), "data"), nbytes);
  });
}

gyre_status gyre_tensor_copy_out(gyre_tensor tensor, gyre_dtype dtype, void* data, size_t nbytes, gyre_error* err) {
  return guard(err, [&] {
    const at::Tensor& from = tensor_of(tensor);
    require_memory(from);
    const at::ScalarType type = scalar_type(dtype);
    const size_t want = static_cast<size_t>(from.numel()) * c10::elementSize(type);
    if (nbytes != want) {
      throw std::invalid_argument("the destination has " + std::to_string(nbytes) + " bytes, expected " +
                                  std::to_string(want) + " for shape " + text(from.sizes()));
    }
    if (nbytes == 0) return;
    const at::Tensor dense = from.to(at::kCPU, type).contiguous();
    std::memcpy(&deref(static_cast<char*>(data), "data"), dense.const_data_ptr(), nbytes);
  });
}
