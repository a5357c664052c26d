// Where the ranks of a run find each other: a table of keys and values that all of them reach, kept by c10d.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace gyre {

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

}  // namespace gyre
