#include "backend/peers.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "fsdp/group.h"

namespace gyre {
namespace {

class GroupPeers : public Peers {
 public:
  explicit GroupPeers(std::shared_ptr<Group> group) : group_(std::move(group)) {}
  int part() const override { return group_->rank(); }
  int parts() const override { return group_->size(); }
  std::string broadcast(std::string_view bytes) override { return group_->broadcast(bytes); }

  at::Tensor join(const at::Tensor& mine_NW, std::span<const int64_t> widths, bool first_alone) override {
    const auto n = static_cast<size_t>(parts()), self = static_cast<size_t>(part());
    const bool receives = !first_alone || self == 0;
    const at::Tensor mine = mine_NW.contiguous();
    std::vector<at::Tensor> to(n), from(n);
    for (size_t p = 0; p < n; ++p) {
      if (p == self) continue;
      if (!first_alone || p == 0) to[p] = mine;
      if (receives) from[p] = at::empty({mine.size(0), widths[p]}, mine.options());
    }
    group_->exchange("tensor-parallel sampling", GYRE_CARGO_ACTIVATIONS, to, from).wait();
    if (!receives) return {};
    from[self] = mine;
    return at::cat(from, 1);
  }

 private:
  const std::shared_ptr<Group> group_;
};

}  // namespace

std::shared_ptr<Peers> peers_over(std::shared_ptr<Group> group) {
  return std::make_shared<GroupPeers>(std::move(group));
}

}  // namespace gyre
