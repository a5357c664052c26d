// What happens to query and key heads between the projection and attention: RMSNorm over the head (Qwen3), then rotary
// position embedding (Su et al. 2021) in Hugging Face's layout, where component i is rotated with component i +
// head_dim / 2.
#pragma once

#include <cstdint>
#include <vector>

#include "gyre.h"
#include "kernels/isa.h"

namespace gyre {

// Angles of a model: inverse frequencies of head_dim / 2 component pairs, plain, linearly interpolated (Chen et al.
// 2023) or scaled by wavelength as Llama 3.1 does. Rounded to f32 where transformers rounds, so that checkpoints see
// the angles they know.
std::vector<float> inverse_frequencies(const gyre_model_config& config);

// cos and sin of position * inverse frequency, grown on demand.
class RopeTable {
 public:
  explicit RopeTable(std::vector<float> inverse_frequencies) : frequencies_(std::move(inverse_frequencies)) {}
  // Makes positions 0 .. count-1 available. Not thread-safe.
  void reserve(int64_t count);
  int64_t half() const { return static_cast<int64_t>(frequencies_.size()); }
  const float* cosines(int64_t position) const { return cosines_.data() + position * half(); }
  const float* sines(int64_t position) const { return sines_.data() + position * half(); }

 private:
  std::vector<float> frequencies_, cosines_, sines_;
  int64_t count_ = 0;
};

// The q and k heads at the start of each projected row: `heads` query heads, then `kv_heads` key heads, head_dim each.
struct HeadLayout {
  int64_t heads, kv_heads, head_dim;
  const float* q_norm;  // [head_dim] or null: no norm
  const float* k_norm;
  float eps;
};

// out[row] = rope(norm(in[row])) at positions[row], for the (heads + kv_heads) * head_dim leading components of every
// row.
GYRE_KERNEL(void, rotate_heads, const HeadLayout& layout, const RopeTable& table, const int32_t* positions,
            int64_t rows, const float* in, int64_t ld_in, float* out, int64_t ld_out);

// In place: d_heads holds d(out) and becomes d(in). Adds to dq_norm and dk_norm [head_dim] unless they are null.
GYRE_KERNEL(void, rotate_heads_backward, const HeadLayout& layout, const RopeTable& table, const int32_t* positions,
            int64_t rows, const float* in, int64_t ld_in, float* d_heads, int64_t ld_d, float* dq_norm, float* dk_norm);

}  // namespace gyre
