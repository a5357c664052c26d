#include "train/gradients.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace gyre {
namespace {

constexpr int64_t kBlock = 1 << 14;
constexpr int64_t kStripes = 8;

double block_dot(const float* a, const float* b, int64_t n) {
  double stripes[kStripes] = {};
  int64_t i = 0;
  for (; i + kStripes <= n; i += kStripes) {
    for (int64_t k = 0; k < kStripes; ++k) stripes[k] += static_cast<double>(a[i + k]) * b[i + k];
  }
  for (; i < n; ++i) stripes[i % kStripes] += static_cast<double>(a[i]) * b[i];
  double sum = 0;
  for (double stripe : stripes) sum += stripe;
  return sum;
}

double tensor_dot(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.is_contiguous() && b.is_contiguous(), "gradients: a parameter is not contiguous");
  const int64_t n = a.numel(), blocks = (n + kBlock - 1) / kBlock;
  const float* pa = a.const_data_ptr<float>();
  const float* pb = b.const_data_ptr<float>();
  std::vector<double> sums(blocks);
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      sums[k] = block_dot(pa + k * kBlock, pb + k * kBlock, std::min(kBlock, n - k * kBlock));
    }
  });
  double sum = 0;
  for (double s : sums) sum += s;
  return sum;
}

}  // namespace

Gradients::Gradients(const ModelConfig& config) : config_(config), set_(make_parameters(config)) {}

void Gradients::zero() {
  for (at::Tensor& flat : set_.flats()) flat.zero_();
}

void Gradients::add(const Gradients& other, double scale) {
  require_config(other.config_);
  const std::vector<at::Tensor> to = set_.flats(), from = other.set_.flats();
  for (size_t i = 0; i < to.size(); ++i) to[i].add_(from[i], scale);
}

double Gradients::dot(const Gradients& other, std::span<double> per_parameter) const {
  require_config(other.config_);
  double total = 0;
  for (size_t i = 0; i < set_.named.size(); ++i) {
    const double part = tensor_dot(set_.named[i].value, other.set_.named[i].value);
    if (!per_parameter.empty()) per_parameter[i] = part;
    total += part;
  }
  return total;
}

void Gradients::require_config(const ModelConfig& config) const {
  if (!(config_ == config))
    throw std::invalid_argument("gradients: the buffer was made for a model of another configuration");
}

}  // namespace gyre
