#include "fsdp/group.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace gyre {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double bytes_of(const std::vector<at::Tensor>& parts, int skip) {
  double sum = 0;
  for (size_t r = 0; r < parts.size(); ++r) {
    if (static_cast<int>(r) != skip && parts[r].defined()) sum += static_cast<double>(parts[r].nbytes());
  }
  return sum;
}

at::Tensor tensor_of(std::string_view bytes) {
  at::Tensor t = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  if (!bytes.empty()) std::memcpy(t.mutable_data_ptr(), bytes.data(), bytes.size());
  return t;
}

at::Tensor tensor_of(int64_t number) { return tensor_of({reinterpret_cast<const char*>(&number), sizeof number}); }

std::string bytes_in(const at::Tensor& t) {
  return {static_cast<const char*>(t.const_data_ptr()), static_cast<size_t>(t.numel())};
}

int64_t number_in(const at::Tensor& t) { return *static_cast<const int64_t*>(t.const_data_ptr()); }

// What a wait may end too early by: a transport's clock need not be ours.
constexpr double kClockTick = 0.01;

}  // namespace

Group::Group(GroupOptions options) : options_(std::move(options)) {
  require(size() >= 1 && rank() >= 0 && rank() < size(), "process group: rank ", rank(), " of ", size(),
          ", expected 0 to size - 1");
  require(options_.timeout > 0, "process group: the timeout must be more than 0 seconds");
  if (size() == 1) return;
  require(options_.store != nullptr, "process group: more than one rank need a store to meet at");
  transport_ = open_transport(options_);
}

void Group::abort(const std::string& reason) {
  std::set<std::shared_ptr<Transport::Work>> works;
  bool first;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    first = failure_.empty();
    if (first) failure_ = reason.empty() ? "stopped" : reason;
    works = waited_for_;
  }
  if (first && transport_) transport_->abort();
  for (const auto& work : works) work->abort();
}

void Group::fail(const std::string& message) {
  abort(message);
  throw GroupError(message);
}

Group::Exchange Group::exchange(const char* what, gyre_cargo cargo, const std::vector<at::Tensor>& to,
                                const std::vector<at::Tensor>& from) {
  const auto self = static_cast<size_t>(rank());
  if (to[self].defined() && from[self].defined() && !to[self].is_alias_of(from[self])) from[self].copy_(to[self]);
  Exchange exchange;
  if (size() == 1) return exchange;
  exchange.group_ = this;
  exchange.what_ = what;
  exchange.cargo_ = cargo;
  const int control = cargo == GYRE_CARGO_CONTROL ? 1 : 0;
  int tag;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.empty()) throw GroupError(std::string(what) + ": " + failure_);
    tag = 2 * (sequence_[control]++ & 0x3fffffff) + control;
    traffic_[cargo].sent += bytes_of(to, rank());
  }
  try {
    exchange.works_ = transport_->start(to, from, tag);
  } catch (const std::exception& e) {
    fail(std::string(what) + ": " + e.what());
  }
  return exchange;
}

void Group::Exchange::wait() {
  if (group_ != nullptr) std::exchange(group_, nullptr)->finish(*this);
}

void Group::finish(Exchange& exchange) {
  const Clock::time_point begin = Clock::now();
  const std::string what = std::string(exchange.what_) + ": ";
  for (const auto& work : exchange.works_) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!failure_.empty()) throw GroupError(what + failure_);
      waited_for_.insert(work);
    }
    bool failed = false;
    try {
      work->wait(std::max(0.001, options_.timeout - since(begin)));
    } catch (const std::exception&) {
      failed = true;
    }
    const double waited = since(begin);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      waited_for_.erase(work);
      if (failed && !failure_.empty()) throw GroupError(what + failure_);
    }
    if (!failed) continue;
    if (waited < options_.timeout - kClockTick) fail(what + work->peer + " has gone: its connection broke");
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.3g s", waited);
    fail(what + work->peer + " has not answered for " + seconds);
  }
  exchange.works_.clear();
  const std::lock_guard<std::mutex> lock(mutex_);
  traffic_[exchange.cargo_].waited += since(begin);
}

std::array<gyre_traffic, GYRE_CARGO_KINDS> Group::traffic() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return traffic_;
}

// Sends to[r] and returns what each rank sends, sizes[r] bytes.
std::vector<at::Tensor> Group::exchange_bytes(const char* what, const std::vector<at::Tensor>& to,
                                              std::span<const int64_t> sizes) {
  std::vector<at::Tensor> from;
  for (int64_t size : sizes) from.push_back(at::empty({size}, at::kByte));
  exchange(what, GYRE_CARGO_CONTROL, to, from).wait();
  return from;
}

std::vector<std::string> Group::all_gather(std::string_view mine) {
  const std::lock_guard<std::mutex> one(control_);
  const auto n = static_cast<size_t>(size());
  const auto to_all = [&](const at::Tensor& part, std::span<const int64_t> sizes) {
    return exchange_bytes("all-gather", std::vector<at::Tensor>(n, part), sizes);
  };
  std::vector<int64_t> sizes;
  for (const at::Tensor& t : to_all(tensor_of(mine.size()), std::vector<int64_t>(n, sizeof(int64_t)))) {
    sizes.push_back(number_in(t));
  }
  std::vector<std::string> all;
  for (const at::Tensor& t : to_all(tensor_of(mine), sizes)) all.push_back(bytes_in(t));
  return all;
}

std::string Group::broadcast(std::string_view mine) {
  const std::lock_guard<std::mutex> one(control_);
  const auto n = static_cast<size_t>(size());
  const auto from_0 = [&](const at::Tensor& part, int64_t bytes) {
    std::vector<int64_t> sizes(n);
    sizes[0] = bytes;
    return exchange_bytes("broadcast", std::vector<at::Tensor>(n, rank() == 0 ? part : at::Tensor()), sizes)[0];
  };
  const int64_t size = number_in(from_0(tensor_of(mine.size()), sizeof(int64_t)));
  return bytes_in(from_0(tensor_of(mine), size));
}

at::Tensor Group::join(const at::Tensor& mine_NW, std::span<const int64_t> widths, bool first_alone) {
  const auto n = static_cast<size_t>(size()), self = static_cast<size_t>(rank());
  const bool receives = !first_alone || self == 0;
  const at::Tensor mine = mine_NW.contiguous();
  std::vector<at::Tensor> to(n), from(n);
  for (size_t p = 0; p < n; ++p) {
    if (p == self) continue;
    if (!first_alone || p == 0) to[p] = mine;
    if (receives) from[p] = at::empty({mine.size(0), widths[p]}, mine.options());
  }
  exchange("tensor-parallel sampling", GYRE_CARGO_ACTIVATIONS, to, from).wait();
  if (!receives) return {};
  from[self] = mine;
  return at::cat(from, 1);
}

void Group::all_reduce_max(std::span<double> values) {
  for (const std::string& row : all_gather({reinterpret_cast<const char*>(values.data()), values.size_bytes()})) {
    for (size_t i = 0; i < values.size(); ++i) {
      double other;
      std::memcpy(&other, row.data() + i * sizeof other, sizeof other);
      values[i] = std::max(values[i], other);
    }
  }
}

}  // namespace gyre
