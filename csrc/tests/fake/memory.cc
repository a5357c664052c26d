// The device's memory: two ranges of addresses of one size. Tensors hold addresses of the first, which nobody may read
// or write; the bytes are at the same distance in the second, which operations use.
#include <ATen/ATen.h>
#include <execinfo.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <mutex>

#include "tests/fake/device.h"

namespace gyre::fake {
namespace {

constexpr size_t kBytes = size_t{8} << 30;  // of addresses; memory is used as it is written
constexpr size_t kAlign = 512;

struct sigaction former;
char* guarded = nullptr;

// The host touched device memory: says so, with the stack. Another fault is the former handler's.
void on_fault(int signal, siginfo_t* info, void*) {
  const char* const at = static_cast<char*>(info->si_addr);
  if (at < guarded || at >= guarded + kBytes) {
    sigaction(signal, &former, nullptr);
    return;
  }
  constexpr char kText[] = "\nfake device: the host touched device memory; stack:\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText, sizeof kText - 1);
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
  _exit(139);
}

char* reserve(int protection) {
  void* const p = mmap(nullptr, kBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(p != MAP_FAILED, "fake device: no addresses: ", std::strerror(errno));
  return static_cast<char*>(p);
}

}  // namespace

struct Memory {
  struct Block {
    size_t bytes;
    uint64_t number;
    Pool* pool;  // of the recording in which it was allocated, or null
  };

  Memory() : device(reserve(PROT_NONE)), bytes(reserve(PROT_READ | PROT_WRITE)) {
    guarded = device;
    struct sigaction action{};
    action.sa_sigaction = &on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (const int fault : {SIGSEGV, SIGBUS}) sigaction(fault, &action, fault == SIGSEGV ? &former : nullptr);
    void* frame = nullptr;
    backtrace(&frame, 1);  // what it loads at first use cannot be loaded in the handler
  }
  // Lives as long as the process: tensors may go after everything else.
  static Memory& get() {
    static auto* const memory = new Memory;
    return *memory;
  }
  static char* behind(const void* address) { return get().bytes + (static_cast<const char*>(address) - get().device); }

  char* allocate(size_t count) {
    const size_t size = (count + kAlign - 1) / kAlign * kAlign;
    const std::lock_guard<std::mutex> lock(mutex);
    size_t taken = size;
    char* p = nullptr;
    if (const auto it = idle.lower_bound(size); it != idle.end() && it->first <= 2 * size) {
      taken = it->first, p = it->second;
      idle.erase(it);
    } else {
      TORCH_CHECK(used + size <= kBytes, "fake device: out of memory");
      p = device + used;
      used += size;
      std::memset(behind(p), 0xff, size);
    }
    Pool* const pool = recording == nullptr ? nullptr : &recording->pool;
    if (pool != nullptr) pool->in_use_[p] = true;
    blocks[p] = {taken, ++last, pool};
    return p;
  }
  static void release(void* address) {
    if (address == nullptr) return;
    Memory& m = get();
    const std::lock_guard<std::mutex> lock(m.mutex);
    const auto it = m.blocks.find(static_cast<char*>(address));
    if (it->second.pool != nullptr) {
      it->second.pool->in_use_[it->first] = false;
      return;
    }
    m.free(it);
  }
  void free(std::map<char*, Block>::iterator it) {
    std::memset(behind(it->first), 0xff, it->second.bytes);
    idle.emplace(it->second.bytes, it->first);
    blocks.erase(it);
  }
  std::map<char*, Block>::iterator block_of(char* address) {
    const auto it = blocks.upper_bound(address);
    return it == blocks.begin() ? blocks.end() : std::prev(it);
  }

  // Of the pools of recordings.
  static void drop(Pool& pool) {
    Memory& m = get();
    const std::lock_guard<std::mutex> lock(m.mutex);
    for (const auto& [p, in_use] : pool.in_use_) {
      const auto it = m.blocks.find(p);
      it->second.pool = nullptr;
      if (!in_use) m.free(it);
    }
  }
  static std::pair<int64_t, int64_t> kept(const Pool& pool) {
    Memory& m = get();
    const std::lock_guard<std::mutex> lock(m.mutex);
    int64_t count = 0, total = 0;
    for (const auto& [p, in_use] : pool.in_use_) {
      if (in_use) ++count, total += static_cast<int64_t>(m.blocks.at(p).bytes);
    }
    return {total, count};
  }
  static void poison(const Pool& pool) {
    Memory& m = get();
    const std::lock_guard<std::mutex> lock(m.mutex);
    for (const auto& [p, in_use] : pool.in_use_) std::memset(behind(p), 0xff, m.blocks.at(p).bytes);
  }

