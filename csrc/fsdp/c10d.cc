// PyTorch's process groups as transport, and its stores as rendezvous. Of NCCL only the making of a group is elsewhere
// (nccl/).
#ifdef GYRE_C10D
#define USE_C10D_GLOO
#include <c10/util/Logging.h>
#include <fcntl.h>
#include <net/if.h>
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
  int64_t add(const std::string& key, int64_t amount) override { return store->add(key, amount); }

  const c10::intrusive_ptr<c10d::Store> store;
};

// The keys of one transport of a group.
c10::intrusive_ptr<c10d::Store> keys_of(const GroupOptions& options, const char* transport) {
  return c10::make_intrusive<c10d::PrefixStore>(options.prefix + transport,
                                                static_cast<const C10dStore&>(*options.store).store);
}

class C10dWork : public Transport::Work {
 public:
  C10dWork(c10::intrusive_ptr<c10d::Work> work, int rank) : work_(std::move(work)) { peer = rank; }
  void wait(double seconds) override {
    if (!work_->wait(milliseconds(seconds))) throw std::runtime_error("told to stop");
  }
  void abort() override { work_->abort(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
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

// Every pair of ranks has a connection of its own; what arrives is written to its place without another copy.
class GlooTransport : public Transport {
 public:
  explicit GlooTransport(const GroupOptions& options) : rank_(options.rank), size_(options.size) {
    outlive_broken_connections();
    auto settings = c10d::ProcessGroupGloo::Options::create(milliseconds(options.timeout));
    const bool interface = if_nametoindex(options.bind.c_str()) != 0;
    settings->devices = {interface ? c10d::ProcessGroupGloo::createDeviceForInterface(options.bind)
                                   : c10d::ProcessGroupGloo::createDeviceForHostname(options.bind)};
    settings->threads = 1;  // only collectives of Gloo's own need any
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(keys_of(options, "gloo"), rank_, size_, settings);
  }

  std::vector<std::shared_ptr<Work>> start(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from,
                                           int tag) override {
    const std::lock_guard<std::mutex> lock(one_at_a_time_);
    std::vector<std::shared_ptr<Work>> works;
    const auto add = [&](const std::vector<at::Tensor>& parts, bool receive) {
      for (int step = 1; step < size_; ++step) {  // each rank begins with another neighbour
        const int peer = receive ? (rank_ + size_ - step) % size_ : (rank_ + step) % size_;
        const at::Tensor& part = parts[static_cast<size_t>(peer)];
        if (!part.defined() || part.numel() == 0) continue;
        std::vector<at::Tensor> one{part};
        try {
          works.push_back(
              std::make_shared<C10dWork>(receive ? group_->recv(one, peer, tag) : group_->send(one, peer, tag), peer));
        } catch (const std::exception& e) {
          throw Broken(peer, e.what());
        }
      }
    };
    add(from, true);
    add(to, false);
    return works;
  }

 private:
  int rank_, size_;
  std::mutex one_at_a_time_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

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

// Tensors of devices by NCCL, others by Gloo. Waiting for NCCL lets the device's stream wait, not this process: its
// timeout is watched by c10d, and what a rank could not go on for shows where results are read.
class NcclTransport : public Transport {
 public:
  explicit NcclTransport(const GroupOptions& options)
      : make_(nccl_maker()),
        host_(options),
        rank_(static_cast<size_t>(options.rank)),
        store_(keys_of(options, "nccl")),
        nccl_(c10::intrusive_ptr<c10d::Backend>::reclaim(
            make_(store_.get(), options.rank, options.size, options.timeout))) {}

  std::vector<std::shared_ptr<Work>> start(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from,
                                           int tag) override {
    at::Tensor nothing;
    for (const std::vector<at::Tensor>* all : {&to, &from}) {
      for (const at::Tensor& t : *all) {
        if (t.defined() && !t.is_cpu()) nothing = t.reshape({-1}).narrow(0, 0, 0);
      }
    }
    if (!nothing.defined()) return host_.start(to, from, tag);
    const auto others = [&](std::vector<at::Tensor> parts) {
      for (size_t r = 0; r < parts.size(); ++r) {
        if (!parts[r].defined() || r == rank_) parts[r] = nothing;
      }
      return parts;
    };
    std::vector<at::Tensor> inputs = others(to), outputs = others(from);
    const std::lock_guard<std::mutex> lock(one_at_a_time_);
    return {std::make_shared<C10dWork>(nccl_->alltoall(outputs, inputs), -1)};
  }
  void abort() override { nccl_->abort(); }

 private:
  // First: a build without it says so before its peers are connected, who would otherwise see it go.
  decltype(&gyre_make_nccl) make_;
  GlooTransport host_;
  size_t rank_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::Backend> nccl_;
  std::mutex one_at_a_time_;
};

}  // namespace

std::unique_ptr<Transport> open_transport(const GroupOptions& options) {
  if (options.backend == "gloo") return std::make_unique<GlooTransport>(options);
  if (options.backend == "nccl") return std::make_unique<NcclTransport>(options);
  throw std::invalid_argument("process group: backend is \"" + options.backend + "\", expected gloo or nccl");
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
