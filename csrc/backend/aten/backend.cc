// The tensor backend: where its tensors are, and arithmetic on sets of parameters. Everything runs on the device; what
// comes to this process's memory is results.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <stdexcept>

#include "backend/aten/cuda.h"
#include "backend/aten/network.h"

namespace gyre {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("model device: " + what); }

at::Device device_of(const std::string& name) {
  const CudaState& cuda = cuda_state();  // autograd comes next, see cuda.h
  if (name == "aten") return at::kCPU;
  int index = 0;
  if (name != "cuda") {
    const char* end = name.data() + name.size();
    const bool prefixed = name.starts_with("cuda:") && name.size() > 5;
    const auto parsed = prefixed ? std::from_chars(name.data() + 5, end, index) : std::from_chars_result{end, {}};
    if (!prefixed || parsed.ec != std::errc{} || parsed.ptr != end || index < 0) {
      refuse("got \"" + name + "\", expected cpu, cuda, cuda:N or aten");
    }
  }
  if (cuda.devices == 0) refuse("\"" + name + "\" cannot be used: " + cuda.problem);
  if (index >= cuda.devices) {
    refuse("\"" + name + "\" is not there: this machine shows " + std::to_string(cuda.devices) +
           " GPU(s), numbered from cuda:0 (CUDA_VISIBLE_DEVICES hides some)");
  }
  return {at::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

Placement placement_of(const ModelConfig& config) {
  const at::Device device = device_of(std::string(config.device()));
  const bool wide = config.compute == GYRE_COMPUTE_F32 || (config.compute == GYRE_COMPUTE_AUTO && device.is_cpu());
  return {device, wide ? at::kFloat : at::kBFloat16};
}

// Entries at a time, which bounds copies in f64 and 64-bit indices to 32 MiB a tensor.
constexpr int64_t kBlock = int64_t{1} << 22;

// Calls body(block of each tensor, first entry) for tensors of one shape, laid out flat.
template <typename Body>
void for_blocks(const std::vector<at::Tensor>& tensors, int64_t most, Body&& body) {
  const int64_t total = tensors.front().numel();
  for (int64_t at = 0; at < total; at += most) {
    std::vector<at::Tensor> blocks;
    for (const at::Tensor& t : tensors) blocks.push_back(t.reshape({-1}).narrow(0, at, std::min(most, total - at)));
    body(blocks, at);
  }
}

void to_host(const at::Tensor& results, std::span<double> out) {
  const at::Tensor host = results.to(at::kCPU).contiguous();
  std::memcpy(out.data(), host.const_data_ptr<double>(), out.size_bytes());
}

// z >> shift of the 64-bit patterns, which the library's shift would fill with the sign.
at::Tensor shifted(const at::Tensor& z, int64_t shift) {
  return at::bitwise_and(z.__rshift__(shift), (int64_t{1} << (64 - shift)) - 1);
}

// sketch_signs() of the counters, as one factor 1 or -1 for each of their 64 entries.
at::Tensor sign_factors(const at::Tensor& counters_C) {
  at::Tensor z = (counters_C + 1).mul_(static_cast<int64_t>(0x9e3779b97f4a7c15));
  z = z.__xor__(shifted(z, 30)).mul_(static_cast<int64_t>(0xbf58476d1ce4e5b9));
  z = z.__xor__(shifted(z, 27)).mul_(static_cast<int64_t>(0x94d049bb133111eb));
  z = z.__xor__(shifted(z, 31));
  const at::Tensor bits = z.unsqueeze(1).__rshift__(at::arange(64, z.options())).__and__(1);
  return bits.to(at::kFloat).mul_(-2).add_(1).reshape({-1});
}

class AtenBackend : public Backend {
 public:
  AtenBackend(const ModelConfig& config, const Placement& placement) : config_(config), placement_(placement) {}

  std::string describe() const override {
    std::string line(config_.device());
    const at::Device& device = placement_.device;
    if (device.is_cuda()) line = device.str() + " " + describe_gpu(device.index());
    return line + (placement_.compute == at::kFloat ? ", float32" : ", bfloat16");
  }
  std::unique_ptr<Network> make_network(const ModelConfig& config, const ParameterSet& parameters) const override {
    return std::make_unique<AtenNetwork>(config, parameters, placement_);
  }
  std::unique_ptr<Inference> make_part(const ModelConfig& config, const ParameterSet& parameters,
                                       const ParameterSet* adapter, std::shared_ptr<Peers> peers) const override {
    return std::make_unique<AtenPart>(config, parameters, adapter, placement_, std::move(peers));
  }
  std::unique_ptr<KvPages> make_pages(int64_t num_pages) const override {
    return std::make_unique<AtenPages>(config_, placement_, num_pages);
  }
  int64_t bytes_per_page() const override {
    return 2 * config_.num_layers * config_.kv_width() * kPageTokens *
           static_cast<int64_t>(c10::elementSize(placement_.compute));
  }

  at::Tensor make_flat(int64_t count) const override { return at::zeros({count}, options(at::kFloat)); }
  ParameterSet make_set() const override {
    return lay_out(config_, [&](int64_t count) { return make_flat(count); });
  }
  void zero(ParameterSet& set) const override {
    for (at::Tensor& flat : set.flats()) flat.zero_();
  }
  void add(ParameterSet& to_set, const ParameterSet& from_set, float scale) const override {
    const std::vector<at::Tensor> to = to_set.flats(), from = from_set.flats();
    for (size_t i = 0; i < to.size(); ++i) to[i].add_(from[i], scale);
  }

  // A Gram matrix per parameter.
  void products(std::span<const ParameterSet* const> sets, std::span<double> out) const override {
    const auto n = static_cast<int64_t>(sets.size()), parameters = static_cast<int64_t>(sets[0]->named.size());
    at::Tensor grams_PSS = at::zeros({parameters, n, n}, options(at::kDouble));
    for (int64_t i = 0; i < parameters; ++i) {
      std::vector<at::Tensor> values;
      for (const ParameterSet* set : sets) values.push_back(set->named[static_cast<size_t>(i)].value);
      at::Tensor gram_SS = grams_PSS[i];
      for_blocks(values, std::max<int64_t>(kBlock / n, 1024), [&](const std::vector<at::Tensor>& x, int64_t) {
        const at::Tensor block_SN = (n == 1 ? x[0].unsqueeze(0) : at::stack(x)).to(at::kDouble);
        gram_SS.addmm_(block_SN, block_SN.t());
      });
    }
    std::vector<double> grams(static_cast<size_t>(parameters * n * n));
    to_host(grams_PSS, grams);
    size_t at = 0;
    for (int64_t a = 0; a < n; ++a) {
      for (int64_t b = a; b < n; ++b) {
        for (int64_t i = 0; i < parameters; ++i) out[at++] = grams[static_cast<size_t>((i * n + a) * n + b)];
      }
    }
  }

  // Neighbours fall into neighbouring entries, so a block is laid in rows of the sketch's length and these are summed.
  void sketch_runs_into(std::span<const SketchRun> all, std::span<float> out) const override {
    const auto size = static_cast<int64_t>(out.size());
    at::Tensor sums_M = at::zeros({size}, options(at::kFloat));
    for (const SketchRun& run : all) {
      const int64_t place = run.entry % size, counter = static_cast<int64_t>(run.counter);
      for_blocks({run.values}, kBlock, [&](const std::vector<at::Tensor>& x, int64_t first) {
        const int64_t n = x[0].numel(), runs = (n + 63) / 64, before = (place + first) % size,
                      after = (size - (before + n) % size) % size;
        const at::Tensor counters_C = at::arange(runs, options(at::kLong)).add_(counter + first / 64);
        const at::Tensor signed_N = sign_factors(counters_C).narrow(0, 0, n).mul_(x[0]);
        const auto zeros = [&](int64_t count) { return at::zeros({count}, options(at::kFloat)); };
        sums_M += at::cat({zeros(before), signed_N, zeros(after)}).view({-1, size}).sum(0);
      });
    }
    const at::Tensor host = sums_M.to(at::kCPU);
    std::memcpy(out.data(), host.const_data_ptr<float>(), out.size_bytes());
  }

  // In the order of operations of the CPU's.
  void adamw(ParameterSet& parameters, ParameterSet& first, ParameterSet& second, const ParameterSet& gradients,
             const AdamWCoefficients& c) const override {
    const std::vector<at::Tensor> p = parameters.flats(), m = first.flats(), v = second.flats(), g = gradients.flats();
    for (size_t k = 0; k < p.size(); ++k) {
      const at::Tensor scaled = g[k] * c.scale;
      m[k].add_(scaled - m[k], c.one_minus_b1);
      v[k].mul_(c.b2).addcmul_(scaled, scaled, c.one_minus_b2);
      const at::Tensor divisor = at::sqrt(v[k]).div_(c.correction).add_(c.eps);
      p[k].mul_(c.keep).addcdiv_(m[k], divisor, -c.step_size);
    }
  }

 private:
  at::TensorOptions options(at::ScalarType type) const {
    return at::TensorOptions().dtype(type).device(placement_.device);
  }

  const ModelConfig config_;
  const Placement placement_;
};

const BackendKind kAten(
    "cuda, cuda:N, aten", 0,
    [](const ModelConfig& c) { return c.device() == "aten" || c.device().starts_with("cuda"); },
    [](const ModelConfig& c) { return make_aten_backend(c, placement_of(c)); });

}  // namespace

std::unique_ptr<Backend> make_aten_backend(const ModelConfig& config, const Placement& placement) {
  if (config.shape.experts > 0) {
    refuse("\"" + std::string(config.device()) + "\" has no mixtures of experts: model.device = \"cpu\" computes them");
  }
  return std::make_unique<AtenBackend>(config, placement);
}

template <typename T>
at::Tensor to_device(const T* data, at::IntArrayRef shape, at::Device device) {
  const at::Tensor host =
      at::from_blob(const_cast<T*>(data), shape, at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value));
  return upload(host, device);
}

template at::Tensor to_device(const int32_t*, at::IntArrayRef, at::Device);
template at::Tensor to_device(const int64_t*, at::IntArrayRef, at::Device);
template at::Tensor to_device(const float*, at::IntArrayRef, at::Device);

}  // namespace gyre