  char *const device, *const bytes;
  std::mutex mutex;  // guards all below, and the pools
  size_t used = 0;
  uint64_t last = 0;
  std::map<char*, Block> blocks;
  std::multimap<size_t, char*> idle;
};

namespace {

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t count) override {
    const c10::Device device(c10::kPrivateUse1, c10::impl::VirtualGuardImpl(c10::kPrivateUse1).getDevice().index());
    if (count == 0) return {nullptr, nullptr, &Memory::release, device};
    count_allocation(static_cast<int64_t>(count));
    char* const p = Memory::get().allocate(count);
    return {p, p, &Memory::release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Memory::release; }
  void copy_data(void* to, const void* from, size_t count) const override {
    std::memcpy(Memory::behind(to), Memory::behind(from), count);
  }
};

// Memory of the host that copies need not wait for.
std::mutex pinned_mutex;  // guards the ranges
std::map<const char*, size_t>& pinned_ranges() {
  static auto* const ranges = new std::map<const char*, size_t>;
  return *ranges;
}

void release_pinned(void* p) {
  const std::lock_guard<std::mutex> lock(pinned_mutex);
  pinned_ranges().erase(static_cast<char*>(p));
  std::free(p);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t count) override {
    if (count == 0) return {nullptr, c10::kCPU};
    void* const p = std::aligned_alloc(64, (count + 63) / 64 * 64);
    const std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned_ranges()[static_cast<char*>(p)] = count;
    return {p, p, &release_pinned, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_pinned; }
  void copy_data(void* to, const void* from, size_t count) const override { std::memcpy(to, from, count); }
};

}  // namespace

Pool::~Pool() { Memory::drop(*this); }
std::pair<int64_t, int64_t> Pool::kept() const { return Memory::kept(*this); }
void Pool::poison() { Memory::poison(*this); }

c10::Allocator* allocator() {
  static auto* const one = new DeviceAllocator;
  return one;
}

c10::Allocator* pinned_allocator() {
  static auto* const one = new PinnedAllocator;
  return one;
}

bool pinned(const void* address) {
  const std::lock_guard<std::mutex> lock(pinned_mutex);
  const auto it = pinned_ranges().upper_bound(static_cast<const char*>(address));
  return it != pinned_ranges().begin() &&
         static_cast<const char*>(address) < std::prev(it)->first + std::prev(it)->second;
}

bool ours(const at::Tensor& t) { return t.defined() && t.device().type() == c10::kPrivateUse1; }

at::Tensor open(const at::Tensor& t) {
  if (!ours(t)) return t;
  static char none[64];
  char* p = nullptr;
  if (t.storage().nbytes() > 0) p = static_cast<char*>(t.storage().unsafeGetStorageImpl()->mutable_data());
  if (p != nullptr && recording != nullptr) {
    Memory& m = Memory::get();
    const std::lock_guard<std::mutex> lock(m.mutex);
    const auto it = m.block_of(p);
    if (it->second.pool != &recording->pool) recording->outside[it->first] = it->second.number;
  }
  char* const at = p == nullptr ? none : Memory::behind(p) + t.storage_offset() * static_cast<int64_t>(t.itemsize());
  at::Tensor host = at::from_blob(at, t.sizes(), t.strides(), at::TensorOptions().dtype(t.dtype()));
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) host.unsafeGetTensorImpl()->set_wrapped_number(true);
  return host;
}

void refuse_recording(const std::string& what) {
  TORCH_CHECK(recording == nullptr, "fake device: not permitted while recording: ", what);
}

void require_outside(const Recording& of) {
  Memory& m = Memory::get();
  const std::lock_guard<std::mutex> lock(m.mutex);
  for (const auto& [p, number] : of.outside) {
    const auto it = m.blocks.find(p);
    TORCH_CHECK(it != m.blocks.end() && it->second.number == number,
                "fake device: a replay reads or writes memory that has been freed since it was recorded");
  }
}

}  // namespace gyre::fake
