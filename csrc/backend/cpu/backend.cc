// The CPU backend: parameters in huge pages, and arithmetic on them in blocks of fixed size that are summed one by one
// and then in order, so that every bit is the same for any number of threads.
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "backend/cpu/network.h"
#include "kernels/parallel.h"
#include "kernels/product.h"
#include "kernels/tile.h"

namespace gyre {
namespace {

constexpr int64_t kBlockEntries = 1 << 14;

// Calls f(first entry, length) for blocks of n entries.
template <class F>
void for_blocks(int64_t n, F&& f) {
  parallel_for((n + kBlockEntries - 1) / kBlockEntries, 1,
               [&](int64_t block) { f(block * kBlockEntries, std::min(kBlockEntries, n - block * kBlockEntries)); });
}

// Zeros in huge pages: products read weights and add to gradients from one end to the other.
at::Tensor zeros(int64_t count) {
  auto memory = std::make_shared<Buffer>();
  memory->reserve(count);
  constexpr int64_t kPiece = 1 << 19;  // 2 MiB, one huge page: most of the time goes into getting it
  parallel_for(ceil_div(count, kPiece), 1, [&](int64_t i) {
    std::fill_n(memory->data() + i * kPiece, std::min(kPiece, count - i * kPiece), 0.0f);
  });
  return at::from_blob(memory->data(), {count}, [memory](void*) {}, at::TensorOptions().dtype(at::kFloat));
}

// Zeros that take memory only where they are written to, for parameters that are soon let go.
at::Tensor lazy_zeros(int64_t count) {
  void* memory = std::calloc(static_cast<size_t>(count), sizeof(float));
  if (memory == nullptr) throw std::bad_alloc();
  return at::from_blob(memory, {count}, [](void* p) { std::free(p); }, at::TensorOptions().dtype(at::kFloat));
}

const float* data(const at::Tensor& t) {
  TORCH_CHECK(t.is_contiguous(), "gradients: a parameter is not contiguous");
  return t.const_data_ptr<float>();
}

// The products of all pairs a <= b of n entries each, written to out[pair * stride].
void pair_dots(std::span<const float* const> buffers, int64_t n, double* out, size_t stride) {
  const int64_t blocks = (n + kBlockEntries - 1) / kBlockEntries;
  const int64_t pairs = static_cast<int64_t>(buffers.size() * (buffers.size() + 1) / 2);
  std::vector<double> sums(blocks * pairs);
  parallel_for(blocks, 1, [&](int64_t k) {
    const int64_t at = k * kBlockEntries;
    std::vector<const float*> blocks_of(buffers.begin(), buffers.end());
    for (const float*& x : blocks_of) x += at;
    dot_pairs(blocks_of, std::min(kBlockEntries, n - at), &sums[k * pairs]);
  });
  for (int64_t p = 0; p < pairs; ++p) {
    double sum = 0;
    for (int64_t k = 0; k < blocks; ++k) sum += sums[k * pairs + p];
    out[p * stride] = sum;
  }
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
    uint64_t signs = sketch_signs(counter++);
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

// Coefficients by value and pointers that do not alias: only so is the loop vectorized, and as fast as memory.
void update(float* __restrict p, float* __restrict m, float* __restrict v, const float* __restrict g, int64_t n,
            AdamWCoefficients c) {
  for (int64_t i = 0; i < n; ++i) {
    const float grad = g[i] * c.scale;
    m[i] += (grad - m[i]) * c.one_minus_b1;
    v[i] = v[i] * c.b2 + grad * grad * c.one_minus_b2;
    p[i] = p[i] * c.keep - c.step_size * (m[i] / (std::sqrt(v[i]) / c.correction + c.eps));
  }
}

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(const ModelConfig& config) : config_(config) {}

  std::string describe() const override {
    return std::string("cpu, ") + (config_.precision() == Precision::kBfloat16 ? "bfloat16" : "float32");
  }
  std::unique_ptr<Network> make_network(const ModelConfig& config, const ParameterSet& parameters) const override {
    return std::make_unique<CpuNetwork>(config, parameters);
  }
  std::unique_ptr<Inference> make_part(const ModelConfig& config, const ParameterSet& parameters,
                                       const ParameterSet* adapter, std::shared_ptr<Peers> peers) const override {
    return std::make_unique<CpuPart>(config, parameters, adapter, std::move(peers));
  }
  std::unique_ptr<KvPages> make_pages(int64_t num_pages) const override {
    return std::make_unique<CpuPages>(config_, config_.num_layers, num_pages);
  }
  int64_t bytes_per_page() const override {
    return 2 * config_.num_layers * config_.kv_width() * kPageTokens * bytes_of(config_.precision());
  }
  at::Tensor make_flat(int64_t count) const override { return zeros(count); }
  ParameterSet make_set() const override { return lay_out(config_, config_.frozen ? lazy_zeros : zeros); }
  int64_t product_block() const override { return kBlockEntries; }

  void zero(ParameterSet& set) const override {
    for (at::Tensor& flat : set.flats()) {
      float* x = flat.mutable_data_ptr<float>();
      for_blocks(flat.numel(), [x](int64_t at, int64_t length) { std::fill_n(x + at, length, 0.0f); });
    }
  }

  void add(ParameterSet& to_set, const ParameterSet& from_set, float factor) const override {
    const std::vector<at::Tensor> to = to_set.flats(), from = from_set.flats();
    for (size_t i = 0; i < to.size(); ++i) {
      float* x = to[i].mutable_data_ptr<float>();
      const float* y = data(from[i]);
      for_blocks(to[i].numel(), [=](int64_t at, int64_t length) {
        for (int64_t k = at; k < at + length; ++k) x[k] += factor * y[k];
      });
    }
  }

  void products(std::span<const ParameterSet* const> sets, std::span<double> out) const override {
    const size_t parameters = sets[0]->named.size();
    std::vector<const float*> pointers(sets.size());
    for (size_t i = 0; i < parameters; ++i) {
      for (size_t s = 0; s < sets.size(); ++s) pointers[s] = data(sets[s]->named[i].value);
      pair_dots(pointers, sets[0]->named[i].value.numel(), &out[i], parameters);
    }
  }

  void sketch_runs_into(std::span<const SketchRun> runs, std::span<float> out) const override {
    const auto size = static_cast<int64_t>(out.size());
    std::vector<SketchPiece> pieces;
    for (const SketchRun& run : runs) {
      const float* x = data(run.values);
      int64_t place = run.entry % size;
      uint64_t counter = run.counter;
      for (int64_t left = run.values.numel(); left > 0;) {
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

  void adamw(ParameterSet& parameters, ParameterSet& first, ParameterSet& second, const ParameterSet& gradients,
             const AdamWCoefficients& c) const override {
    const std::vector<at::Tensor> p = parameters.flats(), m = first.flats(), v = second.flats(), g = gradients.flats();
    for (size_t k = 0; k < p.size(); ++k) {
      float *to = p[k].mutable_data_ptr<float>(), *one = m[k].mutable_data_ptr<float>(),
            *two = v[k].mutable_data_ptr<float>();
      const float* from = g[k].const_data_ptr<float>();
      for_blocks(p[k].numel(),
                 [&](int64_t at, int64_t length) { update(to + at, one + at, two + at, from + at, length, c); });
    }
  }

 private:
  const ModelConfig config_;
};

const BackendKind kCpu(
    "cpu", 0, [](const ModelConfig& c) { return c.device() == "cpu"; },
    [](const ModelConfig& c) -> std::unique_ptr<Backend> { return std::make_unique<CpuBackend>(c); });

}  // namespace
}  // namespace gyre
