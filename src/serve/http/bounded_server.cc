#include "serve/http/bounded_server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>

namespace varve::serve {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kLookInterval{50};  // whether the server still runs

bool Await(int socket, short events, milliseconds time) {
  pollfd asked{.fd = socket, .events = events, .revents = 0};
  int ready = 0;
  do {
    ready = poll(&asked, 1, static_cast<int>(std::max<int64_t>(time.count(), 0)));
  } while (ready < 0 && errno == EINTR);
  return ready > 0 && (asked.revents & (events | POLLHUP)) != 0;
}

void ReadAddress(const sockaddr_storage& address, socklen_t size, std::string& ip, int& port) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host.data(), host.size(),
                  service.data(), service.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return;
  }
  ip = host.data();
  std::from_chars(service.data(), service.data() + std::strlen(service.data()), port);
}

// The bytes of one connection, request after request. One thread.
class ClientStream final : public httplib::Stream {
 public:
  ClientStream(int socket, uint64_t max_body_bytes)
      : socket_(socket), max_body_bytes_(max_body_bytes) {}

  // True when the next request begins; its limits begin then. False: not within kLookInterval.
  bool AwaitRequest() {
    if (begin_ == end_ && !Await(socket_, POLLIN, kLookInterval)) return false;
    begun_ = Clock::now();
    in_body_ = false;
    num_read_ = 0;
    line_bytes_ = 0;
    return true;
  }

  bool is_readable() const override {
    return begin_ < end_ || Await(socket_, POLLIN, seconds(BoundedServer::kSilentSeconds));
  }
  bool is_writable() const override {
    return Await(socket_, POLLOUT, seconds(BoundedServer::kSilentSeconds));
  }

  ssize_t read(char* out, size_t size) override {
    if (begin_ == end_ && !Refill()) return -1;
    const size_t count = std::min(size, end_ - begin_);
    std::memcpy(out, buffer_.data() + begin_, count);
    begin_ += count;
    if (!Count({out, count})) return -1;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* data, size_t size) override {
    if (!is_writable()) return -1;
    return send(socket_, data, size, MSG_NOSIGNAL);
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    if (getpeername(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0)
      ReadAddress(address, size, ip, port);
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    if (getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0)
      ReadAddress(address, size, ip, port);
  }
  socket_t socket() const override { return socket_; }

 private:
  Clock::time_point Deadline() const {
    const Clock::time_point least = begun_ + seconds(BoundedServer::kHeadSeconds);
    if (!in_body_) return least;
    return least + seconds(num_read_ / BoundedServer::kLeastBytesPerSecond);
  }

  bool Refill() {
    const auto left = std::chrono::duration_cast<milliseconds>(Deadline() - Clock::now());
    const milliseconds silent = seconds(BoundedServer::kSilentSeconds);
    if (!Await(socket_, POLLIN, std::min(left, silent))) return false;
    const ssize_t count = recv(socket_, buffer_.data(), buffer_.size(), 0);
    if (count <= 0) return false;
    begin_ = 0;
    end_ = static_cast<size_t>(count);
    return true;
  }

  // Whether so much may have come. The head ends, as the library has it, with "\r\n" alone on a
  // line; what it has read beyond that is body.
  bool Count(std::string_view bytes) {
    num_read_ += static_cast<int64_t>(bytes.size());
    if (in_body_) {
      return static_cast<uint64_t>(num_read_) <= 2 * max_body_bytes_ + BoundedServer::kMaxHeadBytes;
    }
    for (const char byte : bytes) {
      if (byte == '\n') {
        in_body_ |= line_bytes_ == 1 && last_ == '\r';
        line_bytes_ = 0;
      } else {
        ++line_bytes_;
      }
      last_ = byte;
    }
    return in_body_ || num_read_ <= static_cast<int64_t>(BoundedServer::kMaxHeadBytes);
  }

  int socket_;
  uint64_t max_body_bytes_;
  std::array<char, 4096> buffer_{};
  size_t begin_ = 0;  // [begin_, end_) of the buffer has not been read yet
  size_t end_ = 0;
  Clock::time_point begun_ = Clock::now();
  bool in_body_ = false;
  int64_t num_read_ = 0;    // of this request
  int64_t line_bytes_ = 0;  // of the head's line so far
  char last_ = 0;
};

// Takes what a client goes on to send, for a moment: closing at once would cost it the answer.
void Linger(int socket) {
  constexpr milliseconds kTime{1000};
  constexpr size_t kMostBytes = size_t{1} << 20;
  shutdown(socket, SHUT_WR);
  std::array<char, 4096> buffer{};
  const Clock::time_point end = Clock::now() + kTime;
  for (size_t taken = 0; taken < kMostBytes;) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
    if (left.count() <= 0 || !Await(socket, POLLIN, left)) return;
    const ssize_t count = recv(socket, buffer.data(), buffer.size(), 0);
    if (count <= 0) return;
    taken += static_cast<size_t>(count);
  }
}

// A connection has one thread, which runs its handlers.
thread_local bool connection_ends = false;

}  // namespace

void BoundedServer::EndConnection(const httplib::Request& request) {
  connection_ends = true;
  // The request is the library's own and not constant; its handler alone says so.
  auto& headers = const_cast<httplib::Request&>(request).headers;
  headers.erase("Connection");
  headers.emplace("Connection", "close");
}

BoundedServer::BoundedServer(uint64_t max_body_bytes) : max_body_bytes_(max_body_bytes) {
  set_payload_max_length(max_body_bytes);
}

bool BoundedServer::process_and_close_socket(socket_t socket) {
  bool is_done = false;
  connection_ends = false;
  {
    ClientStream stream(socket, max_body_bytes_);
    const auto await_request = [&] {
      const Clock::time_point end = Clock::now() + seconds(keep_alive_timeout_sec_);
      while (svr_sock_ != INVALID_SOCKET && Clock::now() < end) {
        if (stream.AwaitRequest()) return true;
      }
      return false;
    };
    for (size_t left = keep_alive_max_count_; left > 0 && await_request(); --left) {
      bool is_closed = false;
      is_done = process_request(stream, left == 1, is_closed, nullptr);
      if (!is_done || is_closed || connection_ends) break;
    }
  }
  if (connection_ends) Linger(socket);
  shutdown(socket, SHUT_RDWR);
  close(socket);
  return is_done;
}

}  // namespace varve::serve
