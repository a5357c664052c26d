// PyTorch's process groups as transport, and its stores as rendezvous. Of NCCL only the making of a group is elsewhere
// (nccl/).
#ifdef GYRE_C10D
#define USE_C10D_GLOO
#include <c10/util/Logging.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "backend/aten/cuda.h"
#include "fsdp/nccl/nccl.h"
#endif

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <utility>

#include "fsdp/group.h"

namespace gyre {

#ifdef GYRE_C10D
namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(std::max<int64_t>(1, static_cast<int64_t>(std::ceil(seconds * 1000))));
}

// The only kind of store that there is in a build with c10d.
class C10dStore : public Store {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store) : store(std::move(store)) {}
  void set(const std::string& key, const std::string& value) override {
    store->set(key, std::vector<uint8_t>(value.begin(), value.end()));
  }
  std::optional<std::string> find(const std::string& key) override {
    if (!store->check({key})) return std::nullopt;
    const std::vector<uint8_t> value = store->get(key);
    return std::string(value.begin(), value.end());
  }
  std::string claim(const std::string& key, const std::string& value) override {
    return store->compareSet(key, "", value);
  }

  const c10::intrusive_ptr<c10d::Store> store;
};

// The keys of one transport of a group.
c10::intrusive_ptr<c10d::Store> keys_of(const GroupOptions& options, const char* transport) {
  return c10::make_intrusive<c10d::PrefixStore>(options.prefix + transport,
                                                static_cast<const C10dStore&>(*options.store).store);
}

