// Sends any bytes to a server, over a socket, as a client that then says no more. Whatever they
// are, the server answers in HTTP or ends the connection, and is there for the next one.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "runtime/model/open_model.h"
#include "serve/http/http_server.h"
#include "tests/tiny_model.h"

namespace {

using varve::serve::BatchEngine;
using varve::serve::Engine;
using varve::serve::EngineOptions;
using varve::serve::HttpOptions;
using varve::serve::HttpServer;
using varve::serve::ServedModel;

constexpr int64_t kContext = 96;  // answers are short

void Expect(const char* what, bool holds) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

// A server on the tiny model, with all of its parts.
class TinyServer {
 public:
  TinyServer() {
    auto file = varve::GgufFile::FromMemory(bytes_, "tiny");
    Expect("a file", file.ok());
    auto decoder = varve::LoadDecoderModel(*file);
    Expect("a model", decoder.ok());
    auto tokenizer = (*decoder)->MakeTokenizer();
    Expect("a tokenizer", tokenizer.ok());
    tokenizer_ = std::move(*tokenizer);
    executor_ = varve::MakeThreadPool(1);
    EngineOptions options;
    options.context = kContext;
    options.cache_bytes = uint64_t{8} << 20;
    auto batch = BatchEngine::Create(*decoder, *tokenizer_, *executor_, options);
    Expect("an engine", batch.ok());
    engine_ = std::make_unique<Engine>(std::move(*batch));
    model_.id = "tiny";
    model_.tokenizer = tokenizer_.get();
    model_.context = model_.trained_context = kContext;
    model_.vocab_size = (*decoder)->vocab_size();
    HttpOptions http;
    http.port = 0;
    http.max_body_bytes = 1 << 16;
    http_ = std::make_unique<HttpServer>(*engine_, model_, std::move(http));
    Expect("a port", http_->Bind().ok());
    thread_ = std::thread([this] { http_->Run(); });
  }
  ~TinyServer() {
    http_->Stop();
    thread_.join();
  }

  int port() const { return http_->port(); }

 private:
  std::vector<std::byte> bytes_ = varve::TinyModel().Build();
  std::unique_ptr<varve::Tokenizer> tokenizer_;
  std::unique_ptr<varve::Executor> executor_;
  std::unique_ptr<Engine> engine_;
  ServedModel model_;
  std::unique_ptr<HttpServer> http_;
  std::thread thread_;
};

std::string Ask(int port, std::string_view request) {
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Expect("a socket", client >= 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  Expect("the server listens", connect(client, to, sizeof(address)) == 0);
  while (!request.empty()) {
    const ssize_t sent = send(client, request.data(), request.size(), MSG_NOSIGNAL);
    if (sent <= 0) break;  // it has ended the connection
    request.remove_prefix(static_cast<size_t>(sent));
  }
  shutdown(client, SHUT_WR);
  std::string answer;
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t count = recv(client, buffer.data(), buffer.size(), 0);
    if (count <= 0) break;
    answer.append(buffer.data(), static_cast<size_t>(count));
  }
  close(client);
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TinyServer server;
  const std::string answer = Ask(server.port(), {reinterpret_cast<const char*>(data), size});
  Expect("an answer in HTTP", answer.empty() || answer.starts_with("HTTP/1.1 "));
  if (!answer.empty()) Expect("a status", answer[9] >= '1' && answer[9] <= '5');
  return 0;
}
