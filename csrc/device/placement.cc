#include "device/placement.h"

#include <ATen/ops/from_blob.h>

#include <charconv>
#include <stdexcept>

#include "device/cuda.h"

namespace gyre {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("model device: " + what); }

at::Device device_of(const std::string& name) {
  if (name == "aten") cuda_state();  // autograd comes next, see cuda.h
  if (name == "cpu" || name == "aten") return at::kCPU;
  int index = 0;
  if (name != "cuda") {
    const char* end = name.data() + name.size();
    const bool prefixed = name.starts_with("cuda:") && name.size() > 5;
    const auto parsed = prefixed ? std::from_chars(name.data() + 5, end, index) : std::from_chars_result{end, {}};
    if (!prefixed || parsed.ec != std::errc{} || parsed.ptr != end || index < 0) {
      refuse("got \"" + name + "\", expected cpu, cuda, cuda:N or aten");
    }
  }
  const CudaState& cuda = cuda_state();
  if (cuda.devices == 0) refuse("\"" + name + "\" cannot be used: " + cuda.problem);
  if (index >= cuda.devices) {
    refuse("\"" + name + "\" is not there: this machine shows " + std::to_string(cuda.devices) +
           " GPU(s), numbered from cuda:0 (CUDA_VISIBLE_DEVICES hides some)");
  }
  return {at::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

}  // namespace

Placement placement_of(const ModelConfig& config) {
  const at::Device device = device_of(config.device);
  const bool wide = config.compute == Compute::kFloat32 || (config.compute == Compute::kAuto && device.is_cpu());
  if (!wide && !on_tensors(config)) {
    refuse("the CPU kernels compute in float32, got bfloat16: set model.dtype to auto, or use a GPU");
  }
  return {device, wide ? at::kFloat : at::kBFloat16};
}

std::string describe_placement(const ModelConfig& config) {
  const Placement placement = placement_of(config);
  std::string line = config.device;
  if (placement.device.is_cuda()) line = placement.device.str() + " " + describe_gpu(placement.device.index());
  return line + (placement.compute == at::kFloat ? ", float32" : ", bfloat16");
}

at::TensorOptions parameter_options(const ModelConfig& config) {
  return at::TensorOptions().dtype(at::kFloat).device(placement_of(config).device);
}

template <typename T>
at::Tensor to_device(const T* data, at::IntArrayRef shape, at::Device device) {
  const at::Tensor host =
      at::from_blob(const_cast<T*>(data), shape, at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value));
  return device.is_cpu() ? host.clone() : host.to(device);
}

template at::Tensor to_device(const int32_t*, at::IntArrayRef, at::Device);
template at::Tensor to_device(const int64_t*, at::IntArrayRef, at::Device);
template at::Tensor to_device(const float*, at::IntArrayRef, at::Device);

}  // namespace gyre
