// The processes ("ranks") of a run, and what they send each other.
//
// Everything is made of one operation, an exchange: each rank sends something to each other and receives something from
// each other. All-gather is an exchange of one's own part with everyone; reduce-scatter one of everyone's part of mine,
// which are then added here in the order of a fixed tree, so that sums depend on no ring and no timing. Ranks must
// start the same exchanges in the same order.
//
// A group that has failed stays failed: every operation throws GroupError, which names the operation and the rank. A
// rank notices by itself that one that it waits for has ended or is too slow. When another rank fails, the owner of the
// group aborts it.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/peers.h"
#include "gyre.h"

namespace gyre {

struct GroupError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Where the ranks of a run find each other: a table of keys and values that all of them reach, kept by c10d.
// Safe to call from several threads. Everything throws std::runtime_error when the store cannot be reached.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Does not wait for the key.
  virtual std::optional<std::string> find(const std::string& key) = 0;
  // Sets a key that nobody has set, and returns the value that it has then: the first claim counts.
  virtual std::string claim(const std::string& key, const std::string& value) = 0;
};

// A FileStore: a file that every rank of one machine opens. Who may join is up to the permissions of its folder.
std::shared_ptr<Store> open_file_store(const std::string& path);

// A client of the TCPStore at host:port, which waits at most so many seconds for the server to be there. With a
// listener, a listening socket whose port this is, this process serves the store; it owns the socket from here on.
std::shared_ptr<Store> open_tcp_store(const std::string& host, int port, std::optional<int> listener, double seconds);

struct GroupOptions {
  int rank = 0, size = 1;
  std::shared_ptr<Store> store;    // not needed by a group of one
  std::string prefix;              // of the keys
  std::string backend = "gloo";    // gloo, nccl
  std::string bind = "127.0.0.1";  // address, host name or interface that connections between ranks use
  double timeout = 600;            // seconds that a rank waits for another
  int first = 0;                   // what messages call rank 0 of this group: its rank in the run

  std::string name(int of) const { return "rank " + std::to_string(first + of); }
};

// Adds (or combines) n rows of equal length into the first: neighbours, then neighbours of those, ...: the same bits
// wherever the rows come from, and aligned runs of 2^k rows may be combined beforehand.
template <typename Combine>
void combine_tree(size_t rows, Combine&& combine) {
  for (size_t step = 1; step < rows; step *= 2) {
    for (size_t i = 0; i + step < rows; i += 2 * step) combine(i, i + step);
  }
}

// What moves tensors between ranks. Implemented over c10d.
class Transport {
 public:
  // Something under way.
  class Work {
   public:
    virtual ~Work() = default;
    // Throws std::runtime_error when it fails or takes longer than so many seconds.
    virtual void wait(double seconds) = 0;
    virtual void abort() = 0;
    std::string peer;  // the rank that it depends on, for messages
  };
  virtual ~Transport() = default;
  // Starts one exchange: to[r] goes to rank r, from[r] comes from it. Undefined or empty: nothing. Entries of this rank
  // are ignored. Throws std::runtime_error that names the rank whose connection is broken.
  virtual std::vector<std::shared_ptr<Work>> start(const std::vector<at::Tensor>& to,
                                                   const std::vector<at::Tensor>& from, int tag) = 0;
  // Ends what is under way although nobody waits for it here: on a device.
  virtual void abort() = 0;
};

class Group : public Peers {
 public:
  // Waits until all ranks are there.
  explicit Group(GroupOptions options);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  int part() const override { return rank(); }
  int parts() const override { return size(); }

  // An exchange under way. Dropping it without wait() gives it up, which only a failing rank may do.
  class Exchange {
   public:
    // Until everything has come and gone.
    void wait();

   private:
    friend class Group;
    Group* group_ = nullptr;
    const char* what_ = "";
    gyre_cargo cargo_ = GYRE_CARGO_CONTROL;
    std::vector<std::shared_ptr<Transport::Work>> works_;
  };

  // Sends to[r] to every rank r and receives from[r] (contiguous, and as long as what r sends; both empty or undefined:
  // nothing). This rank's own entry is copied at once. The tensors are in use until wait(). Control messages may cross
  // others in any order. `what` is for messages and must be a literal.
  Exchange exchange(const char* what, gyre_cargo cargo, const std::vector<at::Tensor>& to,
                    const std::vector<at::Tensor>& from);

  // Control messages. From any thread, one at a time.
  std::vector<std::string> all_gather(std::string_view mine);
  // What rank 0 sends; what others bring is not looked at.
  std::string broadcast(std::string_view mine) override;
  at::Tensor join(const at::Tensor& mine_NW, std::span<const int64_t> widths, bool first_alone) override;
  // Each value becomes the largest of all ranks.
  void all_reduce_max(std::span<double> values);

  // Makes whatever waits, and everything after it, throw. From any thread.
  void abort(const std::string& reason);

  // By gyre_cargo.
  std::array<gyre_traffic, GYRE_CARGO_KINDS> traffic() const;

 private:
  [[noreturn]] void fail(const std::string& message);
  void finish(Exchange& exchange);
  std::vector<at::Tensor> exchange_bytes(const char* what, const std::vector<at::Tensor>& to,
                                         std::span<const int64_t> sizes);

  const GroupOptions options_;
  std::unique_ptr<Transport> transport_;
  std::mutex control_;  // one control operation at a time

  mutable std::mutex mutex_;  // of everything below
  std::string failure_;       // why the group cannot be used any more; empty: it can
  int sequence_[2] = {0, 0};  // of exchanges, and of control messages
  std::set<std::shared_ptr<Transport::Work>> waited_for_;
  std::array<gyre_traffic, GYRE_CARGO_KINDS> traffic_{};
};

// Throws std::runtime_error saying what is missing. The options are there for the whole life of the transport.
std::unique_ptr<Transport> open_transport(const GroupOptions& options);

}  // namespace gyre

// The handle of gyre.h, which the models made with it share.
struct gyre_group : gyre::Group {
  using Group::Group;
  std::shared_ptr<gyre_group> own;  // the caller's; empty once freed
};
