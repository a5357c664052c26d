#include "backend/aten/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "backend/aten/network.h"

namespace gyre {
namespace {

at::Tensor range_to(int64_t count, at::Device device) {
  return at::arange(count, at::TensorOptions().dtype(at::kLong).device(device));
}

// Row i of `count` rows from `position` on sees keys 0 .. position + i.
at::Tensor causal_mask(int64_t count, int64_t position, const at::TensorOptions& options) {
  if (position == 0) return {};
  const at::Device device = options.device();
  const at::Tensor rows_N1 = (range_to(count, device) + position).unsqueeze(1);
  return mask_of(range_to(position + count, device).unsqueeze(0) <= rows_N1, options);
}

at::Tensor window_mask(int64_t count, int64_t position, int64_t window, const at::TensorOptions& options) {
  if (window == 0) return {};
  const at::Device device = options.device();
  const at::Tensor rows_N1 = (range_to(count, device) + position).unsqueeze(1);
  return mask_of(seen_within(range_to(position + count, device), rows_N1, window), options);
}

std::vector<int64_t> page_list(const PagedRows& s, int64_t padded) {
  std::vector<int64_t> pages(s.pages, s.pages + s.page_count());
  pages.resize(static_cast<size_t>(padded), pages.front());
  return pages;
}

at::Tensor upload(const std::vector<int64_t>& values, at::Device device) {
  return to_device(values.data(), {static_cast<int64_t>(values.size())}, device);
}

// [1, heads, N, head_dim] from [N, heads, head_dim].
at::Tensor batched(const at::Tensor& heads) { return heads.transpose(0, 1).unsqueeze(0); }

// Each key/value head once for every query head that reads it.
at::Tensor repeat_heads(const at::Tensor& x, int64_t group) {
  if (group == 1) return x;
  return x.unsqueeze(2)
      .expand({x.size(0), x.size(1), group, x.size(2), x.size(3)})
      .reshape({x.size(0), -1, x.size(2), x.size(3)});
}

// mask undefined: causal. With a cap in parts of its own: the library's kernels have none.
at::Tensor attention(const AttentionShape& shape, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& mask) {
  const double scale = shape.score_scale();
  if (shape.cap == 0) {
    const std::optional<at::Tensor> given = mask.defined() ? std::optional(mask) : std::nullopt;
    return at::scaled_dot_product_attention(q, k, v, given, 0.0, !mask.defined(), scale);
  }
  const at::Tensor keys_1S = range_to(k.size(-2), q.device()).unsqueeze(0),
                   rows_N1 = range_to(q.size(-2), q.device()).unsqueeze(1);
  const at::Tensor added = mask.defined() ? mask : mask_of(keys_1S <= rows_N1, q.options());
  at::Tensor scores = at::matmul(q.to(at::kFloat), k.to(at::kFloat).transpose(-1, -2)) * scale;
  scores = (scores / shape.cap).tanh() * shape.cap;
  return at::matmul((scores + added).softmax(-1).to(v.scalar_type()), v);
}

// q: [n, heads, head_dim] of one segment over k, v: [s, kv_heads, head_dim]; returns [n, heads * head_dim].
at::Tensor attend_segment(const AttentionShape& shape, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& mask) {
  const int64_t group = q.size(1) / k.size(1);
  const at::Tensor o =
      attention(shape, batched(q), repeat_heads(batched(k), group), repeat_heads(batched(v), group), mask);
  return o.squeeze(0).transpose(0, 1).reshape({q.size(0), -1});
}

// One query row for each of R sequences. The query heads that share a key/value head stand where the library expects
// rows, so that keys and values are read without repeating them.
at::Tensor attend_decode(const AttentionShape& shape, const at::Tensor& q_RAD, const AttentionPlan& plan,
                         const LayerPages& pages) {
  const int64_t rows = q_RAD.size(0), dim = q_RAD.size(2), kv_heads = pages.keys.size(1);
  const auto gather = [&](const at::Tensor& pool) {
    const at::Tensor by_page = pool.view({-1, kPageTokens * kv_heads * dim});
    const at::Tensor taken = by_page.index_select(0, plan.decode_pages_RP.reshape({-1}));
    return taken.view({rows, -1, kv_heads, dim}).transpose(1, 2);
  };
  const at::Tensor q = q_RAD.reshape({rows, kv_heads, -1, dim});
  const at::Tensor& one = shape.window > 0 ? plan.decode_window_R11S : plan.decode_mask_R11S;
  const at::Tensor mask = one.expand({rows, kv_heads, q.size(2), -1});
  return attention(shape, q, gather(pages.keys), gather(pages.values), mask).reshape({rows, -1});
}

// The keys (or values) of a segment, [s, kv_heads, head_dim].
at::Tensor keys_of(const AttentionRows& s, const at::Tensor& rows, const at::Tensor* pool) {
  if (s.position == 0) return rows.narrow(0, s.row, s.count);
  if (pool != nullptr) {
    const at::Tensor by_page = pool->view({-1, kPageTokens, pool->size(1), pool->size(2)});
    return by_page.index_select(0, s.pages_P).flatten(0, 1).narrow(0, 0, s.position + s.count);
  }
  std::vector<at::Tensor> parts;
  for (const RowRange& r : s.keys) parts.push_back(rows.narrow(0, r.row, r.count));
  return at::cat(parts);
}

}  // namespace

at::Tensor seen_within(const at::Tensor& keys_S, const at::Tensor& positions_R1, int64_t window) {
  const at::Tensor keys_1S = keys_S.unsqueeze(0);
  return (keys_1S <= positions_R1).logical_and(keys_1S > positions_R1 - window);
}

at::Tensor mask_of(const at::Tensor& seen, const at::TensorOptions& options) {
  const at::Tensor mask = at::zeros(seen.sizes(), options);
  return mask.masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
}

AttentionPlan plan_rows(const Pass& pass, int64_t window, const at::TensorOptions& options) {
  AttentionPlan plan;
  for (const Segment& s : pass.segments) {
    std::vector<RowRange> keys{{s.row, s.count}};
    int64_t end = s.position;
    for (int32_t a = s.parent; end > 0; a = pass.segments[static_cast<size_t>(a)].parent) {
      const Segment& ancestor = pass.segments[static_cast<size_t>(a)];
      keys.push_back({ancestor.row, end - ancestor.position});
      end = ancestor.position;
    }
    std::reverse(keys.begin(), keys.end());
    plan.segments.push_back({.row = s.row,
                             .count = s.count,
                             .position = s.position,
                             .keys = std::move(keys),
                             .pages_P = {},
                             .mask_NS = causal_mask(s.count, s.position, options),
                             .window_NS = window_mask(s.count, s.position, window, options)});
  }
  return plan;
}

AttentionPlan plan_paged(const Pass& pass, int64_t window, const at::TensorOptions& options) {
  const at::Device device = options.device();
  AttentionPlan plan;
  const auto rows = static_cast<size_t>(pass.rows);
  std::vector<int64_t> slots(rows), order(rows), decode_rows, decode_positions;
  int64_t written = 0, widest = 0;
  for (const PagedRows& s : pass.attended) {
    for (int64_t i = 0; i < s.count; ++i) {
      const int64_t position = s.position + i;
      slots[s.row + i] = s.pages[position / kPageTokens] * kPageTokens + position % kPageTokens;
    }
    if (s.count == 1) {
      decode_rows.push_back(s.row);
      decode_positions.push_back(s.position);
      widest = std::max(widest, s.page_count());
      continue;
    }
    for (int64_t i = 0; i < s.count; ++i) order[s.row + i] = written++;
    plan.segments.push_back({.row = s.row,
                             .count = s.count,
                             .position = s.position,
                             .keys = {},
                             .pages_P = upload(page_list(s, s.page_count()), device),
                             .mask_NS = causal_mask(s.count, s.position, options),
                             .window_NS = window_mask(s.count, s.position, window, options)});
  }
  plan.slots_N = upload(slots, device);
  if (!decode_rows.empty()) {
    std::vector<int64_t> tables;
    for (const PagedRows& s : pass.attended) {
      if (s.count != 1) continue;
      order[s.row] = written++;
      const std::vector<int64_t> pages = page_list(s, widest);
      tables.insert(tables.end(), pages.begin(), pages.end());
    }
    const auto count = static_cast<int64_t>(decode_rows.size());
    if (count < pass.rows || !std::ranges::is_sorted(decode_rows)) plan.decode_rows_R = upload(decode_rows, device);
    plan.decode_pages_RP = to_device(tables.data(), {count, widest}, device);
    const at::Tensor seen = upload(decode_positions, device).unsqueeze(1);
    const at::Tensor keys_S = range_to(widest * kPageTokens, device);
    plan.decode_mask_R11S = mask_of(keys_S.unsqueeze(0) <= seen, options).view({count, 1, 1, -1});
    if (window > 0)
      plan.decode_window_R11S = mask_of(seen_within(keys_S, seen, window), options).view({count, 1, 1, -1});
  }
  if (!std::is_sorted(order.begin(), order.end())) plan.order_N = upload(order, device);
  return plan;
}

at::Tensor attend_tensors(const AttentionShape& shape, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionPlan& plan, const std::optional<LayerPages>& pages) {
  if (pages) {
    at::Tensor keys = pages->keys, values = pages->values;
    keys.index_copy_(0, plan.slots_N, k);
    values.index_copy_(0, plan.slots_N, v);
  }
  std::vector<at::Tensor> parts;
  for (const AttentionRows& s : plan.segments) {
    parts.push_back(attend_segment(shape, q.narrow(0, s.row, s.count), keys_of(s, k, pages ? &pages->keys : nullptr),
                                   keys_of(s, v, pages ? &pages->values : nullptr),
                                   shape.window > 0 ? s.window_NS : s.mask_NS));
  }
  if (plan.decode_pages_RP.defined()) {
    const at::Tensor& rows = plan.decode_rows_R;
    parts.push_back(attend_decode(shape, rows.defined() ? q.index_select(0, rows) : q, plan, *pages));
  }
  const at::Tensor all = parts.size() == 1 ? parts.front() : at::cat(parts);
  return plan.order_N.defined() ? all.index_select(0, plan.order_N) : all;
}

}  // namespace gyre
