// ClientSocket: whether the client of a request still listens.
//
// The HTTP library (0.11) gives a handler no way to ask while it waits for its answer, and a server
// that goes on generating for nobody wastes slots. The connection is found among the process's own
// by its two addresses. One thread.

#ifndef VARVE_SERVE_HTTP_CLIENT_SOCKET_H_
#define VARVE_SERVE_HTTP_CLIENT_SOCKET_H_

#include <string>

namespace varve::serve {

class ClientSocket {
 public:
  // Of the connection whose other end this is. Call it while the request is being handled.
  ClientSocket(const std::string& remote_address, int remote_port);

  // True once the other end has closed. False where the connection was not found.
  bool is_closed() const;

 private:
  int socket_ = -1;  // the library's, not owned
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_HTTP_CLIENT_SOCKET_H_
