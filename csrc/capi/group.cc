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
  void* copy = std::malloc(std::max<size_t>(bytes.size(), 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, bytes.data(), bytes.size());
  deref(data, "data") = copy;
  if (size != nullptr) *size = static_cast<int64_t>(bytes.size());
}

std::string_view bytes_view(const void* data, int64_t size) {
  if (size < 0) throw std::invalid_argument("size is " + std::to_string(size) + ", expected at least 0");
  if (size == 0) return {};
  return {&deref(static_cast<const char*>(data), "data"), static_cast<size_t>(size)};
}

}  // namespace
}  // namespace gyre::capi

using namespace gyre;
using namespace gyre::capi;

gyre_status gyre_store_open_file(const char* path, gyre_store** out, gyre_error* err) {
  return guard(err, [&] { deref(out, "out") = new gyre_store{open_file_store(&deref(path, "path"))}; });
}

gyre_status gyre_store_open_tcp(const char* host, int32_t port, int32_t listener, double seconds, gyre_store** out,
                                gyre_error* err) {
  return guard(err, [&] {
    const std::optional<int> serves = listener < 0 ? std::nullopt : std::optional<int>(listener);
    deref(out, "out") = new gyre_store{open_tcp_store(&deref(host, "host"), port, serves, seconds)};
  });
}

void gyre_store_free(gyre_store* store) { delete store; }

gyre_status gyre_store_set(gyre_store* store, const char* key, const void* data, int64_t size, gyre_error* err) {
  return guard(err, [&] { deref(store, "store").store->set(&deref(key, "key"), std::string(bytes_view(data, size))); });
}

gyre_status gyre_store_find(gyre_store* store, const char* key, void** data, int64_t* size, gyre_error* err) {
  return guard(err, [&] {
    deref(data, "data") = nullptr;
    const auto value = deref(store, "store").store->find(&deref(key, "key"));
    if (value.has_value()) hand_over(*value, data, size);
  });
}

gyre_status gyre_store_add(gyre_store* store, const char* key, int64_t amount, int64_t* value, gyre_error* err) {
  return guard(err, [&] { deref(value, "value") = deref(store, "store").store->add(&deref(key, "key"), amount); });
}

void gyre_bytes_free(void* data) { std::free(data); }

gyre_status gyre_group_new(const gyre_group_config* config, gyre_group** out, gyre_error* err) {
  return guard(err, [&] {
    const gyre_group_config& c = deref(config, "config");
    GroupOptions options{.rank = c.rank,
                         .size = c.size,
                         .store = c.store == nullptr ? nullptr : c.store->store,
                         .prefix = &deref(c.prefix, "prefix"),
                         .backend = &deref(c.backend, "backend"),
                         .bind = &deref(c.bind, "bind"),
                         .timeout = c.timeout,
                         .first = c.first};
    deref(out, "out") = new gyre_group(std::move(options));
  });
}

void gyre_group_free(gyre_group* group) { delete group; }

void gyre_group_abort(gyre_group* group, const char* reason) {
  if (group != nullptr) group->group.abort(reason == nullptr ? "" : reason);
}

int32_t gyre_group_lost(const gyre_group* group) { return group == nullptr ? -1 : group->group.lost(); }

gyre_status gyre_group_all_reduce(gyre_group* group, double* values, int64_t n, int32_t reduction, gyre_error* err) {
  return guard(err, [&] {
    if (n < 1) throw std::invalid_argument("all-reduce: got " + std::to_string(n) + " values, expected at least 1");
    if (reduction < GYRE_SUM || reduction > GYRE_MIN) {
      throw std::invalid_argument("all-reduce: reduction is " + std::to_string(reduction) +
                                  ", expected 0 to 2 (sum, max, min)");
    }
    deref(group, "group")
        .group.all_reduce({&deref(values, "values"), static_cast<size_t>(n)}, static_cast<Reduction>(reduction));
  });
}

gyre_status gyre_group_all_gather(gyre_group* group, const void* mine, int64_t size, int64_t* sizes, void** data,
                                  gyre_error* err) {
  return guard(err, [&] {
    const auto parts = deref(group, "group").group.all_gather(bytes_view(mine, size));
    std::string all;
    for (size_t r = 0; r < parts.size(); ++r) {
      (&deref(sizes, "sizes"))[r] = static_cast<int64_t>(parts[r].size());
      all += parts[r];
    }
    hand_over(all, data, nullptr);
  });
}

gyre_status gyre_group_broadcast(gyre_group* group, const void* mine, int64_t size, int32_t root, void** data,
                                 int64_t* data_size, gyre_error* err) {
  return guard(err, [&] {
    hand_over(deref(group, "group").group.broadcast(bytes_view(mine, size), root), data,
              &deref(data_size, "data_size"));
  });
}

gyre_status gyre_group_barrier(gyre_group* group, gyre_error* err) {
  return guard(err, [&] { deref(group, "group").group.barrier(); });
}

void gyre_group_traffic(const gyre_group* group, gyre_traffic out[GYRE_CARGO_KINDS]) {
  static_assert(kCargoKinds == GYRE_CARGO_KINDS);
  if (group == nullptr) return;
  const auto all = group->group.traffic();
  for (size_t i = 0; i < kCargoKinds; ++i) out[i] = {all[i].operations, all[i].sent, all[i].received, all[i].waited};
}
