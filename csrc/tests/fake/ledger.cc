#include <algorithm>
#include <mutex>
#include <sstream>

#include "tests/fake/device.h"

namespace gyre::fake {
namespace {

std::mutex mutex;  // guards `all`
Ledger all;

}  // namespace

thread_local Recording* recording = nullptr;

Ledger ledger() {
  const std::lock_guard<std::mutex> lock(mutex);
  return all;
}

Ledger operator-(Ledger a, const Ledger& b) {
  a.launches -= b.launches, a.waits -= b.waits;
  a.to_device -= b.to_device, a.to_device_bytes -= b.to_device_bytes;
  a.to_host -= b.to_host, a.to_host_bytes -= b.to_host_bytes;
  a.allocations -= b.allocations, a.allocated_bytes -= b.allocated_bytes;
  for (const auto& [name, count] : b.names) a.names[name] -= count;
  std::erase_if(a.names, [](const auto& entry) { return entry.second == 0; });
  return a;
}

std::string describe(const Ledger& ledger) {
  std::vector<std::pair<std::string, int64_t>> names(ledger.names.begin(), ledger.names.end());
  std::ranges::stable_sort(names, [](const auto& a, const auto& b) { return a.second > b.second; });
  std::ostringstream out;
  out << ledger.launches << " launches, " << ledger.waits << " waits, " << ledger.to_device_bytes << " bytes in "
      << ledger.to_device << " copies to the device, " << ledger.to_host_bytes << " in " << ledger.to_host
      << " to the host\n";
  for (const auto& [name, count] : names) out << "  " << count << " " << name << "\n";
  return out.str();
}

void count_launch(const std::string& operation) {
  const std::lock_guard<std::mutex> lock(mutex);
  ++all.launches, ++all.names[operation];
}

void count_wait(const std::string& why) {
  const std::lock_guard<std::mutex> lock(mutex);
  ++all.waits, ++all.names["wait: " + why];
}

void count_copy(bool to_device, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex);
  ++(to_device ? all.to_device : all.to_host);
  (to_device ? all.to_device_bytes : all.to_host_bytes) += bytes;
}

void count_allocation(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex);
  ++all.allocations, all.allocated_bytes += bytes;
}

}  // namespace gyre::fake
