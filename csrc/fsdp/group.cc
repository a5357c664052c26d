#include "fsdp/group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

namespace gyre {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", seconds);
  return text;
}

double bytes_of(const std::vector<at::Tensor>& parts, int skip) {
  double sum = 0;
  for (size_t r = 0; r < parts.size(); ++r) {
    if (static_cast<int>(r) != skip && parts[r].defined()) sum += static_cast<double>(parts[r].nbytes());
  }
  return sum;
}

at::Tensor text_tensor(std::string_view text) {
  at::Tensor t = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  if (!text.empty()) std::memcpy(t.mutable_data_ptr(), text.data(), text.size());
  return t;
}

void combine(std::span<double> into, std::span<const double> values, Reduction reduction) {
  for (size_t i = 0; i < into.size(); ++i) {
    switch (reduction) {
      case Reduction::kSum:
        into[i] += values[i];
        break;
      case Reduction::kMax:  // not std::max: a NaN of any rank is to show
        if (!(values[i] <= into[i])) into[i] = values[i];
        break;
      case Reduction::kMin:
        if (!(values[i] >= into[i])) into[i] = values[i];
        break;
    }
  }
}

// How often a rank looks for another that has not come yet.
constexpr std::chrono::milliseconds kLook(5);

// What a wait may end too early by: a transport's clock need not be ours.
constexpr double kClockTick = 0.01;

}  // namespace

struct Group::State {
  std::unique_ptr<Transport> transport;

  std::mutex control;  // one control operation at a time

  std::mutex mutex;     // of everything below
  std::string failure;  // why the group cannot be used any more; empty: it can
  int lost = -1;
  int sequence[2] = {0, 0};
  std::set<std::shared_ptr<Transport::Work>> waited_for;
  std::array<Traffic, kCargoKinds> traffic;
};

Group::Group(GroupOptions options) : options_(std::move(options)), state_(std::make_unique<State>()) {
  if (options_.size < 1 || options_.rank < 0 || options_.rank >= options_.size) {
    throw std::invalid_argument("process group: rank " + std::to_string(options_.rank) + " of " +
                                std::to_string(options_.size) + ", expected 0 to size - 1");
  }
  if (!(options_.timeout > 0)) throw std::invalid_argument("process group: the timeout must be more than 0 seconds");
  if (options_.size == 1) return;
  if (options_.store == nullptr)
    throw std::invalid_argument("process group: more than one rank need a store to meet at");
  meet();
  state_->transport = open_transport(options_);
}

Group::~Group() = default;

// Every rank says that it is there, so that a missing one can be named: a transport's own rendezvous only says that it
// waited in vain.
void Group::meet() {
  const Clock::time_point begin = Clock::now();
  const std::string size = std::to_string(options_.size), here = options_.prefix + "here/";
  options_.store->set(here + std::to_string(options_.rank), size);
  for (int r = 0; r < options_.size; ++r) {
    std::optional<std::string> theirs;
    while (!(theirs = options_.store->find(here + std::to_string(r))).has_value()) {
      if (since(begin) > options_.timeout) {
        throw GroupError("process group: " + name(r) + " of " + size + " has not come within " +
                         seconds_text(since(begin)));
      }
      std::this_thread::sleep_for(kLook);
    }
    if (*theirs != size) {
      throw GroupError("process group: " + name(r) + " was started for " + *theirs + " ranks, this one for " + size);
    }
  }
}

void Group::abort(const std::string& reason) {
  State& s = *state_;
  std::set<std::shared_ptr<Transport::Work>> works;
  bool first;
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    first = s.failure.empty();
    if (first) s.failure = reason.empty() ? "stopped" : reason;
    works = s.waited_for;
  }
  if (first && s.transport) s.transport->abort();
  for (const auto& work : works) work->abort();
}

// `peer`: the rank whose silence or end was noticed here; -1: nobody knows which.
void Group::fail(const std::string& message, int peer) {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    if (state_->failure.empty()) state_->lost = peer;
  }
  abort(message);
  throw GroupError(message);
}

int Group::lost() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->lost;
}

Group::Exchange Group::start(const char* what, Cargo cargo, const std::vector<at::Tensor>& to,
                             const std::vector<at::Tensor>& from, bool control) {
  State& s = *state_;
  const auto self = static_cast<size_t>(rank());
  if (to[self].defined() && from[self].defined() && !to[self].is_alias_of(from[self])) from[self].copy_(to[self]);
  Exchange exchange;
  exchange.group_ = this;
  exchange.what_ = what;
  exchange.cargo_ = cargo;
  if (size() == 1) return exchange;
  int tag;
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    if (!s.failure.empty()) throw GroupError(std::string(what) + ": " + s.failure);
    tag = 2 * (s.sequence[control]++ & 0x3fffffff) + control;
    Traffic& traffic = s.traffic[static_cast<size_t>(cargo)];
    ++traffic.operations;
    traffic.sent += bytes_of(to, rank());
    traffic.received += bytes_of(from, rank());
  }
  try {
    exchange.works_ = s.transport->start(to, from, tag);
  } catch (const Transport::Broken& e) {
    fail(std::string(what) + ": " + name(e.peer) + " has gone: its connection broke (" + e.what() + ")", e.peer);
  } catch (const std::exception& e) {
    fail(std::string(what) + ": a connection is broken (" + e.what() + ")", -1);
  }
  return exchange;
}

