// What libtorch asks of a device: guards, hooks, and the operations that are not launches.
#include "tests/fake/device.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <utility>

namespace gyre::fake {
namespace {

thread_local c10::DeviceIndex current = 0;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = c10::kPrivateUse1;
  c10::DeviceType type() const override { return static_type; }
  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device old = getDevice();
    setDevice(d);
    return old;
  }
  c10::Device getDevice() const override { return {static_type, current}; }
  void setDevice(c10::Device d) const override {
    TORCH_CHECK(d.index() < kDevices, "fake device: there is no ", d);
    uncheckedSetDevice(d);
  }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    if (d.index() >= 0) current = d.index();
  }
  c10::Stream getStream(c10::Device d) const override { return c10::Stream(c10::Stream::DEFAULT, d); }
  c10::Stream getDefaultStream(c10::Device d) const override { return c10::Stream(c10::Stream::DEFAULT, d); }
  c10::Stream exchangeStream(c10::Stream s) const override { return c10::Stream(c10::Stream::DEFAULT, s.device()); }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { synchronize(); }
  void synchronizeDevice(const c10::DeviceIndex) const override { synchronize(); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}

 private:
  static void synchronize() {
    refuse_recording("waiting for the device");
    count_wait("synchronize");
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(c10::DeviceIndex d) const override { current = d; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex d) const override { return std::exchange(current, d); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex d) const override { return std::exchange(current, d); }
  bool isPinnedPtr(const void* data) const override { return pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
};

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard on(device);
  return at::detail::empty_generic(size, allocator(), kKeys, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard on(device);
  return at::detail::empty_strided_generic(size, stride, allocator(), kKeys, c10::dtype_or_default(type));
}

// The library converts on the side of the source before it copies between device and host.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const bool in = ours(from), out = ours(to);
  if (in && out) {
    count_launch("copy");
  } else {
    refuse_recording(out ? "a copy to the device" : "a copy to the host");
    const bool converts = from.scalar_type() != to.scalar_type() || !from.is_contiguous();
    if (in && converts) count_launch("copy");
    count_copy(out, static_cast<int64_t>(to.nbytes()));
    const bool waits = !non_blocking || !pinned((in ? to : from).const_data_ptr());
    if (waits) count_wait(out ? "copy to the device" : "copy to the host");
  }
  const at::Tensor source = open(from), target = open(to);
  if (recording != nullptr) {
    recording->calls.emplace_back([source, target] { target.copy_(source); });
  } else {
    target.copy_(source);
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& t) {
  refuse_recording("reading a value (.item())");
  count_wait("a value is read");
  count_copy(false, static_cast<int64_t>(t.itemsize()));
  return open(t).item();
}

const at::Tensor& resize(const at::Tensor& t, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  const int64_t count = c10::multiply_integers(size);
  const auto bytes = static_cast<size_t>((t.storage_offset() + count) * static_cast<int64_t>(t.itemsize()));
  if (count > 0 && bytes > t.storage().nbytes()) {
    TORCH_CHECK(t.storage().nbytes() == 0, "fake device: resize_ of a tensor that has elements");
    const c10::DeviceGuard on(t.device());
    c10::StorageImpl* const storage = t.storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(allocator()->allocate(bytes));
    storage->set_nbytes(bytes);
  }
  t.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return t;
}

at::Tensor as_strided(const at::Tensor& t, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(t, size, stride, offset);
}

// Only those registrations are undone at the end of the process that are objects; libtorch wants them early.
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar);
  m.impl("resize_", &resize);
  m.impl("as_strided", &as_strided);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
}

}  // namespace

void start() {
  static const bool started = [] {
    c10::register_privateuse1_backend("fake");
    c10::SetAllocator(c10::kPrivateUse1, allocator());
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    return true;
  }();
  static_cast<void>(started);
}

}  // namespace gyre::fake
