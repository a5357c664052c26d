// What happens to query and key heads between the projection and attention: RMSNorm over the head (Qwen3), then rotary
// position embedding (Su et al. 2021) in Hugging Face's layout, where component i is rotated with component i +
// head_dim / 2, or in pairs of neighbours.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gyre.h"
#include "kernels/isa.h"

namespace gyre {

// Angles of a model: inverse frequencies of the component pairs that rotate, divided by what the scaling says. Rounded
// to f32 where transformers rounds, so that checkpoints see the angles they know. local: of layers with
// GYRE_LAYER_LOCAL.
std::vector<float> inverse_frequencies(const gyre_model_config& config, bool local = false);

// cos and sin of position * inverse frequency, grown on demand.
class RopeTable {
 public:
  // magnitude: of cosines and sines; 0: 1.
  explicit RopeTable(std::vector<float> inverse_frequencies, double magnitude = 1)
      : frequencies_(std::move(inverse_frequencies)), magnitude_(magnitude == 0 ? 1 : magnitude) {}
  // Makes positions 0 .. count-1 available. Not thread-safe.
  void reserve(int64_t count);
  int64_t half() const { return static_cast<int64_t>(frequencies_.size()); }
  const float* cosines(int64_t position) const { return cosines_.data() + position * half(); }
  const float* sines(int64_t position) const { return sines_.data() + position * half(); }

 private:
  std::vector<float> frequencies_, cosines_, sines_;
  double magnitude_;
  int64_t count_ = 0;
};

// The tables of a model's layers.
class Ropes {
 public:
  explicit Ropes(const gyre_model_config& config);
  void reserve(int64_t count);
  // Null where a layer's heads do not rotate. `kind`: gyre_layer bits.
  const RopeTable* of(int kind) const;

 private:
  RopeTable main_;
  std::optional<RopeTable> local_;
};

// The q and k heads at the start of each projected row: `heads` query heads, then `kv_heads` key heads, head_dim each.
struct HeadLayout {
  int64_t heads, kv_heads, head_dim;
  const float* q_norm;  // [head_dim] or null: no norm
  const float* k_norm;
  float eps;
  bool wide = false;         // the norms are over all heads together, [heads * head_dim] and [kv_heads * head_dim]
  bool interleaved = false;  // a pair is two neighbours
};

// out[row] = rope(norm(in[row])) at positions[row], for the (heads + kv_heads) * head_dim leading components of every
// row. Of each head as many components rotate as the table has; none for null.
GYRE_KERNEL(void, rotate_heads, const HeadLayout& layout, const RopeTable* table, const int32_t* positions,
            int64_t rows, const float* in, int64_t ld_in, float* out, int64_t ld_out);

// In place: d_heads holds d(out) and becomes d(in). Adds to dq_norm and dk_norm unless they are null.
GYRE_KERNEL(void, rotate_heads_backward, const HeadLayout& layout, const RopeTable* table, const int32_t* positions,
            int64_t rows, const float* in, int64_t ld_in, float* d_heads, int64_t ld_d, float* dq_norm, float* dk_norm);

}  // namespace gyre
