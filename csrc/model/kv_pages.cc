#include "model/kv_pages.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "device/placement.h"
#include "kernels/vec.h"

namespace gyre {
namespace {

int64_t floats_per_page(const ModelConfig& config) { return config.kv_width() * kPageTokens; }

}  // namespace

KvPages::KvPages(const ModelConfig& config, int64_t num_pages)
    : num_pages_(num_pages), page_floats_(floats_per_page(config)), layers_(config.num_layers) {
  if (on_tensors(config)) {
    // Zeros: what a masked-out position holds is multiplied by 0, so it must be finite.
    const auto options = parameter_options(config).dtype(placement_of(config).compute);
    keys_ = at::zeros({layers_, num_pages_ * kPageTokens, config.num_kv_heads, config.head_dim}, options);
    values_ = at::zeros_like(keys_);
    return;
  }
  // The attention kernel's vector loads run over the end of the last value row.
  const int64_t count = layers_ * num_pages_ * page_floats_ + kLanes;
  keys_ = at::empty({count}, at::kFloat);
  values_ = at::empty({count}, at::kFloat);
}

int64_t KvPages::bytes_per_page(const ModelConfig& config) {
  return 2 * config.num_layers * floats_per_page(config) *
         static_cast<int64_t>(c10::elementSize(placement_of(config).compute));
}

float* KvPages::keys(int64_t layer) { return keys_.data_ptr<float>() + layer * num_pages_ * page_floats_; }

float* KvPages::values(int64_t layer) { return values_.data_ptr<float>() + layer * num_pages_ * page_floats_; }

LayerPages KvPages::layer(int64_t layer) const { return {keys_.select(0, layer), values_.select(0, layer)}; }

void KvPages::copy_page(int64_t from, int64_t to) {
  if (keys_.dim() > 1) {
    for (const at::Tensor* pool : {&keys_, &values_}) {
      const at::Tensor pages = pool->view({layers_, num_pages_, -1});
      pages.select(1, to).copy_(pages.select(1, from));
    }
    return;
  }
  for (int64_t layer = 0; layer < layers_; ++layer) {
    std::copy_n(keys(layer) + from * page_floats_, page_floats_, keys(layer) + to * page_floats_);
    std::copy_n(values(layer) + from * page_floats_, page_floats_, values(layer) + to * page_floats_);
  }
}

}  // namespace gyre
