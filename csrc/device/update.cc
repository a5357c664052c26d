#include "device/update.h"

#include <ATen/ops/sqrt.h>

#include <algorithm>

namespace gyre {
namespace {

constexpr int64_t kBlock = int64_t{1} << 22;  // bounds the f64 copies

}  // namespace

double dot_on_device(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.reshape({-1}), y = b.reshape({-1});
  at::Tensor sum = at::zeros({}, x.options().dtype(at::kDouble));
  for (int64_t at = 0; at < x.numel(); at += kBlock) {
    const int64_t n = std::min(kBlock, x.numel() - at);
    sum += x.narrow(0, at, n).to(at::kDouble).mul_(y.narrow(0, at, n)).sum();
  }
  return sum.item<double>();
}

void adamw_on_device(at::Tensor& parameter, at::Tensor& first, at::Tensor& second, const at::Tensor& gradient,
                     const AdamWCoefficients& c) {
  const at::Tensor g = gradient * c.scale;
  first.add_(g - first, c.one_minus_b1);
  second.mul_(c.b2).addcmul_(g, g, c.one_minus_b2);
  parameter.mul_(c.keep).addcdiv_(first, at::sqrt(second).div_(c.correction).add_(c.eps), -c.step_size);
}

}  // namespace gyre
