// Process groups of gyre.h.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "capi/boundary.h"

struct gyre_tcp_store {
  std::unique_ptr<gyre::TcpStore> store;
};

namespace gyre::capi {
namespace {

// The caller's store, behind C callbacks.
class CallbackStore : public KeyValueStore {
 public:
  explicit CallbackStore(const gyre_store& store) : store_(store) {}

  void set(const std::string& key, const std::string& value) override {
    Message m;
    m.check(store_.set(store_.context, key.c_str(), value.data(), static_cast<int64_t>(value.size()), m.text));
  }
  std::string get(const std::string& key, double seconds) override {
    void* data = nullptr;
    int64_t size = 0;
    Message m;
    m.check(store_.get(store_.context, key.c_str(), seconds, &data, &size, m.text));
    const std::unique_ptr<void, decltype(&std::free)> owned(data, &std::free);
    return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), static_cast<size_t>(size));
  }
  int64_t add(const std::string& key, int64_t amount) override {
    int64_t value = 0;
    Message m;
    m.check(store_.add(store_.context, key.c_str(), amount, &value, m.text));
    return value;
  }

 private:
  struct Message {
    char text[GYRE_MESSAGE_SIZE] = "";
    void check(int32_t status) const {
      if (status != 0) throw std::runtime_error(std::string("store: ") + text);
    }
  };
  const gyre_store store_;
};

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

gyre_status gyre_tcp_store_open(const char* host, int32_t port, double seconds, gyre_tcp_store** out, gyre_error* err) {
  return guard(err,
               [&] { deref(out, "out") = new gyre_tcp_store{open_tcp_store(&deref(host, "host"), port, seconds)}; });
}

void gyre_tcp_store_free(gyre_tcp_store* store) { delete store; }

gyre_status gyre_tcp_store_set(gyre_tcp_store* store, const char* key, const void* data, int64_t size,
                               gyre_error* err) {
  return guard(err, [&] { deref(store, "store").store->set(&deref(key, "key"), std::string(bytes_view(data, size))); });
}

gyre_status gyre_tcp_store_get(gyre_tcp_store* store, const char* key, void** data, int64_t* size, gyre_error* err) {
  return guard(err, [&] {
    deref(data, "data") = nullptr;
    const auto value = deref(store, "store").store->find(&deref(key, "key"));
    if (value.has_value()) hand_over(*value, data, size);
  });
}

gyre_status gyre_tcp_store_add(gyre_tcp_store* store, const char* key, int64_t amount, int64_t* value,
                               gyre_error* err) {
  return guard(err, [&] { deref(value, "value") = deref(store, "store").store->add(&deref(key, "key"), amount); });
}

void gyre_bytes_free(void* data) { std::free(data); }

gyre_status gyre_group_new(const gyre_group_config* config, gyre_group** out, gyre_error* err) {
  return guard(err, [&] {
    const gyre_group_config& c = deref(config, "config");
    GroupOptions options{.rank = c.rank,
                         .size = c.size,
                         .store = nullptr,
                         .prefix = &deref(c.prefix, "prefix"),
                         .backend = &deref(c.backend, "backend"),
                         .bind = &deref(c.bind, "bind"),
                         .timeout = c.timeout,
                         .first = c.first};
    if (c.store.set != nullptr && c.store.get != nullptr && c.store.add != nullptr) {
      options.store = std::make_shared<CallbackStore>(c.store);
    }
    deref(out, "out") = new gyre_group(std::move(options));
  });
}

void gyre_group_free(gyre_group* group) { delete group; }

void gyre_group_abort(gyre_group* group, const char* reason) {
  if (group != nullptr) group->group.abort(reason == nullptr ? "" : reason);
}

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