Group::Exchange Group::exchange(const char* what, Cargo cargo, const std::vector<at::Tensor>& to,
                                const std::vector<at::Tensor>& from) {
  return start(what, cargo, to, from, false);
}

void Group::Exchange::wait() {
  if (group_ != nullptr) std::exchange(group_, nullptr)->finish(*this);
}

void Group::finish(Exchange& exchange) {
  State& s = *state_;
  const Clock::time_point begin = Clock::now();
  for (const auto& work : exchange.works_) {
    const std::string what = std::string(exchange.what_) + ": ";
    {
      const std::lock_guard<std::mutex> lock(s.mutex);
      if (!s.failure.empty()) throw GroupError(what + s.failure);
      s.waited_for.insert(work);
    }
    std::string problem;
    try {
      work->wait(std::max(0.001, options_.timeout - since(begin)));
    } catch (const std::exception& e) {
      problem = e.what();
    }
    {
      const std::lock_guard<std::mutex> lock(s.mutex);
      s.waited_for.erase(work);
      if (!problem.empty() && !s.failure.empty()) throw GroupError(what + s.failure);
    }
    if (problem.empty()) continue;
    const std::string rank = name(work->peer);
    if (since(begin) >= options_.timeout - kClockTick)
      fail(what + rank + " has not answered for " + seconds_text(since(begin)), work->peer);
    fail(what + rank + " has gone: its connection broke", work->peer);
  }
  exchange.works_.clear();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.traffic[static_cast<size_t>(exchange.cargo_)].waited += since(begin);
}

std::array<Traffic, kCargoKinds> Group::traffic() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->traffic;
}

// Sends to[r] and returns what each rank sends, sizes[r] bytes.
std::vector<at::Tensor> Group::exchange_bytes(const char* what, const std::vector<at::Tensor>& to,
                                              std::span<const int64_t> sizes) {
  std::vector<at::Tensor> from;
  for (int64_t size : sizes) from.push_back(at::empty({size}, at::kByte));
  start(what, Cargo::kControl, to, from, true).wait();
  return from;
}

void Group::all_reduce(std::span<double> values, Reduction reduction) {
  const std::lock_guard<std::mutex> one(state_->control);
  const auto n = static_cast<size_t>(size());
  const int64_t width = static_cast<int64_t>(values.size_bytes());
  const at::Tensor mine = text_tensor({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  std::vector<at::Tensor> rows =
      exchange_bytes("all-reduce", std::vector<at::Tensor>(n, mine), std::vector<int64_t>(n, width));
  const auto row = [&](size_t r) { return std::span(static_cast<double*>(rows[r].mutable_data_ptr()), values.size()); };
  combine_tree(n, [&](size_t a, size_t b) { combine(row(a), row(b), reduction); });
  std::ranges::copy(row(0), values.begin());
}

std::vector<std::string> Group::all_gather(std::string_view mine) {
  const std::lock_guard<std::mutex> one(state_->control);
  const auto n = static_cast<size_t>(size());
  const auto length = static_cast<int64_t>(mine.size());
  const at::Tensor size_tensor = text_tensor({reinterpret_cast<const char*>(&length), sizeof length});
  const auto lengths =
      exchange_bytes("all-gather", std::vector<at::Tensor>(n, size_tensor), std::vector<int64_t>(n, sizeof length));
  std::vector<int64_t> sizes;
  for (const at::Tensor& t : lengths) sizes.push_back(*static_cast<const int64_t*>(t.const_data_ptr()));
  const auto parts = exchange_bytes("all-gather", std::vector<at::Tensor>(n, text_tensor(mine)), sizes);
  std::vector<std::string> all;
  for (const at::Tensor& t : parts)
    all.emplace_back(static_cast<const char*>(t.const_data_ptr()), static_cast<size_t>(t.numel()));
  return all;
}

std::string Group::broadcast(std::string_view mine, int root) {
  if (root < 0 || root >= size()) {
    throw std::invalid_argument("broadcast: the root is rank " + std::to_string(root) + " of " +
                                std::to_string(size()));
  }
  const std::lock_guard<std::mutex> one(state_->control);
  const auto n = static_cast<size_t>(size()), from = static_cast<size_t>(root);
  const bool sends = rank() == root;
  const auto send = [&](const at::Tensor& part, int64_t bytes) {
    std::vector<int64_t> sizes(n);
    sizes[from] = bytes;
    return exchange_bytes("broadcast", sends ? std::vector<at::Tensor>(n, part) : std::vector<at::Tensor>(n),
                          sizes)[from];
  };
  const auto length = static_cast<int64_t>(mine.size());
  const at::Tensor size = send(text_tensor({reinterpret_cast<const char*>(&length), sizeof length}), sizeof length);
  const at::Tensor data = send(text_tensor(mine), *static_cast<const int64_t*>(size.const_data_ptr()));
  return {static_cast<const char*>(data.const_data_ptr()), static_cast<size_t>(data.numel())};
}

void Group::barrier() {
  const std::lock_guard<std::mutex> one(state_->control);
  const auto n = static_cast<size_t>(size());
  exchange_bytes("barrier", std::vector<at::Tensor>(n, text_tensor("b")), std::vector<int64_t>(n, 1));
}

}  // namespace gyre
