// The ranks of a group as the peers that sample from one model together.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "backend/peers.h"
#include "fsdp/group.h"

namespace gyre {

class GroupPeers : public Peers {
 public:
  // The group must outlive this object.
  explicit GroupPeers(Group& group) : group_(group) {}
  int part() const override { return group_.rank(); }
  int parts() const override { return group_.size(); }
  at::Tensor join(const at::Tensor& mine_NW, std::span<const int64_t> widths, bool first_alone) override;
  std::string broadcast(std::string_view bytes) override { return group_.broadcast(bytes); }

 private:
  Group& group_;
};

}  // namespace gyre
