#include "model/pass.h"

#include <algorithm>

#include "kernels/random.h"
#include "kernels/tile.h"

namespace gyre {
namespace {

// Lists the positions of consecutive rows.
void place(Pass& pass, int64_t row, int64_t count, int64_t position) {
  for (int64_t i = 0; i < count; ++i) {
    pass.positions[static_cast<size_t>(row + i)] = static_cast<int32_t>(position + i);
  }
  pass.end = std::max(pass.end, position + count);
}

// Of a weight, a key or a value as a pass reads it.
double number_bytes(const ModelConfig& c) { return static_cast<double>(bytes_of(c.precision())); }

// Weights of all blocks' matrices that a row is multiplied with, so many experts among them.
double block_weights(const ModelConfig& c, int64_t experts) {
  int64_t columns = c.num_layers * (c.qkv_width() + c.query_width());
  for (int64_t i = 0; i < c.num_layers; ++i) {
    columns += 3 * c.mlp_width(i);
    if (c.mixes(i)) columns += c.shape.experts + 3 * experts * c.shape.expert_size;
  }
  return static_cast<double>(c.hidden_size) * static_cast<double>(columns);
}

double row_weights(const ModelConfig& c) { return block_weights(c, c.shape.chosen_experts); }

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

AttentionShape attention_shape(const ModelConfig& c, int64_t layer) {
  const auto scale = static_cast<float>(c.shape.query_scale), cap = static_cast<float>(c.shape.score_cap);
  return {c.num_heads, c.num_kv_heads, c.head_dim, c.window_of(layer), scale, cap};
}

int32_t PrefixTree::child(const Node& node, int32_t id) const {
  const auto found = std::find_if(node.children.begin(), node.children.end(),
                                  [&](int32_t c) { return nodes_[static_cast<size_t>(c)].ids.front() == id; });
  return found == node.children.end() ? -1 : *found;
}

PrefixTree::Match PrefixTree::match(std::span<const int32_t> sequence) const {
  Match m{.node = 0, .used = 0, .length = 0};
  while (m.length < sequence.size()) {
    const Node& node = nodes_[static_cast<size_t>(m.node)];
    if (m.used < node.ids.size()) {
      const auto rest = sequence.subspan(m.length), own = node.ids.subspan(m.used);
      const auto same =
          static_cast<size_t>(std::mismatch(own.begin(), own.end(), rest.begin(), rest.end()).first - own.begin());
      m.used += same;
      m.length += same;
      if (m.used < node.ids.size()) break;
      continue;
    }
    const int32_t next = child(node, sequence[m.length]);
    if (next < 0) break;
    m.node = next;
    m.used = 0;
  }
  return m;
}

int64_t PrefixTree::new_rows(std::span<const int32_t> sequence) const {
  return static_cast<int64_t>(sequence.size() - match(sequence).length);
}

void PrefixTree::add(std::span<const int32_t> sequence) {
  sequences_.push_back(sequence);
  const Match m = match(sequence);
  if (m.length == sequence.size()) return;
  const auto at = static_cast<size_t>(m.node);
  if (m.used < nodes_[at].ids.size()) {  // leaves the node in its middle: cut it there
    Node tail{.ids = nodes_[at].ids.subspan(m.used), .children = std::move(nodes_[at].children)};
    nodes_[at].ids = nodes_[at].ids.first(m.used);
    nodes_[at].children.assign(1, static_cast<int32_t>(nodes_.size()));
    nodes_.push_back(std::move(tail));
  }
  nodes_[at].children.push_back(static_cast<int32_t>(nodes_.size()));
  nodes_.push_back({.ids = sequence.subspan(m.length), .children = {}});
  rows_ += static_cast<int64_t>(sequence.size() - m.length);
}

Packing PrefixTree::pack() const {
  Packing out;
  std::vector<int64_t> first_row(nodes_.size());
  struct Visit {
    int32_t node, parent;
    int64_t position;
  };
  std::vector<Visit> stack;
  const auto push_children = [&](const Node& node, int32_t parent, int64_t position) {
    for (auto c = node.children.rbegin(); c != node.children.rend(); ++c) stack.push_back({*c, parent, position});
  };
  push_children(nodes_.front(), -1, 0);
  while (!stack.empty()) {
    const Visit v = stack.back();
    stack.pop_back();
    const Node& node = nodes_[static_cast<size_t>(v.node)];
    const auto count = static_cast<int64_t>(node.ids.size()), row = out.rows();
    first_row[static_cast<size_t>(v.node)] = row;
    out.segments.push_back({.row = row, .count = count, .position = v.position, .parent = v.parent});
    out.ids.insert(out.ids.end(), node.ids.begin(), node.ids.end());
    push_children(node, static_cast<int32_t>(out.segments.size()) - 1, v.position + count);
  }
  for (const auto& sequence : sequences_) {
    int32_t node = 0;
    for (size_t t = 0; t < sequence.size();) {
      node = child(nodes_[static_cast<size_t>(node)], sequence[t]);
      const size_t count = std::min(nodes_[static_cast<size_t>(node)].ids.size(), sequence.size() - t);
      for (size_t i = 0; i < count; ++i, ++t) {
        out.row_of.push_back(first_row[static_cast<size_t>(node)] + static_cast<int64_t>(i));
      }
    }
  }
  return out;
}

Packing pack(std::span<const int32_t> ids, std::span<const int64_t> offsets) {
  PrefixTree tree;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    tree.add(ids.subspan(static_cast<size_t>(offsets[s]), static_cast<size_t>(offsets[s + 1] - offsets[s])));
  }
  return tree.pack();
}

void join_rows(std::vector<AdapterRows>& runs, Adapter* adapter, int64_t first, int64_t count) {
  if (adapter == nullptr) return;
  const bool goes_on =
      !runs.empty() && runs.back().adapter == adapter && runs.back().first + runs.back().count == first;
  if (!goes_on) runs.push_back({adapter, first, 0});
  runs.back().count += count;
}

DropKey Dropout::module(int64_t layer, uint32_t target) const {
  static_assert(GYRE_LORA_HEAD < 1 << 9);
  return {key, static_cast<uint32_t>(layer) << 9 | target,
          static_cast<uint32_t>(std::min(probability * 0x1p32, 0x1p32 - 1))};
}

Dropout drop_rows(const Packing& packing, const gyre_dropout& dropout) {
  Dropout drop{dropout};
  for (const Segment& s : packing.segments) {
    uint64_t history = 0;
    if (s.parent >= 0) {
      const Segment& before = packing.segments[static_cast<size_t>(s.parent)];
      history = drop.histories[static_cast<size_t>(before.row + before.count - 1)];
    }
    for (int64_t i = 0; i < s.count; ++i) {
      history = split_mix(history ^ split_mix(static_cast<uint64_t>(packing.ids[static_cast<size_t>(s.row + i)])));
      drop.histories.push_back(history);
    }
  }
  return drop;
}

Pass inference_pass(int64_t rows, std::span<const RowSpan> spans) {
  Pass pass;
  pass.rows = rows;
  pass.positions.resize(static_cast<size_t>(rows));
  for (const RowSpan& s : spans) {
    place(pass, s.row, s.count, s.position);
    pass.attended.push_back({s.row, s.count, s.position, s.pages.data()});
    join_rows(pass.adapters, s.adapter, s.row, s.count);
  }
  pass.stored = pass.attended;
  return pass;
}

Pass training_pass(const Packing& packing) {
  Pass pass;
  pass.rows = packing.rows();
  pass.positions.resize(static_cast<size_t>(pass.rows));
  pass.segments = packing.segments;
  const std::vector<Segment>& segments = pass.segments;

  std::vector<size_t> table(segments.size() + 1);  // segment i's begins at tables[table[i]]
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    place(pass, s.row, s.count, s.position);
    const auto shared = static_cast<size_t>(s.position / kPageTokens);
    for (size_t p = 0; p < shared; ++p) {
      pass.tables.push_back(pass.tables[table[static_cast<size_t>(s.parent)] + p]);
    }
    for (int64_t p = s.position / kPageTokens; p < ceil_div(s.position + s.count, kPageTokens); ++p) {
      pass.tables.push_back(static_cast<int32_t>(pass.num_pages++));
    }
    table[i + 1] = pass.tables.size();
  }
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    const int32_t* pages = pass.tables.data() + table[i];
    pass.attended.push_back({s.row, s.count, s.position, pages});
    pass.stored.push_back(pass.attended.back());
    const int64_t page_start = s.position / kPageTokens * kPageTokens;
    int64_t end = s.position;
    for (int32_t a = s.parent; end > page_start; a = segments[static_cast<size_t>(a)].parent) {
      const Segment& ancestor = segments[static_cast<size_t>(a)];
      const int64_t first = std::max(page_start, ancestor.position);
      pass.stored.push_back({ancestor.row + first - ancestor.position, end - first, first, pages});
      end = first;
    }
  }
  return pass;
}

