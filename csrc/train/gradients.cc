#include "train/gradients.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "device/placement.h"
#include "device/update.h"
#include "kernels/dot.h"
#include "kernels/parallel.h"

namespace gyre {
namespace {

constexpr int64_t kBlock = 1 << 14;

// Calls f(first entry, length) for blocks of n entries.
template <class F>
void for_blocks(int64_t n, F&& f) {
  parallel_for((n + kBlock - 1) / kBlock, 1,
               [&](int64_t block) { f(block * kBlock, std::min(kBlock, n - block * kBlock)); });
}

// Parameter `i` of every buffer, in this process's memory.
std::vector<at::Tensor> host_copies(std::span<const Gradients* const> buffers, size_t i) {
  std::vector<at::Tensor> all;
  for (const Gradients* g : buffers) all.push_back(g->set().named[i].value.to(at::kCPU));
  return all;
}

const float* data(const at::Tensor& t) {
  TORCH_CHECK(t.is_contiguous(), "gradients: a parameter is not contiguous");
  return t.const_data_ptr<float>();
}

// The products of all pairs a <= b of n entries each, written to out[pair * stride].
void pair_dots(std::span<const float* const> buffers, int64_t n, double* out, size_t stride) {
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  const int64_t pairs = static_cast<int64_t>(buffers.size() * (buffers.size() + 1) / 2);
  std::vector<double> sums(blocks * pairs);
  parallel_for(blocks, 1, [&](int64_t k) {
    const int64_t at = k * kBlock;
    std::vector<const float*> blocks_of(buffers.begin(), buffers.end());
    for (const float*& x : blocks_of) x += at;
    dot_pairs(blocks_of, std::min(kBlock, n - at), &sums[k * pairs]);
  });
  for (int64_t p = 0; p < pairs; ++p) {
    double sum = 0;
    for (int64_t k = 0; k < blocks; ++k) sum += sums[k * pairs + p];
    out[p * stride] = sum;
  }
}

double tensor_dot(const at::Tensor& a, const at::Tensor& b) {
  const float *pa = data(a), *pb = data(b);
  std::vector<double> sums((a.numel() + kBlock - 1) / kBlock);
  for_blocks(a.numel(), [&](int64_t at, int64_t length) { sums[at / kBlock] = gyre::dot(pa + at, pb + at, length); });
  double sum = 0;
  for (double s : sums) sum += s;
  return sum;
}

// The output function of SplitMix64 (Steele, Lea and Flood 2014): 64 random signs for a counter.
uint64_t signs_of(uint64_t counter) {
  uint64_t z = (counter + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// out[k] += ±x[k], at most 64 of them.
void add_signed(const float* x, uint64_t signs, int64_t n, float* out) {
  for (int64_t k = 0; k < n; ++k) {
    const auto sign = static_cast<uint32_t>((signs >> k) & 1) << 31;
    out[k] += std::bit_cast<float>(std::bit_cast<uint32_t>(x[k]) ^ sign);
  }
}

// Entries that lie together, the place of the first in the sketch, and the counter of its sign: a whole number of 64s
// into its parameter.
struct SketchPiece {
  const float* x;
  int64_t n, place;
  uint64_t counter;
};
constexpr int64_t kSketchPiece = 1 << 20;
constexpr size_t kSketchSums = 8;

void add_piece(const SketchPiece& piece, std::vector<float>& out) {
  const auto size = static_cast<int64_t>(out.size());
  int64_t place = piece.place;
  uint64_t counter = piece.counter;
  for (const float *x = piece.x, *end = x + piece.n; x < end;) {
    uint64_t signs = signs_of(counter++);
    for (int64_t left = std::min<int64_t>(64, end - x); left > 0;) {
      const int64_t run = std::min(left, size - place);
      add_signed(x, signs, run, &out[static_cast<size_t>(place)]);
      signs = run < 64 ? signs >> run : 0;
      x += run;
      left -= run;
      place = place + run == size ? 0 : place + run;
    }
  }
}

}  // namespace

Gradients::Gradients(const ModelConfig& config) : config_(config), set_(make_parameters(config)) {}

void Gradients::zero() {
  for (at::Tensor& flat : set_.flats()) {
    float* x = flat.mutable_data_ptr<float>();
    for_blocks(flat.numel(), [x](int64_t at, int64_t length) { std::fill_n(x + at, length, 0.0f); });
  }
}

void Gradients::add(const Gradients& other, double scale) {
  require_config(other.config_);
  const std::vector<at::Tensor> to = set_.flats(), from = other.set_.flats();
  const auto factor = static_cast<float>(scale);
  for (size_t i = 0; i < to.size(); ++i) {
    float* x = to[i].mutable_data_ptr<float>();
    const float* y = data(from[i]);
    for_blocks(to[i].numel(), [=](int64_t at, int64_t length) {
      for (int64_t k = at; k < at + length; ++k) x[k] += factor * y[k];
    });
  }
}

double Gradients::dot(const Gradients& other, std::span<double> per_parameter) const {
  require_config(other.config_);
  double total = 0;
  for (size_t i = 0; i < set_.named.size(); ++i) {
    const at::Tensor &mine = set_.named[i].value, &theirs = other.set_.named[i].value;
    const double part = on_tensors(config_) ? dot_on_device(mine, theirs) : tensor_dot(mine, theirs);
    if (!per_parameter.empty()) per_parameter[i] = part;
    total += part;
  }
  return total;
}

void Gradients::products(std::span<const Gradients* const> buffers, std::span<double> out) {
  const size_t parameters = buffers[0]->set_.named.size();
  std::vector<const float*> pointers(buffers.size());
  for (const Gradients* g : buffers) g->require_config(buffers[0]->config_);
  for (size_t i = 0; i < parameters; ++i) {
    const std::vector<at::Tensor> values = host_copies(buffers, i);
    for (size_t b = 0; b < buffers.size(); ++b) pointers[b] = data(values[b]);
    pair_dots(pointers, buffers[0]->set_.named[i].value.numel(), &out[i], parameters);
  }
}

void Gradients::sketch(std::span<float> out) const {
  const auto size = static_cast<int64_t>(out.size());
  std::vector<at::Tensor> hosts;
  std::vector<SketchPiece> pieces;
  int64_t place = 0;
  uint64_t counter = 0;
  for (const auto& parameter : set_.named) {
    hosts.push_back(parameter.value.to(at::kCPU));
    const float* x = data(hosts.back());
    for (int64_t left = hosts.back().numel(); left > 0;) {
      const int64_t n = std::min(left, kSketchPiece);
      pieces.push_back({x, n, place, counter});
      x += n;
      left -= n;
      place = (place + n) % size;
      counter += static_cast<uint64_t>((n + 63) / 64);
    }
  }
  // Always the same pieces to the same sums: the same bits for any number of threads.
  std::vector<std::vector<float>> sums(kSketchSums, std::vector<float>(out.size()));
  parallel_for(kSketchSums, 1, [&](int64_t s) {
    for (size_t i = static_cast<size_t>(s); i < pieces.size(); i += kSketchSums) {
      add_piece(pieces[i], sums[static_cast<size_t>(s)]);
    }
  });
  std::fill(out.begin(), out.end(), 0.0f);
  for (const std::vector<float>& sum : sums) {
    for (size_t k = 0; k < out.size(); ++k) out[k] += sum[k];
  }
}

void Gradients::require_config(const ModelConfig& config) const {
  if (!(config_ == config))
    throw std::invalid_argument("gradients: the buffer was made for a model of another configuration");
}

}  // namespace gyre
