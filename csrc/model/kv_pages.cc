#include "model/kv_pages.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "kernels/vec.h"

namespace gyre {
namespace {

int64_t floats_per_page(const ModelConfig& config) { return config.kv_width() * kPageTokens; }

}  // namespace

KvPages::KvPages(const ModelConfig& config, int64_t num_pages)
    : num_pages_(num_pages), page_floats_(floats_per_page(config)), layers_(config.num_layers) {
  // The attention kernel's vector loads run over the end of the last value row.
  const int64_t count = layers_ * num_pages_ * page_floats_ + kLanes;
  keys_ = at::empty({count}, at::kFloat);
  values_ = at::empty({count}, at::kFloat);
}

int64_t KvPages::bytes_per_page(const ModelConfig& config) {
  return 2 * config.num_layers * floats_per_page(config) * static_cast<int64_t>(sizeof(float));
}

float* KvPages::keys(int64_t layer) { return keys_.data_ptr<float>() + layer * num_pages_ * page_floats_; }

float* KvPages::values(int64_t layer) { return values_.data_ptr<float>() + layer * num_pages_ * page_floats_; }

void KvPages::copy_page(int64_t from, int64_t to) {
  for (int64_t layer = 0; layer < layers_; ++layer) {
    std::copy_n(keys(layer) + from * page_floats_, page_floats_, keys(layer) + to * page_floats_);
    std::copy_n(values(layer) + from * page_floats_, page_floats_, values(layer) + to * page_floats_);
  }
}

}  // namespace gyre