gyre_work& operator+=(gyre_work& sum, const gyre_work& work) {
  sum = {sum.flops + work.flops, sum.bytes + work.bytes};
  return sum;
}
gyre_work operator-(const gyre_work& a, const gyre_work& b) { return {a.flops - b.flops, a.bytes - b.bytes}; }
gyre_work operator*(const gyre_work& work, double times) { return {work.flops * times, work.bytes * times}; }

gyre_work forward_work(const ModelConfig& c, const Pass& pass) {
  double positions = 0;
  for (const PagedRows& rows : pass.attended) positions += static_cast<double>(rows.position + rows.count);
  const double kv = positions * 2.0 * static_cast<double>(c.kv_width() * c.num_layers);
  const int64_t read = std::min(c.shape.experts, pass.rows * c.shape.chosen_experts);
  return {.flops = 2 * static_cast<double>(pass.rows) * row_weights(c) + 4 * attention_products(c, pass),
          .bytes = number_bytes(c) * (block_weights(c, read) + kv)};
}

gyre_work backward_work(const ModelConfig& c, const Pass& pass) {
  const gyre_work forward = forward_work(c, pass);
  gyre_work work{.flops = 2 * forward.flops + 2 * attention_products(c, pass), .bytes = 3 * forward.bytes};
  if (c.lora.rank > 0) work.flops -= 2 * static_cast<double>(pass.rows) * row_weights(c);  // a base has no gradient
  return work;
}

gyre_work head_work(const ModelConfig& c, int64_t rows) {
  const auto weights = static_cast<double>((c.head == GYRE_HEAD_VALUE ? 1 : c.vocab_size) * c.hidden_size);
  return {.flops = 2 * static_cast<double>(rows) * weights, .bytes = number_bytes(c) * weights};
}

}  // namespace gyre
