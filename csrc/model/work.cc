#include "model/work.h"

namespace gyre {
namespace {

constexpr double kFloatBytes = 4;

// Weights of all blocks' matrices.
double block_weights(const ModelConfig& c) {
  const int64_t layer = c.hidden_size * (c.qkv_width() + c.query_width() + 3 * c.intermediate_size);
  return static_cast<double>(c.num_layers) * static_cast<double>(layer);
}

// Multiply-adds of one product of queries with keys (or of probabilities with values) over all rows, heads and layers.
double attention_products(const ModelConfig& c, const Pass& pass) {
  double keys = 0;
  for (const PagedRows& rows : pass.attended) {
    const auto n = static_cast<double>(rows.count);
    keys += n * static_cast<double>(rows.position) + n * (n + 1) / 2;
  }
  return keys * static_cast<double>(c.query_width()) * static_cast<double>(c.num_layers);
}

}  // namespace

Work operator-(const Work& a, const Work& b) { return {a.flops - b.flops, a.bytes - b.bytes}; }
Work operator*(const Work& work, double times) { return {work.flops * times, work.bytes * times}; }

Work forward_work(const ModelConfig& c, const Pass& pass) {
  double positions = 0;
  for (const PagedRows& rows : pass.attended) positions += static_cast<double>(rows.position + rows.count);
  const double kv = positions * 2.0 * static_cast<double>(c.kv_width() * c.num_layers);
  return {.flops = 2 * static_cast<double>(pass.rows) * block_weights(c) + 4 * attention_products(c, pass),
          .bytes = kFloatBytes * (block_weights(c) + kv)};
}

Work backward_work(const ModelConfig& c, const Pass& pass) {
  const Work forward = forward_work(c, pass);
  return {.flops = 2 * forward.flops + 2 * attention_products(c, pass), .bytes = 3 * forward.bytes};
}

Work head_work(const ModelConfig& c, int64_t rows) {
  const auto weights = static_cast<double>((c.head == HeadKind::kValue ? 1 : c.vocab_size) * c.hidden_size);
  return {.flops = 2 * static_cast<double>(rows) * weights, .bytes = kFloatBytes * weights};
}

}  // namespace gyre