class C10dWork : public Transport::Work {
 public:
  C10dWork(c10::intrusive_ptr<c10d::Work> work, std::string rank) : work_(std::move(work)) { peer = std::move(rank); }
  // Received on the host for a tensor on a device.
  C10dWork(c10::intrusive_ptr<c10d::Work> work, std::string rank, at::Tensor host, at::Tensor device)
      : C10dWork(std::move(work), std::move(rank)) {
    host_ = std::move(host), device_ = std::move(device);
  }
  void wait(double seconds) override {
    if (!work_->wait(milliseconds(seconds))) throw std::runtime_error("told to stop");
    if (device_.defined()) std::exchange(device_, {}).copy_(host_);
  }
  void abort() override { work_->abort(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  at::Tensor host_, device_;
};

// Gloo writes to its sockets without MSG_NOSIGNAL, so that a rank would die of the signal where another has gone,
// before it can say so. A handler, not SIG_IGN: programs that this process starts do not inherit it. Of Go's own
// writes, those to standard output and error raise the signal again by themselves.
void outlive_broken_connections() {
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  sigaction(SIGPIPE, &action, nullptr);
}

decltype(&gyre_make_nccl) nccl_maker() {
  std::string problem;
  void* const maker = cuda_part("libgyre_nccl.so", "gyre_make_nccl", &problem);
  if (maker == nullptr) {
    throw std::invalid_argument("process group: backend nccl is not in this build (" + problem +
                                "): build against a CUDA libtorch with NCCL's headers (pip install torch, then "
                                "LIBTORCH=<its folder> make setup build), or set model.device=cpu, which uses gloo");
  }
  return reinterpret_cast<decltype(&gyre_make_nccl)>(maker);
}

at::Tensor on_host(const at::Tensor& like) { return at::empty_like(like, like.options().device(at::kCPU)); }

// Threads that are made while it lives do not preempt others when they wake (SCHED_BATCH). Without it Gloo's thread of
// events takes the processor from the thread that is writing to a connection, and then spins until its time is over,
// because it only tries to lock that connection.
class NoPreemption {
 public:
  NoPreemption() : policy_(sched_getscheduler(0)) {
    if (policy_ == SCHED_OTHER) set(SCHED_BATCH);
  }
  ~NoPreemption() {
    if (policy_ == SCHED_OTHER) set(SCHED_OTHER);
  }
  NoPreemption(const NoPreemption&) = delete;
  NoPreemption& operator=(const NoPreemption&) = delete;

 private:
  static void set(int policy) {
    const sched_param none{};
    sched_setscheduler(0, policy, &none);  // a system that refuses leaves things as they are
  }
  const int policy_;
};

// Tensors of devices go by NCCL if it is asked for, others by Gloo, in which every pair of ranks has a connection of
// its own and what arrives is written to its place without another copy, but for devices' tensors: Gloo reads and
// writes addresses of the host alone. Waiting for NCCL lets the device's stream
// wait, not this process: its timeout is watched by c10d, and what a rank could not go on for shows where results are
// read.
class C10dTransport : public Transport {
 public:
  explicit C10dTransport(const GroupOptions& options) : options_(options) {
    // First: a build without it says so before its peers are connected, who would otherwise see it go.
    const auto make_nccl = options.backend == "nccl" ? nccl_maker() : nullptr;
    outlive_broken_connections();
    auto settings = c10d::ProcessGroupGloo::Options::create(milliseconds(options.timeout));
    const bool interface = if_nametoindex(options.bind.c_str()) != 0;
    const NoPreemption gloo_events;
    settings->devices = {interface ? c10d::ProcessGroupGloo::createDeviceForInterface(options.bind)
                                   : c10d::ProcessGroupGloo::createDeviceForHostname(options.bind)};
    settings->threads = 1;  // only collectives of Gloo's own need any
    gloo_ = c10::make_intrusive<c10d::ProcessGroupGloo>(keys_of(options, "gloo"), options.rank, options.size, settings);
    if (make_nccl == nullptr) return;
    const auto store = keys_of(options, "nccl");
    nccl_ =
        c10::intrusive_ptr<c10d::Backend>::reclaim(make_nccl(store.get(), options.rank, options.size, options.timeout));
  }

  std::vector<std::shared_ptr<Work>> start(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from,
                                           int tag) override {
    const std::lock_guard<std::mutex> lock(one_at_a_time_);
    const auto on_device = [](const at::Tensor& t) { return t.defined() && !t.is_cpu(); };
    for (const std::vector<at::Tensor>* all : {&to, &from}) {
      const auto found = std::ranges::find_if(*all, on_device);
      if (nccl_ && found != all->end()) return start_nccl(to, from, found->reshape({-1}).narrow(0, 0, 0));
    }
    std::vector<std::shared_ptr<Work>> works;
    for (const bool receive : {true, false}) {
      for (int step = 1; step < options_.size; ++step) {  // each rank begins with another neighbour
        const int peer = (options_.rank + (receive ? options_.size - step : step)) % options_.size;
        const at::Tensor tensor = (receive ? from : to)[static_cast<size_t>(peer)];
        if (!tensor.defined() || tensor.numel() == 0) continue;
        std::vector<at::Tensor> part{tensor.is_cpu() ? tensor : receive ? on_host(tensor) : tensor.to(at::kCPU)};
        const std::string name = options_.name(peer);
        try {
          if (receive) {
            const at::Tensor device = tensor.is_cpu() ? at::Tensor() : tensor;
            works.push_back(std::make_shared<C10dWork>(gloo_->recv(part, peer, tag), name, part[0], device));
          } else {
            works.push_back(std::make_shared<C10dWork>(gloo_->send(part, peer, tag), name));
          }
        } catch (const std::exception& e) {
          throw std::runtime_error(name + " has gone: its connection broke (" + e.what() + ")");
        }
      }
    }
    return works;
  }

  void abort() override {
    if (nccl_) nccl_->abort();
  }

 private:
  std::vector<std::shared_ptr<Work>> start_nccl(std::vector<at::Tensor> to, std::vector<at::Tensor> from,
                                                const at::Tensor& nothing) {
    for (std::vector<at::Tensor>* all : {&to, &from}) {
      for (size_t r = 0; r < all->size(); ++r) {
        if (!(*all)[r].defined() || static_cast<int>(r) == options_.rank) (*all)[r] = nothing;
      }
    }
    return {std::make_shared<C10dWork>(nccl_->alltoall(from, to), "another rank")};
  }

  const GroupOptions& options_;
  std::mutex one_at_a_time_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  c10::intrusive_ptr<c10d::Backend> nccl_;  // null: all tensors go by Gloo
};

}  // namespace

std::unique_ptr<Transport> open_transport(const GroupOptions& options) {
  require(options.backend == "gloo" || options.backend == "nccl", "process group: backend is \"", options.backend,
          "\", expected gloo or nccl");
  return std::make_unique<C10dTransport>(options);
}

std::shared_ptr<Store> open_file_store(const std::string& path) {
  const int made = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);  // c10d would wait for its folder
  if (made < 0) throw std::system_error(errno, std::generic_category(), "opening it");
  ::close(made);
  constexpr int kNobodyRemovesIt = -1;
  auto store = c10::make_intrusive<c10d::FileStore>(path, kNobodyRemovesIt);
  store->setTimeout(milliseconds(5));  // for the file to be there
  return std::make_shared<C10dStore>(std::move(store));
}

std::shared_ptr<Store> open_tcp_store(const std::string& host, int port, std::optional<int> listener, double seconds) {
  // c10d logs a stack for each attempt to connect, and throws what can be said as well.
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.isServer = listener.has_value();
  options.masterListenFd = listener;
  options.waitWorkers = false;
  options.timeout = milliseconds(seconds);
  return std::make_shared<C10dStore>(c10::make_intrusive<c10d::TCPStore>(host, options));
}

#else

std::unique_ptr<Transport> open_transport(const GroupOptions&) {
  throw std::runtime_error("process group: this libtorch was built without c10d: use one with torch.distributed");
}

std::shared_ptr<Store> open_file_store(const std::string&) {
  throw std::runtime_error("store: this libtorch was built without c10d: use one with torch.distributed");
}

std::shared_ptr<Store> open_tcp_store(const std::string&, int, std::optional<int>, double) {
  return open_file_store("");
}

#endif

}  // namespace gyre
