// A redis-server of a test's own on a free port, and things that stand in its way: a proxy that is
// late, and a server that answers anything.

#ifndef VARVE_SERVE_TIERS_REDIS_TESTING_H_
#define VARVE_SERVE_TIERS_REDIS_TESTING_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "serve/tiers/redis_link.h"

namespace varve::serve {

inline bool HaveRedisServer() {
  return std::system("command -v redis-server >/dev/null 2>&1") == 0;  // NOLINT: a test's own
}

// Bound to 127.0.0.1 and a port that was free; the socket, and the port.
inline std::pair<int, int> ListenAnywhere() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), bytes) != 0) return {-1, 0};
  listen(listener, 16);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes);
  return {listener, ntohs(address.sin_port)};
}

class RedisServer {
 public:
  explicit RedisServer(std::vector<std::string> arguments = {}, int port = 0) : port_(port) {
    if (port_ == 0) {
      const auto [listener, free_port] = ListenAnywhere();
      close(listener);
      port_ = free_port;
    }
    std::vector<std::string> words = {
        "redis-server", "--port", std::to_string(port_), "--bind",   "127.0.0.1", "--save", "",
        "--appendonly", "no",     "--logfile",           "/dev/null"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    process_ = fork();
    if (process_ == 0) {
      std::vector<char*> raw;
      for (std::string& word : words) raw.push_back(word.data());
      raw.push_back(nullptr);
      execvp(raw[0], raw.data());
      _exit(127);
    }
    RedisLink link(Options());
    for (int i = 0; i < 200; ++i) {
      const Status status = link.Connect();
      if (status.ok() || status.message().find("NOAUTH") != std::string::npos) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
  }
  ~RedisServer() { Kill(); }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  int port() const { return port_; }
  RedisOptions Options() const {
    RedisOptions options;
    options.host = "127.0.0.1";
    options.port = port_;
    return options;
  }
  void Signal(int number) const { kill(process_, number); }
  void Kill() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    kill(process_, SIGCONT);
    waitpid(process_, nullptr, 0);
    process_ = -1;
  }
  // The answer as text; "-" in front of an error.
  std::string Ask(std::initializer_list<std::string_view> words) const;

 private:
  int port_;
  pid_t process_ = -1;
};

// Takes connections and hands each to `serve` on a thread of its own, until it is destroyed.
class TestListener {
 public:
  explicit TestListener(std::function<void(int connection)> serve) {
    const auto [listener, free_port] = ListenAnywhere();
    listener_ = listener;
    port_ = free_port;
    acceptor_ = std::thread([this, serve = std::move(serve)] {
      while (!stop_) {
        pollfd poll_in = {listener_, POLLIN, 0};
        if (poll(&poll_in, 1, 20) <= 0) continue;
        const int connection = accept(listener_, nullptr, nullptr);
        if (connection >= 0) threads_.emplace_back([serve, connection] { serve(connection); });
      }
    });
  }
  ~TestListener() {
    stop_ = true;
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    close(listener_);
  }
  TestListener(const TestListener&) = delete;
  TestListener& operator=(const TestListener&) = delete;

  int port() const { return port_; }

 private:
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

// Passes bytes between two sockets, each direction late by `delay`, until one of them ends.
inline void PassLate(int a, int b, std::chrono::milliseconds delay) {
  std::vector<char> buffer(1 << 20);
  pollfd both[2] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
  while (poll(both, 2, 5000) > 0) {
    for (int i = 0; i < 2; ++i) {
      if (both[i].revents == 0) continue;
      const ssize_t got = read(both[i].fd, buffer.data(), buffer.size());
      if (got <= 0) return;
      std::this_thread::sleep_for(delay);
      for (ssize_t at = 0; at < got;) {
        const ssize_t sent =
            send(both[1 - i].fd, buffer.data() + at, static_cast<size_t>(got - at), MSG_NOSIGNAL);
        if (sent <= 0) return;
        at += sent;
      }
    }
  }
}

}  // namespace varve::serve

#endif  // VARVE_SERVE_TIERS_REDIS_TESTING_H_
