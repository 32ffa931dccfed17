// HttpServer: the routes of `varve serve` on a listening socket.
//
// Each connection has a thread while it is served; answers come from the engine's thread (engine.h)
// through channels. A client that goes away cancels its request. What a stranger sends is checked
// before it reaches the engine: the key, the size of the body, the JSON, the fields.
//
// Run blocks; Stop may be called from any other thread.

#ifndef VARVE_SERVE_HTTP_HTTP_SERVER_H_
#define VARVE_SERVE_HTTP_HTTP_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/api/served_model.h"
#include "serve/engine/engine.h"
#include "varve/status.h"

namespace varve::serve {

class SpeechService;

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                    // 0: any that is free
  std::vector<std::string> api_keys;  // empty: nobody is asked for one
  // Pages of which origins a browser lets ask: "https://…", "localhost" (any port of this machine),
  // "all". Empty: none but our own.
  std::vector<std::string> cors_origins;
  uint64_t max_body_bytes = uint64_t{8} << 20;
  int max_connections = 128;     // served at once
  bool show_page = true;         // "/" is the page to look at
  std::optional<uint64_t> seed;  // of requests without one; none: another each time
  bool show_slots = true;
  bool show_metrics = true;
  SpeechService* speech = nullptr;  // of /v1/audio/…; not owned
  std::string slot_folder;          // of /slots/N?action=save; empty: there is no such action
  // Gets a line of JSON per request, without a newline; from any thread, one at a time.
  std::function<void(const std::string&)> log;
};

class HttpServer {
 public:
  // `engine` and `model` are not owned and must outlive this.
  HttpServer(Engine& engine, const ServedModel& model, HttpOptions options);
  ~HttpServer();

  // Takes the port. kIoError names host and port.
  Status Bind();
  int port() const;  // that was taken
  // Serves until Stop.
  void Run();
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_HTTP_HTTP_SERVER_H_
