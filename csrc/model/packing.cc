#include "model/packing.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace gyre {

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
  if (offsets.empty() || offsets.front() != 0 || offsets.back() != static_cast<int64_t>(ids.size())) {
    throw std::invalid_argument("packing: offsets must run from 0 to the number of tokens, " +
                                std::to_string(ids.size()));
  }
  PrefixTree tree;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    if (offsets[s + 1] < offsets[s]) {
      throw std::invalid_argument("packing: the offset after sequence " + std::to_string(s) + " decreases");
    }
    tree.add(ids.subspan(static_cast<size_t>(offsets[s]), static_cast<size_t>(offsets[s + 1] - offsets[s])));
  }
  return tree.pack();
}

}  // namespace gyre
