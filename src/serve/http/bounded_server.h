// BoundedServer: the HTTP library's server with limits on what a client may send.
//
// The library reads lines and headers as long as they come (100 MB of them took 1.8 GB), chunked
// bodies too, and waits for a slow client byte by byte. Here a request has at most kMaxHeadBytes in
// front of its body, a body of at most twice max_body_bytes with the sizes of its chunks, and as
// much time as kLeastBytesPerSecond gives it. Requests that come in one packet are answered one by
// one. What passes a limit is a connection that ends.
//
// Made for versions of the library that have no such limits; `process_and_close_socket` is theirs.

#ifndef VARVE_SERVE_HTTP_BOUNDED_SERVER_H_
#define VARVE_SERVE_HTTP_BOUNDED_SERVER_H_

#include <httplib.h>

#include <cstddef>
#include <cstdint>

namespace varve::serve {

class BoundedServer final : public httplib::Server {
 public:
  static constexpr size_t kMaxHeadBytes = size_t{64} << 10;
  static constexpr int kHeadSeconds = 30;                // from its first byte
  static constexpr int64_t kLeastBytesPerSecond = 4096;  // of a body, after kHeadSeconds
  static constexpr int kSilentSeconds = 30;              // a client that sends or takes nothing

  explicit BoundedServer(uint64_t max_body_bytes);

  // For handlers: the connection ends with the answer, since nobody has read the request's body.
  static void EndConnection(const httplib::Request& request);

 private:
  bool process_and_close_socket(socket_t socket) override;

  uint64_t max_body_bytes_;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_HTTP_BOUNDED_SERVER_H_
