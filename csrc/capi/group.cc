// Process groups of gyre.h.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "capi/boundary.h"

struct gyre_store {
  std::shared_ptr<gyre::Store> store;
};

namespace gyre::capi {
namespace {

// A copy from malloc.
void hand_over(std::string_view bytes, void** data, int64_t* size) {
  *data = std::malloc(std::max<size_t>(bytes.size(), 1));
  if (*data == nullptr) throw std::bad_alloc();
  std::memcpy(*data, bytes.data(), bytes.size());
  *size = static_cast<int64_t>(bytes.size());
}

std::string bytes_of(const void* data, int64_t size) {
  return std::string(std::string_view(static_cast<const char*>(data), static_cast<size_t>(size)));
}

}  // namespace
}  // namespace gyre::capi

using namespace gyre;
using namespace gyre::capi;

gyre_status gyre_store_open_file(const char* path, gyre_store** out) {
  return guard([&] { *out = new gyre_store{open_file_store(path)}; });
}

gyre_status gyre_store_open_tcp(const char* host, int32_t port, int32_t listener, double seconds, gyre_store** out) {
  return guard([&] {
    const std::optional<int> serves = listener == 0 ? std::nullopt : std::optional<int>(listener);
    *out = new gyre_store{open_tcp_store(host, port, serves, seconds)};
  });
}

void gyre_store_free(gyre_store* store) { delete store; }

gyre_status gyre_store_set(gyre_store* store, const char* key, const void* data, int64_t size) {
  return guard([&] { store->store->set(key, bytes_of(data, size)); });
}

gyre_status gyre_store_find(gyre_store* store, const char* key, void** data, int64_t* size) {
  return guard([&] {
    *data = nullptr;
    const auto value = store->store->find(key);
    if (value.has_value()) hand_over(*value, data, size);
  });
}

gyre_status gyre_store_claim(gyre_store* store, const char* key, const void* data, int64_t size, void** held,
                             int64_t* held_size) {
  return guard([&] { hand_over(store->store->claim(key, bytes_of(data, size)), held, held_size); });
}

void gyre_bytes_free(void* data) { std::free(data); }

gyre_status gyre_group_new(const gyre_group_config* config, gyre_group** out) {
  return guard([&] {
    const gyre_group_config& c = *config;
    GroupOptions options{.rank = c.rank,
                         .size = c.size,
                         .store = c.store == nullptr ? nullptr : c.store->store,
                         .prefix = c.prefix,
                         .backend = c.backend,
                         .bind = c.bind,
                         .timeout = c.timeout,
                         .first = c.first};
    *out = make<gyre_group>(std::move(options));
  });
}

void gyre_group_free(gyre_group* group) { release(group); }

void gyre_group_abort(gyre_group* group, const char* reason) {
  if (group != nullptr) group->abort(reason);
}

gyre_status gyre_group_all_gather(gyre_group* group, const void* mine, int64_t size, int64_t* sizes, void** data) {
  return guard([&] {
    const auto parts = group->all_gather(bytes_of(mine, size));
    std::string all;
    for (size_t r = 0; r < parts.size(); ++r) {
      sizes[r] = static_cast<int64_t>(parts[r].size());
      all += parts[r];
    }
    hand_over(all, data, &size);
  });
}

void gyre_group_traffic(const gyre_group* group, gyre_traffic out[GYRE_CARGO_KINDS]) {
  if (group != nullptr) std::ranges::copy(group->traffic(), out);
}
