// Storage of keys and values in pages of 16 positions, the layout that the attention kernel reads:
//   keys   [layer][page][kv_head][head_dim][16]   (transposed: one vector load gives 16 keys' component d)
//   values [layer][page][kv_head][16][head_dim]
// or, for a decoder on tensors (device/), both as [layer][page * 16][kv_head][head_dim] in its compute type.
// The engine owns a pool of these; the training forward makes a private one per micro-batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/page.h"
#include "model/config.h"

namespace gyre {

// Keys and values of one layer, [pages * 16, kv_heads, head_dim].
struct LayerPages {
  at::Tensor keys, values;
};

class KvPages {
 public:
  KvPages(const ModelConfig& config, int64_t num_pages);

  int64_t num_pages() const { return num_pages_; }
  static int64_t bytes_per_page(const ModelConfig& config);
  float* keys(int64_t layer);  // base of the layer's key pages
  float* values(int64_t layer);
  LayerPages layer(int64_t layer) const;  // of a decoder on tensors
  // Copies the contents of one page to another in every layer (copy-on-write).
  void copy_page(int64_t from, int64_t to);

 private:
  int64_t num_pages_ = 0, page_floats_ = 0, layers_ = 0;
  at::Tensor keys_, values_;
};

}  // namespace gyre
