#include "serve/http/client_socket.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <charconv>
#include <string_view>

namespace varve::serve {
namespace {

bool IsPeer(int socket, const std::string& address, int port) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return false;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  if (getnameinfo(reinterpret_cast<sockaddr*>(&peer), size, host.data(), host.size(),
                  service.data(), service.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return false;
  }
  return address == host.data() && std::to_string(port) == service.data();
}

}  // namespace

ClientSocket::ClientSocket(const std::string& remote_address, int remote_port) {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder)) {
    const std::string_view name = entry->d_name;
    int file = -1;
    std::from_chars(name.data(), name.data() + name.size(), file);
    if (file < 0 || !IsPeer(file, remote_address, remote_port)) continue;
    socket_ = file;
    break;
  }
  closedir(folder);
}

bool ClientSocket::is_closed() const {
  if (socket_ < 0) return false;
  pollfd asked{.fd = socket_, .events = POLLRDHUP, .revents = 0};
  if (poll(&asked, 1, 0) <= 0) return false;
  return (asked.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

}  // namespace varve::serve
