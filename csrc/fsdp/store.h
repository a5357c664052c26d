// Where the ranks of a group find each other: a table of keys and values that all of them reach.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace gyre {

// Safe to call from several threads. Everything throws std::runtime_error when the store cannot be reached.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits for the key, at most so many seconds.
  virtual std::string get(const std::string& key, double seconds) = 0;
  // Adds to a counter that begins at 0 and returns its new value.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
};

// A client of c10d's TCPStore, as torchrun's agent serves it.
class TcpStore {
 public:
  virtual ~TcpStore() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Does not wait.
  virtual std::optional<std::string> find(const std::string& key) = 0;
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
};

// Throws when nothing answers within so many seconds.
std::unique_ptr<TcpStore> open_tcp_store(const std::string& host, int port, double seconds);

}  // namespace gyre
